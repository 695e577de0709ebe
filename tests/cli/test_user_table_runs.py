"""Runs on a user's table: identifiers, and columns that hold the split."""

from pathlib import Path

import pytest
from tiny_run import fit, read_csv, sample_rows, summary, write_csv

from graphormer_sepnorm.cli.predict import main as predict

ROWS = [(smiles, n / 10) for n, (smiles, _) in enumerate(sample_rows(60))]
RANDOM = ("--data.split=random", "--trainer.max_steps=2")


def test_identifiers_go_through_into_the_files_of_a_run(tmp_path: Path) -> None:
    """The first column that names rows, wherever it stands; also of rows that are left out."""
    rows = [(*row, f"CPD-{n:03}", "x") for n, row in enumerate(ROWS)]
    rows.append(("C1CC", 1, "CPD-bad", "x"))
    table = write_csv(tmp_path / "t.csv", [("smiles", "y", "compound_id", "remark"), *rows])
    assert fit(tmp_path, table, *RANDOM, "--data.target_columns=y") == 0
    known = {smiles: name for smiles, _, name, _ in rows}
    for name in ("test_predictions.csv", "splits.csv"):
        found = read_csv(tmp_path / "run" / name)
        assert [row.get("compound_id") for row in found] == [known[row["smiles"]] for row in found]
    (bad,) = read_csv(tmp_path / "run" / "invalid_rows.csv")
    assert bad.get("compound_id") == "CPD-bad"


@pytest.mark.parametrize("given", [("train",), ("train", "valid")])
def test_a_column_may_leave_out_validation_and_test(tmp_path, capsys, given):
    rows = [(*row, given[n % len(given)]) for n, row in enumerate(ROWS)]
    table = write_csv(tmp_path / "t.csv", [("smiles", "y", "set"), *rows])
    assert fit(tmp_path, table, "--data.split=column", "--data.split_column=set") == 0
    out = capsys.readouterr().out
    for name, words in (("validation", "valid"), ("test", "test")):
        assert (f"no {name} split:" in out) == (words not in given)
    assert "test_mae" not in summary(tmp_path / "run")
    assert predict([str(tmp_path / "run"), "CCO"]) == 0
