"""Each old name of an option means the current one, on every way that options come in."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from reference.checkpoints import make_checkpoint

from graphormer_sepnorm.cli.configs import resolve_in_arguments
from graphormer_sepnorm.cli.fit_check import FitOptions
from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.compare.arms import Arm, parse_arms
from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.inference.checkpoint import KEY, read_checkpoint
from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.old_names import ARMS, OPTIONS, current_yaml
from graphormer_sepnorm.resources import arms_names
from graphormer_sepnorm.runs.directory import Record, Session
from graphormer_sepnorm.runs.experiments import differing, name_and_commands
from graphormer_sepnorm.runs.records import Experiment, SeedRun, read_records
from graphormer_sepnorm.runs.results_table import render
from graphormer_sepnorm.training.module import GraphormerModule

# A value that is not the default, for each.
VALUES: dict[str, Any] = {
    "model.optimiser": "muon",
    "model.batch_norm_graphs": 64,
    "model.batch_norm_fixed": 0.25,
    "model.local": "gine",
}
EACH = pytest.mark.parametrize("old", OPTIONS)
RUN = SeedRun(0, "2026", True, 9, 9, 7, 1.0, 0, "cpu", "2.13", "0123", 0.3, 0.4)


@pytest.fixture(autouse=True)
def _known_noise() -> None:
    silence_known_noise()


def bare(name: str) -> str:
    return name.removeprefix("model.")


def parsed(*words: str) -> dict[str, Any]:
    """What `fit` takes these words to say of the options that had old names."""
    model = FitOptions(words).config["fit"]["model"]
    assert not any(bare(old) in model for old in OPTIONS)
    return {old: model[bare(new)] for old, new in OPTIONS.items()}


def test_every_name_is_tried_here() -> None:
    assert set(VALUES) == set(OPTIONS)
    options = set(GraphormerModule().hparams)
    assert {bare(name) for name in OPTIONS.values()} <= options
    assert not {bare(name) for name in OPTIONS} & options


def test_on_the_command_line() -> None:
    words = [(f"--{old}", str(value)) for old, value in VALUES.items()]
    assert parsed(*map("=".join, words)) == VALUES
    assert parsed(*itertools.chain(*words)) == VALUES


@pytest.mark.parametrize("equals", [True, False])
def test_in_a_section_on_the_command_line(equals: bool) -> None:
    section = json.dumps({bare(old): value for old, value in VALUES.items()})
    assert parsed(*([f"--model={section}"] if equals else ["--model", section])) == VALUES


def test_in_a_configuration(tmp_path: Path) -> None:
    said = "".join(f"  {bare(old)}: {value}\n" for old, value in VALUES.items())
    (tmp_path / "mine.yaml").write_text(f"# mine\nmodel:\n  layers: 3  # few\n{said}")
    assert parsed("-c", str(tmp_path / "mine.yaml")) == VALUES
    # The command line wins, whichever name it uses.
    defaults = GraphormerModule().hparams
    said = "".join(f"  {bare(old)}: {defaults[bare(new)]}\n" for old, new in OPTIONS.items())
    (tmp_path / "other.yaml").write_text(f"model:\n{said}")
    words = [f"--{new}={VALUES[old]}" for old, new in OPTIONS.items()]
    assert parsed("-c", str(tmp_path / "other.yaml"), *words) == VALUES


def test_in_the_configuration_of_a_comparison(tmp_path: Path) -> None:
    sections = {"model": {bare(old): value for old, value in VALUES.items()}}
    text = yaml.safe_dump({"data": {"dataset": "sample"}, **sections})
    (tmp_path / "mine.yaml").write_text(text)
    options = FitOptions(["-c", str(tmp_path / "mine.yaml")])
    arm = Arm("a", {"model.norm": "sepnorm"})
    model = options.check(arm, ensembles=False)[0].model
    assert {old: model[bare(new)] for old, new in OPTIONS.items()} == VALUES


@EACH
def test_in_a_checkpoint(old: str, tmp_path: Path) -> None:
    name = bare(OPTIONS[old])
    of_network = name in GraphormerConfig.__dataclass_fields__
    checkpoint = make_checkpoint(**{name: VALUES[old]} if of_network else {})
    checkpoint["hyper_parameters"] = {bare(old): VALUES[old]}
    if of_network:
        facts = checkpoint[KEY]
        facts["model"][bare(old)] = facts["model"].pop(name)
    torch.save(checkpoint, path := tmp_path / "old.ckpt")
    read = read_checkpoint(path)
    assert read["hyper_parameters"] == {name: VALUES[old]}
    assert read[KEY]["model"].get(name, VALUES[old]) == VALUES[old]
    module = GraphormerModule.load_from_checkpoint(path)
    assert module.hparams[name] == VALUES[old]
    assert GraphormerModule.load_from_checkpoint(path, eps=0.5).hparams["eps"] == 0.5
    other = GraphormerModule()
    other.on_load_checkpoint(torch.load(path, weights_only=True))  # as Lightning hands it over
    for loaded in (module, other):
        weights = loaded.model.state_dict()
        for parameter, value in checkpoint["state_dict"].items():
            assert torch.equal(weights[parameter.removeprefix("model.")], value), parameter


@EACH
def test_in_a_file_of_arms(old: str, tmp_path: Path) -> None:
    sections = {"model": {"width": 64, bare(old): VALUES[old]}}
    (tmp_path / "arms.yaml").write_text(yaml.safe_dump({"a": {old: VALUES[old]}, "b": sections}))
    first, second = parse_arms(str(tmp_path / "arms.yaml"))
    assert first.options == {OPTIONS[old]: str(VALUES[old])}
    assert second.options == {OPTIONS[old]: str(VALUES[old]), "model.width": "64"}


@EACH
def test_in_a_comparison(old: str, tmp_path: Path) -> None:
    kept = {
        "format_version": 1,
        "base_options": [f"--{old}={VALUES[old]}"],
        "arms": {"a": {}, "b": {old: str(VALUES[old])}},
        "seeds": [0],
        "baseline": "a",
        "threads": 1,
        "dataset_fingerprint": "abc",
        "configuration": {"model": {bare(old): VALUES[old]}},
    }
    (tmp_path / "compare.yaml").write_text(yaml.safe_dump(kept))
    comparison = Comparison.read(tmp_path)
    assert comparison is not None
    assert comparison.arms[1].options == {OPTIONS[old]: str(VALUES[old])}
    name = bare(OPTIONS[old])
    assert comparison.differences({"model": {name: VALUES[old]}}) == []
    (line,) = comparison.differences({"model": {name: "another"}})
    assert line.startswith(f"--{OPTIONS[old]} is another here and {VALUES[old]} in")


@EACH
def test_in_a_run_directory(old: str) -> None:
    value, new = VALUES[old], OPTIONS[old]
    assert differing({"model": {bare(old): value}}, {"model": {bare(new): "?"}}) == {new: value}
    assert differing({"model": {bare(old): value}}, {"model": {bare(new): value}}) == {}
    typed = ["train.py", "fit", "-c", "mine.yaml", f"--{old}", str(value)]
    session = Session(started="2026-01-01T00:00:00+00:00", command=typed)
    record = Record(dataset="a", dataset_fingerprint="b", seed=0, sessions=[session])
    name, commands = name_and_commands(record, {})
    assert name == f"mine · {new}={value}"
    assert commands == (f"python train.py fit -c mine.yaml --{old} {value} --seed_everything SEED",)


@EACH
def test_in_the_table_of_results(old: str, tmp_path: Path) -> None:
    """A record with the old name and one with the current name are one experiment, one row."""
    value, new = VALUES[old], OPTIONS[old]
    for seed, name in enumerate((old, new)):
        one = Experiment(
            name=f"mine · model.width=64, {name}={value}",
            dataset="zinc-subset",
            dataset_fingerprint="abc",
            split=None,
            molecules=None,
            data_note=None,
            metric="mae",
            unit="",
            selected_on="validation_mae",
            options={name: value, "model.width": 64},
            commands=(f"python train.py fit -c mine.yaml --model.width 64 --{name} {value}",),
            runs=(dataclasses.replace(RUN, seed=seed),),
        )
        content = {"format_version": 1, **dataclasses.asdict(one)}
        (tmp_path / f"{seed}.json").write_text(json.dumps(content))
    first, second = read_records(tmp_path).values()
    assert first.fingerprint == second.fingerprint
    both = first.merged(second)
    assert both.name == f"mine · model.width=64, {new}={value}"
    assert both.options == {new: value, "model.width": 64}
    # Nothing stands behind the second dot: it was typed, and the file says so today.
    for record in (first, second):
        (row,) = (
            line
            for line in render([record], "results", {"mine": {}}).splitlines()
            if line.startswith("| 1. ")
        )
        assert row.startswith(f"| 1. {both.name} † |")


@pytest.mark.parametrize("old", ARMS)
def test_file_of_arms(old: str) -> None:
    assert old not in arms_names()
    assert parse_arms(old) == parse_arms(ARMS[old])


def test_a_configuration_keeps_all_else() -> None:
    (old, new), *_ = ((bare(old), bare(new)) for old, new in OPTIONS.items())
    text = (
        f"# {old}\n{old}: 1\nmodel: {{ 'x': 1e-3, \"{old}\" : &a muon}} # {old}\n"
        f"trainer:\n  {old}: 2\n  x: [{old}, *a]\r\nmodel.{old}: 3\n"
    )
    assert current_yaml(text) == (
        f"# {old}\n{old}: 1\nmodel: {{ 'x': 1e-3, {new} : &a muon}} # {old}\n"
        f"trainer:\n  {old}: 2\n  x: [{old}, *a]\r\nmodel.{new}: 3\n"
    )
    assert current_yaml("") == ""


def test_both_names_in_one_file_are_refused(tmp_path: Path) -> None:
    (old, new), *_ = OPTIONS.items()
    (tmp_path / "a.yaml").write_text(f"model:\n  {bare(new)}: adamw\n  {bare(old)}: muon\n")
    with pytest.raises(ConfigError, match=rf"a.yaml: {old} is {new} today: give one of the two"):
        resolve_in_arguments(["fit", "-c", str(tmp_path / "a.yaml")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("  no_option: 1\n", "unknown option model.no_option in a configuration"),
        ("  layers: many\n", "--model.layers: "),
    ],
)
def test_other_mistakes_beside_an_old_name_are_said_as_ever(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    said = []
    for name in ("optimiser", "optimizer"):
        path.write_text(f"model:\n  {name}: muon\n{text}")
        assert main(["fit", "-c", str(path)]) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1]
    assert said[0].startswith("train.py: ")
    assert message in said[0]
    assert said[0].count("\n") == 1
