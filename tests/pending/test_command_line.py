"""What the two commands do not do yet: values as they were typed, and faults said early."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphormer_sepnorm.cli.train import main


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table that no training begins with: it has two columns of numbers, and none is named."""
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{'C' * (1 + n % 9)}O,{n},{n}\n" for n in range(40))
    (tmp_path / "t.csv").write_text(f"smiles,a,b\n{rows}")
    return "t.csv"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The line that refuses a training."""
    assert main(["fit", *words]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("train.py: ")
    return line


@pytest.mark.parametrize("value", ["# replicates", "#1", "&x", "null", "~", "Null"])
@pytest.mark.xfail(strict=True, reason="YAML takes a value on the command line for nothing")
def test_a_value_arrives_as_it_was_typed_or_is_refused(value, table, capsys):
    assert value in said(capsys, "--data.table", table, "--data.target_columns", value)


@pytest.mark.parametrize("option", ["--output", "--data.test_table", "--data.validation_table"])
@pytest.mark.xfail(strict=True, reason="an empty value is taken for a name, or for none")
def test_an_empty_value_is_refused(option, table, capsys):
    assert option in said(capsys, "--data.table", table, option, "")


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="each member is begun, and fails by itself")
def test_a_training_without_a_step_is_refused_before_its_members_begin(tmp_path):
    rows = "".join(f"{'C' * (1 + n % 9)}O,{n % 2}\n" for n in range(40))
    (tmp_path / "t.csv").write_text(f"smiles,active\n{rows}")
    words = ["-c", "table", "--data.table", str(tmp_path / "t.csv"), "--data.split", "random"]
    words += ["--data.root", str(tmp_path / "root"), "-o", str(tmp_path / "run")]
    assert main(["fit", *words, "--ensemble", "2", "--trainer.max_epochs", "0"]) == 2
    assert not list(tmp_path.rglob("*.log"))
