"""The options of train.py are a promise: changing the list is a conscious act."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest
import yaml

from graphormer_sepnorm.cli.options import VERBS, make_parser, option_names, parse
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.compare.arms import parse_arms
from graphormer_sepnorm.config import FitConfig, ModelConfig, flat, save_config
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model import config as model_config
from graphormer_sepnorm.model.config import EXTENSIONS, GraphormerConfig, norm_name
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.model.norm_arms import NORM_KINDS
from graphormer_sepnorm.model.summary import count_parameters
from graphormer_sepnorm.resources import arms_names, config_names, config_path

REPOSITORY = Path(__file__).resolve().parents[2]


def config_of(*words: str) -> FitConfig:
    return parse("fit", words).config


def test_list_of_options_is_frozen() -> None:
    listed = (Path(__file__).parent / "options.txt").read_text().split()
    assert option_names(make_parser("fit")) == listed
    evaluation = option_names(make_parser("test"))
    assert sorted({*evaluation} - {"predictions"}) == listed
    assert option_names(make_parser("validate")) == evaluation


def test_every_option_is_explained() -> None:
    parser = make_parser("fit")
    for action in parser._actions:
        if action.option_strings and not action.option_strings[0].endswith("+"):
            assert action.help, action.dest


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_screen_and_has_what_exists(verb: str, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = []
    for option in ("--help", "-h"):
        with pytest.raises(SystemExit):
            main([verb, option])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert len(shown[0].splitlines()) <= 40
    assert max(map(len, shown[0].splitlines())) <= 100
    assert re.findall(r"^  --(\S+)", shown[0], flags=re.MULTILINE) == [*VERBS[verb][2]]
    with pytest.raises(SystemExit):
        main([verb, "--help-all"])
    text = capsys.readouterr().out
    assert [name for name in option_names(make_parser(verb)) if f"--{name}" not in text] == []


def test_options_go_to_a_file_and_back(tmp_path: Path) -> None:
    for name in config_names():
        config = config_of("-c", name)
        save_config(config, tmp_path / "a.yaml")
        assert FitConfig.read(tmp_path / "a.yaml") == config
        assert config_of("-c", str(tmp_path / "a.yaml")) == config


@pytest.mark.parametrize("name", config_names())
def test_every_shipped_configuration_is_what_its_file_says(name: str) -> None:
    content = flat(yaml.safe_load(config_path(name).read_text()))
    config = flat(config_of("-c", name).to_plain())
    for option, value in content.items():
        assert config[option] == (norm_name(value) if option == "model.norm" else value), option


def test_the_kinds_of_norm_are_those_that_can_be_named() -> None:
    assert tuple(NORM_KINDS) == model_config.KINDS


def test_shipped_configurations() -> None:
    tables = ["table_classification", "table_regression", "table_regression_best"]
    molhiv = ["molhiv", "molhiv_base", "molhiv_best"]
    zinc = ["zinc", "zinc_best", "zinc_subset", "zinc_subset_best"]
    assert config_names() == [*molhiv, "pretrain", "quickstart", "table", *tables, *zinc]


def extensions_of(config: GraphormerConfig) -> set[str]:
    """Return what a network has that Graphormer has not, part by part."""
    plain = GraphormerConfig()
    return {
        f"{name}: {part}"
        for name in EXTENSIONS
        for part in str(getattr(config, name)).split("+")
        if part != str(getattr(plain, name))
    }


def test_each_arm_of_the_extensions_is_what_its_name_says() -> None:
    arms = parse_arms(str(REPOSITORY / "configs" / "arms" / "extensions.yaml"))
    best = config_of("-c", "zinc_subset_best")
    models = [best.with_options(arm.options).model.network for arm in arms]
    whole = best.model.network
    assert models[0] == whole
    of_whole = extensions_of(whole)
    rings = {"encodings: rings", "local_mpnn: rings"}
    without = {
        "paths": {"encodings: paths"},
        "ring-messages": {"local_mpnn: rings"},
        "rings": rings,
        "bond-states": {"bond_states: True"},
        "bonds": {
            *("local_mpnn: gine", "local_mpnn: rings"),
            *("local_layers: 6", "bond_states: True"),
        },
        "local-layers": {"local_layers: 6"},
        "sum": {"readout: both"},
    }
    assert set().union(*without.values()) == of_whole  # each of the recipe's is left out by one arm
    for arm, model in zip(arms, models, strict=True):
        if arm.name == "none":
            assert extensions_of(model) == set()
        elif arm.name.startswith("without-"):
            assert extensions_of(model) == of_whole - without[arm.name.removeprefix("without-")]
        elif arm.name == "walks":
            assert extensions_of(model) ^ of_whole == {"encodings: paths", "encodings: rrwp"}
        elif arm.name.startswith("plus-"):
            more = {
                "ring-bias": {"ring_bias: True"},
                "mixing": {"bias_mixing: True"},
                "scaler": {"degree_scaler: True"},
            }
            plus = more.get(arm.name.removeprefix("plus-"), set())
            assert extensions_of(model) == of_whole | plus
            assert model != whole
        else:  # another norm, optimiser or learning rate
            assert dataclasses.replace(model, norm=whole.norm) == whole


@pytest.mark.parametrize("name", arms_names())
def test_bundled_arms_have_options_that_fit_knows(name: str) -> None:
    best = config_of("-c", "zinc_subset_best")
    for arm in parse_arms(name):
        found = flat(best.with_options(arm.options).to_plain())
        for option, value in arm.options.items():
            wanted = norm_name(value) if option == "model.norm" else value
            assert found[option] == wanted, (arm.name, option)


def gpu_commands() -> list[str]:
    page = (REPOSITORY / "docs" / "experiments" / "gpu.md").read_text(encoding="utf-8")
    return re.findall(r"^    python train\.py (.*)$", page, re.MULTILINE)


def test_there_are_commands_waiting_for_a_gpu() -> None:
    assert sum("compare" in command for command in gpu_commands()) >= 5


@pytest.mark.parametrize("command", [one for one in gpu_commands() if one.startswith("fit")])
def test_commands_waiting_for_a_gpu_are_understood(command: str) -> None:
    _, *words = shlex.split(command)
    assert config_of(*words).engine in ("captured", "compiled")


def test_zinc_subset_is_the_recipe_of_version_1() -> None:
    content = yaml.safe_load(config_path("zinc_subset").read_text())
    model, trainer = content["model"], content["trainer"]
    assert content["data"]["batch_size"] == 256
    assert (trainer["max_steps"], model["warmup_steps"]) == (400_000, 40_000)
    assert (model["learning_rate"], model["final_learning_rate"]) == (2e-4, 1e-9)
    assert (model["schedule"], model["loss"]) == ("linear", "l1")
    assert (model["layers"], model["width"], model["heads"], model["ffn_width"]) == (12, 80, 8, 80)
    assert {model[f"{part}dropout"] for part in ("", "attention_", "input_")} == {0.1}
    assert (model["weight_decay"], trainer["gradient_clip_val"]) == (0.01, 5.0)
    rows = [model[f"{table}_rows"] for table in ("atom", "bond", "degree", "spatial", "path")]
    assert rows == [64, 64, 64, 40, 40]


def test_the_best_recipe_stays_below_half_a_million_parameters() -> None:
    network = config_of("-c", "zinc_subset_best").model.network
    # More rows than ZINC needs: 28 kinds of atoms and 4 of bonds, and those unknown.
    config = dataclasses.replace(network, atom_rows=32, bond_rows=8)
    assert count_parameters(Graphormer(config)) < 500_000
    assert config.local_mpnn == "gine+rings"


def test_words_win_over_files_wherever_they_stand_and_later_files_over_earlier(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.yaml").write_text("model:\n  layers: 5\n  heads: 4\n")
    (tmp_path / "b.yaml").write_text("model:\n  heads: 2\n")
    files = ["-c", str(tmp_path / "a.yaml"), f"--config={tmp_path / 'b.yaml'}"]
    for words in ([*files, "--model.width", "40"], ["--model.width=40", *files]):
        request = parse("fit", words)
        model = request.config.model
        assert (model.layers, model.heads, model.width) == (5, 2, 40)
        assert (request.name, request.typed) == ("b", {"model.width"})


@pytest.mark.parametrize("name", ["quickstart", "quickstart.yaml", "configs/quickstart.yaml"])
def test_shipped_configurations_are_found_from_anywhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["fit", "-c", name, "--print_config"])
    assert stopped.value.code == 0
    assert yaml.safe_load(capsys.readouterr().out)["data"]["dataset"] == "sample"


def test_own_file_comes_before_a_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zinc.yaml").write_text("model:\n  layers: 77\n")
    with pytest.raises(SystemExit):
        main(["fit", "--config=zinc.yaml", "--print_config"])
    assert yaml.safe_load(capsys.readouterr().out)["model"]["layers"] == 77


def test_a_model_takes_no_option_that_the_data_decide() -> None:
    with pytest.raises(TypeError, match="num_targets"):
        ModelConfig(num_targets=2)
    assert {*ModelConfig.names()} > {*GraphormerConfig.names()} - {*model_config.FROM_DATA}


@pytest.mark.parametrize("value", ["# replicates", "#1", "&x", "null", "~", "Null", "- a", "1e3"])
def test_a_value_arrives_as_it_was_typed(value: str) -> None:
    assert config_of("--data.target_columns", value).data.target_columns == (value,)
    assert config_of(f"--data.smiles-column={value}").data.smiles_column == value


def test_a_list_and_no_value_can_be_typed() -> None:
    assert config_of("--data.target_columns", "[a, b]").data.target_columns == ("a", "b")
    words = "-c", "table", "--model.from_pretrained", "null"
    assert config_of(*words).model.from_pretrained is None


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--output", ""), ("--data.test_table", ""), ("--data.validation_table", "")),
        *(("--seed_everything", "-1"), ("--seed_everything", str(2**32))),
        *(("--ensemble", "0"), ("--ensemble", "65"), ("--early_stopping", "-2")),
        *(("--checkpoint_minutes", "-5"), ("--ema_decay", "1.5"), ("--metric", "mea")),
        *(("--baselines", "maybe"), ("--keep", "all"), ("--engine", "warp")),
        *(("--model.layers", "three"), ("--model.layers", "0"), ("--model.dropout", "1")),
        *(("--model.loss", "l3"), ("--model.optimizer", "sgd"), ("--model.betas", "[1, 2]")),
        *(("--model.learning_rate", "0"), ("--model.eps", "-1"), ("--model.label_fraction", "0")),
        *(("--model.precise_bn_graphs", "1"), ("--model.walk_steps", "0.5")),
        *(("--data.batch_size", "1"), ("--data.num_workers", "-1"), ("--data.split", "scafold")),
        *(("--trainer.max_epochs", "0"), ("--trainer.max_steps", "0")),
        *(("--trainer.max_epochs", "many"), ("--trainer.precision", "8")),
        *(("--trainer.limit_test_batches", "0"), ("--trainer.check_val_every_n_epoch", "0")),
        *(("--trainer.accumulate_grad_batches", "0"), ("--trainer.strategy", "ddp_spawn")),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(option: str, value: str) -> None:
    with pytest.raises(ConfigError, match=option.replace(".", r"\.")):
        config_of(option, value)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("--model.layer", "--model.layers"),
        ("--model.lr", "--model.learning_rate"),
        ("--norm", "--model.norm"),
        ("--epochs", "--trainer.max_epochs"),
        ("--target", "--data.target_columns"),
    ],
)
def test_an_unknown_option_is_answered_with_the_one_that_is_meant(word: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"{word} .*'{meant}'"):
        config_of(word, "3")


@pytest.mark.parametrize(
    "words",
    [
        ["--ensemble", "2", "--trainer.fast_dev_run", "true"],
        ["--ensemble", "2", "--trainer.limit_val_batches", "0"],
        ["--ensemble", "2", "--seed_everything", str(2**32 - 1)],
        ["--data.member_folds", "2", "--data.member_fold", "0", "--blend", "true"],
        ["--data.member_folds", "2", "--data.member_fold", "0", "--keep", "labels"],
    ],
)
def test_what_contradicts_each_other_is_refused(words: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"--(ensemble|data\.member_fold|seed_everything)"):
        config_of(*words)


@pytest.mark.parametrize("name", ["output", "baselines", "ensemble", "engine", "keep"])
def test_what_only_fit_has_is_refused_by_other_verbs(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name}"):
        parse("test", [f"--{name}=1"])
