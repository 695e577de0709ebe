"""Files as chemists have them, on the command lines: Excel, InChI, several columns of SMILES."""

import csv
from pathlib import Path

import pytest
from reference.workbooks import workbook
from tiny_run import sample_rows, write_csv

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.user_table.report import DataReport

ETHANOL = "InChI=1S/C2H6O/c1-2-3/h3H,2H2,1H3"


def molecules(count: int = 40) -> list[str]:
    return [smiles for smiles, _ in sample_rows(count)]


def predicted(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, list[dict], str]:
    """Predict, and return the status, the rows and what was said."""
    status = main(["esol", *map(str, words)])
    said = capsys.readouterr()
    return status, list(csv.DictReader(said.out.splitlines())), said.err


def report_of(table: Path, **options: object) -> DataReport:
    more = {"split": "random", "target_columns": ["y"], **options}
    module = MoleculeDataModule(dataset="table", table=str(table), **more)
    report = module.splits.report
    assert isinstance(report, DataReport)
    return report


def test_the_sheet_and_the_row_of_the_header_can_be_named(tmp_path, capsys):
    data = [["Assay"], [], ["id", "smiles", "y"], *([n, s, n] for n, s in enumerate(molecules()))]
    path = workbook(tmp_path / "t.xlsx", About=[["read me"]], Data=data)
    assert report_of(path, sheet="2", header_row=3).to_plain()["valid"] == 40
    status, rows, _ = predicted(capsys, "-i", path, "--sheet", "2", "--header_row", "3")
    assert [row["id"] for row in rows] == [str(n) for n in range(40)]
    assert all(row["pred_logSolubility"] for row in rows)
    assert status == 0


def test_inchi_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inchi = [ETHANOL, "InChI=1S/CH4/h1H4", "InChI=1S/wrong", ""]
    path = write_csv(tmp_path / "t.csv", [["InChIKey", "InChI"], *(["K", one] for one in inchi)])
    status, rows, _ = predicted(capsys, "-i", path, "--jobs", "1")
    assert status == 0
    ethanol = predicted(capsys, "CCO")[1][0]
    assert rows[0]["pred_logSolubility"] == ethanol["pred_logSolubility"]
    assert [bool(row["error"]) for row in rows] == [False, False, True, True]
    assert "no such InChI" in rows[2]["error"]
    from rdkit import Chem

    written = [(Chem.MolToInchi(Chem.MolFromSmiles(s)), n) for n, s in enumerate(molecules())]
    table = write_csv(tmp_path / "u.csv", [["inchi", "y"], *written])
    report = report_of(table)
    assert report.to_plain()["valid"] == 40
    smiles = {row.smiles for part in report.splits.values() for row in part}
    assert smiles == {Chem.CanonSmiles(Chem.MolToSmiles(Chem.MolFromInchi(s))) for s, _ in written}


def test_an_extension_that_cannot_be_read_is_left_out_with_a_warning(capsys) -> None:
    status, rows, _ = predicted(capsys, "CCO", "CCO |bad|", "CCO |m:1:9|", "C(( |bad|")
    assert status == 0
    assert len({row["pred_logSolubility"] for row in rows[:3]}) == 1
    assert rows[1]["warning"] == "the extension |bad| cannot be read and is left out"
    assert rows[1]["in_domain"] == rows[0]["in_domain"]
    assert "'C((' is not a valid molecule" in rows[3]["error"]


def test_predictions_have_the_decimal_comma_of_the_table(tmp_path: Path, capsys) -> None:
    path = tmp_path / "t.csv"
    path.write_text("smiles;y\nCCO;-0,5\nCC;1\n")
    assert main(["esol", "-i", str(path), "--jobs", "1", "--quiet"]) == 0
    header, first, _ = capsys.readouterr().out.splitlines()
    assert header.startswith("smiles;y;pred_logSolubility;low_")
    smiles, y, *numbers = first.split(";")[:5]
    assert (smiles, y) == ("CCO", "-0,5")
    assert all("," in number and "." not in number and '"' not in number for number in numbers)
