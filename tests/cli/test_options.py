"""The options of train.py are a promise: changing the list is a conscious act."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

from graphormer_sepnorm.cli.options import VERBS, options_of, parse
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.compare.arms import parse_arms
from graphormer_sepnorm.config import FitConfig, flat, save_config
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model import config as model_config
from graphormer_sepnorm.model.config import norm_name
from graphormer_sepnorm.model.graphormer import Graphormer, count_parameters
from graphormer_sepnorm.model.norms import NORM_KINDS
from graphormer_sepnorm.resources import bundled_arms, bundled_configs, config_path

REPOSITORY = Path(__file__).resolve().parents[2]


def config_of(*words: str) -> FitConfig:
    return parse("fit", words).config


def test_list_of_options_is_frozen() -> None:
    assert tuple(NORM_KINDS) == model_config.KINDS
    listed = (Path(__file__).parent / "options.txt").read_text().split()
    assert [*options_of("fit")] == listed
    assert all(option.text for option in options_of("fit").values())
    for verb in ("test", "validate"):
        assert sorted({*options_of(verb)} - {"predictions"}) == listed


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_short_and_has_what_exists(verb: str, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    shown = []
    for option in ("--help", "-h"):
        with pytest.raises(SystemExit):
            main([verb, option])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert len(shown[0].splitlines()) <= 60
    assert max(map(len, shown[0].splitlines())) <= 100
    assert re.findall(r"^  (?:-\w, )?--(\S+)", shown[0], flags=re.MULTILINE) == [*VERBS[verb][2]]
    for words in ([verb, "--help_all"], ["compare", "--help_all"], [verb, "--help-all"]):
        with pytest.raises(SystemExit):
            main(words)
        text = capsys.readouterr().out
        assert "--trainer.max_epochs" in text
    assert [name for name in options_of(verb) if f"--{name}" not in text] == []


@pytest.mark.parametrize("name", bundled_configs())
def test_every_shipped_configuration_is_what_its_file_says(name: str, tmp_path: Path) -> None:
    content, config = flat(yaml.safe_load(config_path(name).read_text())), config_of("-c", name)
    found = flat(config.to_plain())
    for option, value in content.items():
        assert found[option] == (norm_name(value) if option == "model.norm" else value), option
    save_config(config, tmp_path / "a.yaml")
    assert FitConfig.read(tmp_path / "a.yaml") == config
    assert config_of("-c", str(tmp_path / "a.yaml")) == config


@pytest.mark.parametrize("name", bundled_arms())
def test_bundled_arms_have_options_that_fit_knows(name: str) -> None:
    best = config_of("-c", "zinc_subset_best")
    for arm in parse_arms(name):
        found = flat(best.with_options(arm.options).to_plain())
        for option, value in arm.options.items():
            wanted = norm_name(value) if option == "model.norm" else value
            assert found[option] == wanted, (arm.name, option)


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


def test_the_best_recipe_stays_below_half_a_million_parameters() -> None:
    network = config_of("-c", "zinc_subset_best").model.network
    # More rows than ZINC needs: 28 kinds of atoms and 4 of bonds, and those unknown.
    config = dataclasses.replace(network, atom_rows=32, bond_rows=8)
    assert count_parameters(Graphormer(config)) < 500_000
    assert config.local_mpnn == "gine+rings"


def test_words_win_over_files_wherever_they_stand_and_later_files_over_earlier(tmp_path) -> None:
    (tmp_path / "a.yaml").write_text("model:\n  layers: 5\n  heads: 4\n")
    (tmp_path / "b.yaml").write_text("model:\n  heads: 2\n")
    files = ["-c", str(tmp_path / "a.yaml"), f"--config={tmp_path / 'b.yaml'}"]
    for words in ([*files, "--model.width", "40"], ["--model.width=40", *files]):
        request = parse("fit", words)
        model = request.config.model
        assert (model.layers, model.heads, model.width) == (5, 2, 40)
        assert (request.name, request.typed) == ("b", {"model.width"})


@pytest.mark.parametrize("name", ["quickstart", "quickstart.yaml", "configs/quickstart.yaml"])
def test_shipped_configurations_are_found_from_anywhere_after_ones_own(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def layers() -> int:
        with pytest.raises(SystemExit) as stopped:
            main(["fit", "-c", name, "--print_config"])
        assert stopped.value.code == 0
        return yaml.safe_load(capsys.readouterr().out)["model"]["layers"]

    monkeypatch.chdir(tmp_path)
    assert layers() != 77
    (tmp_path / "configs").mkdir()
    (tmp_path / name).write_text("model:\n  layers: 77\n")
    assert layers() == 77


@pytest.mark.parametrize("value", ["# replicates", "#1", "&x", "null", "~", "Null", "- a", "1e3"])
def test_a_value_arrives_as_it_was_typed(value: str) -> None:
    assert config_of("--data.target_columns", value).data.target_columns == (value,)
    assert config_of(f"--data.smiles-column={value}").data.smiles_column == value


def test_a_stored_configuration_may_hold_what_is_gone_where_it_did_nothing(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("data: {class_weight: null, duplicates: keep, batch_size: 7}")
    assert config_of("-c", str(file)).data.batch_size == 7
    file.write_text("data: {class_weight: null, duplicates: mean}")
    with pytest.raises(ConfigError, match=r"data\.duplicates"):
        config_of("-c", str(file))


def test_lists_numbers_and_no_value_can_be_typed() -> None:
    named = {"[a, b]": ("a", "b"), "a,b": ("a", "b"), "['a', 'b']": ("a", "b"), "5'": ("5'",)}
    named |= {'"IC50 (nM, pH 7)",b': ("IC50 (nM, pH 7)", "b"), "[pH,T [K]]": ("pH", "T [K]")}
    for text, names in named.items():
        assert config_of("--data.target_columns", text).data.target_columns == names
    words = "-c", "table", "--model.from_pretrained", "null"
    assert config_of(*words).model.from_pretrained is None
    assert config_of("--data.standardize", "null").data.standardize is None
    config = config_of("--model.warmup_steps=1e-1", "--trainer.limit_val_batches=1")
    assert repr((config.model.warmup_steps, config.trainer.limit_val_batches)) == "(0.1, 1)"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--output", ""), ("--data.test_table", ""), ("--data.validation_table", "")),
        *(("--seed_everything", "-1"), ("--seed_everything", str(2**32))),
        *(("--ensemble", "0"), ("--ensemble", "65"), ("--early_stopping", "-2")),
        *(("--ema_decay", "1.5"), ("--metric", "mea")),
        *(("--members", "kernels"), ("--members", "[]")),
        *(("--baselines", "maybe"), ("--keep", "all"), ("--engine", "warp")),
        *(("--model.layers", "three"), ("--model.layers", "0"), ("--model.dropout", "1")),
        *(("--model.loss", "l3"), ("--model.optimizer", "sgd"), ("--model.betas", "[1, 2]")),
        *(("--model.learning_rate", "0"), ("--model.eps", "-1"), ("--model.label_fraction", "0")),
        *(("--model.precise_bn_graphs", "1"), ("--model.walk_steps", "0.5")),
        *(("--data.batch_size", "1"), ("--data.num_workers", "-1"), ("--data.split", "scafold")),
        *((f"--trainer.{name}", "0") for name in ("max_epochs", "max_steps", "devices")),
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
        *(("--norm", "--model.norm"), ("--data_table", "--data.table")),
        *((word, "") for word in ("--models", "--quiet", "--model.depth", "--ckpt_path")),
        ("--epochs", "--trainer.max_epochs"),
    ],
)
def test_an_unknown_option_is_answered_with_the_one_that_is_meant(word: str, meant: str) -> None:
    said = f"{word} .*'{meant}'" if meant else f"{word}$"  # none is better than a wrong one
    with pytest.raises(ConfigError, match=said):
        config_of(word, "3")


@pytest.mark.parametrize("word", ["--trainer.fast_dev_run=true", "--trainer.limit_val_batches=0"])
def test_what_contradicts_each_other_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="--ensemble"):
        config_of("--ensemble=2", word)


@pytest.mark.parametrize("name", ["output", "baselines", "ensemble", "engine", "keep"])
def test_what_only_fit_has_is_refused_by_other_verbs(name: str) -> None:
    with pytest.raises(ConfigError, match=f"--{name}"):
        parse("test", [f"--{name}=1"])
