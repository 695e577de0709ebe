"""Tables for predict.py in tests, and what is said about them."""

import csv
from pathlib import Path

import pytest
from rdkit import Chem
from tiny_run import write_csv

from graphormer_sepnorm.cli.predict import main
from graphormer_sepnorm.inference import predict_table
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.tables.writer import create_table

SMILES = ["CCO", "c1ccccc1", "CN", "xx", "", "CC(=O)N", "[Si]", "C#N", "c1ccncc1", "C1CC", "OCC"]

# In chunks of four rows: 13 chunks, the last of them with three.
MANY = [*SMILES, *("C" * (1 + n % 9) + "O" * (n % 2) for n in range(40))]


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8", errors="surrogateescape") as handle:
        return list(csv.reader(handle))


def table_of_many(format: str, folder: Path) -> Path:
    """A table with readable and unreadable molecules, many more than a chunk."""
    path = folder / f"in.{format}"
    if format == "sdf":
        blocks = [Chem.MolToMolBlock(mol) for mol in map(Chem.MolFromSmiles, MANY) if mol]
        path.write_text("".join(f"{block}$$$$\n" for block in (*blocks, "\n\n\nnonsense\n")))
    elif format == "smi":
        path.write_text("\n".join(MANY) + "\n")
    else:
        writer = create_table(path, ["smiles", "y"])
        writer.write([[text, str(len(text))] for text in MANY])
        writer.commit()
    return path


def table(folder: Path, smiles: list[str] | None = None) -> Path:
    rows = [[str(n), text] for n, text in enumerate(SMILES if smiles is None else smiles)]
    return write_csv(folder / "in.csv", [["id", "SMILES"], *rows])


def interrupted(words: list[str], after: int, work: str = "predict_molecules") -> None:
    """Run predict.py, whose predictor is interrupted in this by Ctrl-C after so many chunks."""
    predict, left = getattr(Predictor, work), [after]

    def interrupted(self: Predictor, molecules: list, *arguments: object) -> object:
        if molecules and left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= bool(molecules)  # of none, for the names of the columns, it is no chunk
        return predict(self, molecules, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Predictor, work, interrupted)
        patch.setattr(predict_table, "number_of_jobs", lambda *_: 1)  # this process counts
        assert main(words) == 130
