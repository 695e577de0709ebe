"""Tables of each format, and the columns found in them."""

import os
from pathlib import Path

import pytest
from rdkit import Chem
from table_files import RINGS, SPLIT, everything, failure, load, plain_rows, report_of, write_csv

from graphormer_sepnorm.datasets.user_table.report import report_text
from graphormer_sepnorm.errors import ConfigError

# Formats.


def test_sd_file(tmp_path: Path) -> None:
    """Molecules come from the records; a record's title is no label, though it is a number."""
    path = tmp_path / "a.sdf"
    with open(path, "w") as file, Chem.SDWriter(file) as writer:
        for n, (smiles, value) in enumerate(plain_rows()):
            molecule = Chem.AddHs(Chem.MolFromSmiles(smiles))
            molecule.SetProp("_Name", str(7 * n))
            molecule.SetProp("logP", str(value))
            writer.write(molecule)
    with open(path, "a") as file:
        file.write("bad\n\n\nno counts\nM  END\n>  <logP>\n1\n\n$$$$\n")
    splits = load(path, **SPLIT)
    assert splits.task.targets == ("logP",)
    canonical = {Chem.CanonSmiles(smiles): [value] for smiles, value in plain_rows()}
    assert dict(everything(splits)) == canonical
    for made in (splits, load(path, standardize=("neutralize",), **SPLIT)):
        for smiles, data in zip(made.smiles["train"], made.train, strict=True):
            atoms = Chem.MolFromSmiles(smiles).GetNumAtoms()  # hydrogens are implicit
            assert data.num_nodes == atoms
    (bad,) = report_of(splits).invalid
    assert (bad.row, bad.smiles, bad.kind) == (13, "", "unreadable structure")
    lines = path.read_text().splitlines()
    assert lines[bad.line - 1] == "bad"
    message = failure(path, on_invalid="error", **SPLIT)
    assert f"the first is row 13, line {bad.line}: " in message


def test_parquet_with_types(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    labels = [*[n % 2 == 0 for n in range(11)], None, True]
    pyarrow.parquet.write_table(pyarrow.table({"SMILES": [*RINGS, None], "active": labels}), path)
    splits = load(path, **SPLIT)
    assert dict(everything(splits)) == {s: [1 - n % 2] for n, s in enumerate(RINGS[:11])}
    missing, empty = report_of(splits).invalid
    assert (missing.row, missing.line, missing.reason) == (12, 0, "no label in active")
    assert (empty.row, empty.line, empty.reason) == (13, 0, "the SMILES is empty")


def test_column_names_in_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    words = ["<,train"] * 6 + [">,valid"] * 3 + ["=,test"] * 3
    rows = (f"{s},{v},{both}\n" for (s, v), both in zip(plain_rows(), words, strict=True))
    lines = f"smiles,L\xf6slichkeit,Gr\xf6\xdfe,F\xfcr\n{''.join(rows)}"
    path.write_bytes(lines.encode("latin-1"))
    splits = load(path, target_columns=("L\xf6slichkeit",))
    assert splits.task.targets == ("L\xf6slichkeit",)
    report = report_of(splits)
    assert report.to_plain()["unread"] == ("Gr\xf6\xdfe", "F\xfcr")
    text = report_text(report)
    assert "not read    Gr\xf6\xdfe, F\xfcr" in text
    assert "L\xf6slichkeit" in text
    assert "the columns are smiles, L\xf6slichkeit" in failure(path, target_columns=("y",))


# Finding the target column.


def test_all_columns_that_name_no_rows_can_be_targets(tmp_path: Path) -> None:
    gaps = ["" if n % 3 else 2 * v for n, (_, v) in enumerate(plain_rows())]
    rows = [(7 * n, s, f"x{n}", v, gaps[n], n + 1) for n, (s, v) in enumerate(plain_rows())]
    path = write_csv(tmp_path / "a.csv", rows, 'mol_id,smiles,name,"a, b",c,row')
    splits = load(path, target_columns=("all",), **SPLIT)
    assert splits.task.targets == ("a, b", "c")
    assert load(path, target_columns='"a, b"', units="m", **SPLIT).task.targets == ("a, b",)
    assert load(path, target_columns=("all",), units=("m", "s"), **SPLIT).task.units == ("m", "s")
    with pytest.raises(ConfigError, match="3 units for 2 target columns"):
        load(path, target_columns=("all",), units=("m", "s", "kg"), **SPLIT)
    # A column of this name is that column.
    named = write_csv(tmp_path / "b.csv", [row[1:4] for row in rows], "smiles,name,all")
    assert load(named, target_columns=("all",), **SPLIT).task.targets == ("all",)
    words = write_csv(tmp_path / "c.csv", [row[1:3] for row in rows], "smiles,name")
    said = failure(words, target_columns=("all",), **SPLIT)
    assert "no column is left for labels (name)" in said
    assert "(a, b, c)" in failure(path, **SPLIT)


def test_ids_are_no_targets(tmp_path: Path) -> None:
    for name in ("compound_id", "Unnamed: 0", ""):
        rows = [(7 * n % 5, smiles, value) for n, (smiles, value) in enumerate(plain_rows())]
        splits = load(write_csv(tmp_path / "a.csv", rows, f"{name},smiles,value"), **SPLIT)
        assert splits.task.targets == ("value",)
        assert dict(everything(splits)) == {smiles: [value] for smiles, value in plain_rows()}
        only = write_csv(tmp_path / "b.csv", [row[:2] for row in rows], f"{name},smiles")
        assert "no column is left for labels" in failure(only, **SPLIT)


def test_columns_that_cannot_be_told(tmp_path: Path) -> None:
    words = write_csv(tmp_path / "a.csv", [(s, "high") for s in RINGS])
    assert "value is 'high': not a number" in failure(words)
    path = write_csv(tmp_path / "b.csv", plain_rows())
    for option in ("weight_column", "smiles_column", "split_column", "id_column"):
        assert "no column 'other'" in failure(path, **{option: "other"})
    twice = failure(path, target_columns=("value",), weight_column="value")
    assert "column 'value' is named for two purposes" in twice
    rows = [(s, v, 1 + v / 9, v * v) for s, v in plain_rows()]
    message = failure(write_csv(tmp_path / "c.csv", rows, "smiles,y,w,z"), weight_column="w")
    assert "(y, z)" in message
    assert "--data.target_columns" in message


@pytest.mark.parametrize("options", [{"target_columns": ("all",)}, {"weight_column": "y"}])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, options: dict) -> None:
    rows = [(smiles, value, 1 + value / 3) for smiles, value in plain_rows()]
    path = write_csv(tmp_path / "a.csv", rows, "smiles,y,y")
    assert "2 columns are called 'y': rename" in failure(path, **options)


def test_files_of_smiles_and_pipes_are_no_tables_to_train_on(tmp_path: Path) -> None:
    path = tmp_path / "a.smi"
    path.write_text("CCO ethanol\nCC ethane\n")
    assert "has no labels to learn from: give a table" in failure(path)
    pipe = tmp_path / "a.csv"
    os.mkfifo(pipe)
    assert "is a pipe" in failure(pipe)
