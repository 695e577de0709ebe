"""The options of train.py are a promise: changing the list is a conscious act."""

from __future__ import annotations

import dataclasses
import re
import shlex
from pathlib import Path

import pytest
import yaml
from jsonargparse import Namespace
from lightning.pytorch import Trainer

from graphormer_sepnorm.cli import compare, comparison_job, options
from graphormer_sepnorm.cli.configs import resolve_in_arguments, take_set
from graphormer_sepnorm.cli.lightning_cli import TRAINER_DEFAULTS, TrainCLI
from graphormer_sepnorm.cli.options import (
    check_seed,
    option_names,
    refuse_for_a_member,
    refuse_options_of_fit,
    refuse_shape,
    require_data,
)
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.compare.arms import parse_arms
from graphormer_sepnorm.compare.comparison_set import read_set
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.config import EXTENSIONS, FROM_DATA, GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.model.summary import count_parameters
from graphormer_sepnorm.resources import arms_names, config_names, config_path
from graphormer_sepnorm.runs.directory import flat
from graphormer_sepnorm.training.module import GraphormerModule

REPOSITORY = Path(__file__).resolve().parents[2]

OPTIONS = {
    "baselines",
    "blend",
    "ensemble",
    "ensemble_by",
    "checkpoint_minutes",
    "ckpt_path",
    "config",
    "early_stopping",
    "ema_decay",
    "engine",
    "help",
    "help-all",
    "keep",
    "metric",
    "output",
    "print_config",
    "resume",
    "seed_everything",
    "data",
    "data.attention_blocks",
    "data.batch_size",
    "data.class_weight",
    "data.dataset",
    "data.descriptor_columns",
    "data.descriptor_columns+",
    "data.descriptors",
    "data.duplicates",
    "data.eval_batch_size",
    "data.fold",
    "data.folds",
    "data.group_column",
    "data.header_row",
    "data.id_column",
    "data.member_fold",
    "data.member_folds",
    "data.molecules",
    "data.num_workers",
    "data.on_invalid",
    "data.positive",
    "data.root",
    "data.sheet",
    "data.smiles_column",
    "data.split",
    "data.split_column",
    "data.split_fractions",
    "data.split_seed",
    "data.standardise",
    "data.standardise+",
    "data.table",
    "data.target_columns",
    "data.target_columns+",
    "data.task",
    "data.test_table",
    "data.time_column",
    "data.units",
    "data.units+",
    "data.validation_table",
    "data.weight_column",
    "model",
    "model.atom_rows",
    "model.attention_dropout",
    "model.precise_bn_graphs",
    "model.frozen_bn_fraction",
    "model.betas",
    "model.bias_mixing",
    "model.bond_rows",
    "model.bond_states",
    "model.degree_rows",
    "model.degree_scaler",
    "model.drop_path",
    "model.dropout",
    "model.encodings",
    "model.eps",
    "model.ffn_width",
    "model.final_learning_rate",
    "model.heads",
    "model.input_dropout",
    "model.from_pretrained",
    "model.label_fraction",
    "model.layers",
    "model.learning_rate",
    "model.local_layers",
    "model.local_mpnn",
    "model.loss",
    "model.max_path_length",
    "model.norm",
    "model.norm_position",
    "model.optimizer",
    "model.path_rows",
    "model.readout",
    "model.ring_bias",
    "model.schedule",
    "model.spatial_rows",
    "model.uniformity_on",
    "model.uniformity_weight",
    "model.walk_steps",
    "model.warmup_steps",
    "model.weight_decay",
    "model.weight_decay_on",
    "model.width",
    "trainer",
}


class Parsed(TrainCLI):
    """Parses and checks, but neither loads data nor trains."""

    def instantiate_trainer(self, **options: object) -> None:  # type: ignore[override]
        self.given = self._get(self.config_init, "trainer")

    def _run_subcommand(self, subcommand: str) -> None:
        pass


@pytest.mark.parametrize("verb", ["fit", "validate", "test"])
def test_list_of_options_is_frozen(verb: str, parsers: dict) -> None:
    names = option_names(parsers[verb])
    # The trainer's options are Lightning's.
    expected = OPTIONS if verb == "fit" else OPTIONS | {"predictions"}
    assert {name for name in names if not name.startswith("trainer.")} == expected


def test_options_of_the_network_stand_once(parsers: dict) -> None:
    """Names, types, defaults and help are those of `GraphormerConfig`."""
    known = {action.dest: action for action in parsers["fit"]._actions}
    said = " ".join((GraphormerConfig.__doc__ or "").split())
    for field in dataclasses.fields(GraphormerConfig):
        option = known.get(f"model.{field.name}")
        assert (option is None) == (field.name in FROM_DATA), field.name
        if option is not None:
            assert option.default == field.default
            assert f" {field.name}: {' '.join(option.help.split())}" in said


def test_hyper_parameters_are_complete_without_the_command_line() -> None:
    parsed = Parsed(["fit", "--model.layers", "3"], None).model.hparams
    made = GraphormerModule(layers=3).hparams
    assert made.keys() == parsed.keys() - {"_instantiator"}
    assert (made["layers"], made["width"]) == (3, 80)
    with pytest.raises(TypeError, match="num_targets"):
        GraphormerModule(num_targets=2)


@pytest.mark.parametrize("name", config_names())
def test_every_shipped_configuration_fits_the_signatures(name: str) -> None:
    table = ["--data.table", "some.csv"] if name.startswith("table") else []
    table += ["--data.molecules", "some.smi"] if name == "pretrain" else []
    cli = Parsed(["fit", "-c", str(config_path(name)), *table], name)
    content = yaml.safe_load(config_path(name).read_text())
    for option, value in content["model"].items():
        if option == "from_pretrained":
            assert cli.model.backbone.name == value
            continue
        given = cli.model.hparams[option]
        assert (list(given) if isinstance(given, tuple) else given) == value, option
    assert isinstance(cli.model, GraphormerModule)
    assert isinstance(cli.datamodule, MoleculeDataModule)
    assert cli.datamodule.dataset == content["data"]["dataset"]
    assert cli.datamodule.max_path_length == content["model"]["max_path_length"]
    trainer = Trainer(
        **{**cli.given, "accelerator": "cpu", "logger": False, "enable_checkpointing": False}
    )
    open_ended = name == "table"  # until the number of molecules is known
    assert open_ended or trainer.max_steps > 0 or trainer.max_epochs > 0


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
    best = ["fit", "-c", str(config_path("zinc_subset_best"))]
    models = [Parsed([*best, *arm.arguments], None).model.architecture for arm in arms]
    whole = Parsed(best, None).model.architecture
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
    best = ["fit", "-c", str(config_path("zinc_subset_best"))]
    arms = parse_arms(name)
    for arm in arms:
        kept = Parsed([*best, *arm.arguments], None).config["fit"]
        for option, value in arm.options.items():
            found = kept
            for part in option.split("."):
                found = found[part]
            assert found == yaml.safe_load(value), (arm.name, option)


@pytest.mark.parametrize("dataset", ["zinc-subset", "ogbg-molhiv", "zinc"])
def test_the_papers_table_is_of_the_published_model(dataset: str) -> None:
    """Only rate, batch and length are not those of the configuration for the data set."""
    _, file = take_set(["-c", "paper_table"])
    assert file is not None
    words, stem = resolve_in_arguments(["fit", *read_set(file)[dataset]])
    parsed = Parsed(words, None)
    own = Parsed(["fit", "-c", str(config_path(str(stem)))], None)
    assert parsed.config["fit"].data.dataset == dataset
    assert parsed.model.architecture == own.model.architecture
    here, there = (dict(flat(one.config["fit"].as_dict())) for one in (parsed, own))
    differing = {name for name, value in here.items() if value != there[name]} - {"config"}
    shorter = {"data.batch_size", "model.warmup_steps", "trainer.max_steps", "trainer.max_epochs"}
    assert differing == {"model.learning_rate"} | (set() if dataset == "ogbg-molhiv" else shorter)


def gpu_commands() -> list[str]:
    page = (REPOSITORY / "docs" / "gpu.md").read_text(encoding="utf-8")
    return re.findall(r"^    python train\.py (.*)$", page, re.MULTILINE)


def test_there_are_commands_waiting_for_a_gpu() -> None:
    assert sum("compare" in command for command in gpu_commands()) >= 5


@pytest.mark.parametrize("command", gpu_commands())
def test_commands_waiting_for_a_gpu_are_understood(command: str) -> None:
    verb, *words = shlex.split(command)
    of_arms: list[tuple[str, ...]] = [()]
    if verb == "compare":
        options, words = compare._parse(words)
        of_arms = [
            arm.arguments for arm in comparison_job._asked(Path("run"), options, words, None).arms
        ]
    words, _ = resolve_in_arguments(["fit", *words])
    for arguments in of_arms:
        assert Parsed([*words, *arguments], None).config["fit"].engine in ("captured", "compiled")


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
    module = Parsed(["fit", "-c", str(config_path("zinc_subset_best"))], None).model
    # More rows than ZINC needs: 28 kinds of atoms and 4 of bonds, and those unknown.
    config = dataclasses.replace(module.architecture, atom_rows=32, bond_rows=8)
    assert count_parameters(Graphormer(config)) < 500_000
    assert config.local_mpnn == "gine+rings"


def test_command_line_wins_over_the_configuration_and_later_files_over_earlier(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.yaml").write_text("model:\n  layers: 5\n  heads: 4\n")
    (tmp_path / "b.yaml").write_text("model:\n  heads: 2\n")
    files = ["-c", str(tmp_path / "a.yaml"), "-c", str(tmp_path / "b.yaml")]
    model = Parsed(["fit", *files, "--model.width", "40"], None).model
    assert (model.hparams.layers, model.hparams.heads, model.hparams.width) == (5, 2, 40)


def test_command_line_wins_wherever_it_stands(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model:\n  layers: 5\n  width: 16\n")
    (tmp_path / "b.yaml").write_text("model:\n  layers: 4\n")
    files = ["-c", str(tmp_path / "a.yaml"), f"--config={tmp_path / 'b.yaml'}"]
    words, stem = resolve_in_arguments(["fit", "--model.width", "40", *files])
    model = Parsed(words, None).model
    assert (model.hparams.layers, model.hparams.width, stem) == (4, 40, "b")


def test_one_seed_for_parameters_and_order() -> None:
    cli = Parsed(["fit", "--seed_everything", "7", "--model.max_path_length", "4"], None)
    assert (cli.model.hparams.seed, cli.datamodule.seed) == (7, 7)
    assert cli.datamodule.max_path_length == 4


def test_trainer_defaults_exist() -> None:
    cli = Parsed(["fit"], None)
    assert {name: cli.given[name] for name in TRAINER_DEFAULTS} == TRAINER_DEFAULTS


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


def test_a_seed_is_one_that_torch_takes() -> None:
    for seed in (0, 2**32 - 1):
        check_seed(seed)
    for seed in (-1, 2**32):
        with pytest.raises(ConfigError, match=f"--seed_everything is {seed}: it must be from 0"):
            check_seed(seed)


@pytest.mark.parametrize("name", sorted(options.OPTIONS.keys() - {"seed_everything"}))
def test_what_only_fit_has_is_refused_by_other_verbs(name: str) -> None:
    allowed = ["--seed_everything=3", "--data.table", name]
    refuse_options_of_fit("test", allowed)
    for words in ([f"--{name}", "x"], [f"--{name}=x"]):
        with pytest.raises(ConfigError, match=f"--{name} is for fit, and test takes no notice"):
            refuse_options_of_fit("test", [*allowed, *words])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, None),
        ({"baselines": True}, "give --baselines false"),
        ({"blend": True}, "give --blend false"),
        ({"keep": "fingerprints"}, "give --keep none"),
    ],
)
def test_one_member_has_nothing_that_is_made_of_all(given: dict, said: str | None) -> None:
    alone = {"baselines": False, "blend": False, "keep": "none", **given}
    refuse_for_a_member(Namespace(**alone, data=Namespace(member_fold=None)))
    member = Namespace(**alone, data=Namespace(member_fold=0))
    if said is None:
        refuse_for_a_member(member)
    else:
        with pytest.raises(ConfigError, match=said):
            refuse_for_a_member(member)


def test_a_backbone_decides_the_shape_and_not_how_it_is_trained() -> None:
    refuse_shape(["fit", "--model.dropout=0.2", "--model.learning_rate", "1e-3", "width"], "small")
    for words in (["--model.width", "80"], ["--model.norm=bn+bn"]):
        with pytest.raises(ConfigError, match=f"{words[0].partition('=')[0]} is decided by the"):
            refuse_shape(["fit", *words], "small")


@pytest.mark.parametrize(
    "words",
    [["-c", "x"], ["--config=x"], ["--ckpt_path", "r"], ["--data.table=x"], ["--data", "{}"]],
)
def test_data_are_named_in_one_of_many_ways(words: list[str]) -> None:
    require_data(["fit", *words])
    with pytest.raises(ConfigError, match="which data"):
        require_data(["fit", "--model.width", "8", "--output", "--database"])


@pytest.mark.parametrize(
    ("words", "said_of"),
    [
        (["--trainer.accelerator", "gpu"], "--trainer.accelerator gpu: there is none here"),
        (["--trainer.devices", "-1"], "--trainer.devices -1 means all GPUs"),
        (["--trainer.strategy", "ddp_spawn"], "--trainer.strategy ddp_spawn copies this process"),
        (["--trainer.strategy", "ddp_notebook"], "give ddp, which starts a command"),
    ],
)
def test_devices_and_processes_that_cannot_be_are_refused_at_once(
    words, said_of, monkeypatch, capsys
):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    assert main(["fit", "--data.table", "nowhere.csv", *words]) == 2
    said = capsys.readouterr().err
    assert said_of in said
    assert said.count("\n") == 1
