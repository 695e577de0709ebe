"""The scripts in examples/ run and say what they promise."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from reference.molecules import sample_rows
from reference.processes import REPOSITORY, run_python

from graphormer_sepnorm import Predictor

EXAMPLES = REPOSITORY / "examples"


def run(folder: Path, name: str, *arguments: str) -> list[str]:
    """Run an example in a folder of its own; return the lines that it prints."""
    done = run_python(EXAMPLES / name, *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_example_is_tried() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    names = {path.name for path in EXAMPLES.glob("*.py") if "__main__" in path.read_text()}
    assert names == set(re.findall(r'"(\w+\.py)"', text))


@pytest.mark.slow
def test_predict_and_train(tmp_path: Path) -> None:
    lines = [",".join(row) for row in sample_rows(300)]
    (tmp_path / "table.csv").write_text("\n".join(["smiles,penalized_logp", *lines]))
    said = run(tmp_path, "predict_and_train.py", "table.csv")
    bundled, trained = said.index("esol, a bundled model:"), len(said) - 3
    assert re.fullmatch(r"  CCO +logSolubility -?\d+\.\d\d", said[bundled + 1])
    assert re.match(r"  C1CC +.*unclosed ring", said[bundled + 3])  # why there is no value
    assert any(re.fullmatch(r"test_mae \d+\.\d\d", line) for line in said)
    assert re.fullmatch(r"  CCO +penalized_logp -?\d+\.\d\d", said[trained])
    assert (tmp_path / "model.ckpt").is_file()


@pytest.mark.slow
def test_notebook(tmp_path: Path) -> None:
    """Its code with fewer molecules, in a process where nothing has been imported."""
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(one["source"]) for one in cells if one["cell_type"] == "code")
    for whole, part in (("head(1000)", "head(100)"), ("=200", "=20"), ("epochs=10", "epochs=1")):
        assert whole in code
        code = code.replace(whole, part)
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "MPLBACKEND": "agg"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"intervals hold \d+% of the values", done.stdout)
    outputs = [one["outputs"] for one in cells if one["cell_type"] == "code"]
    assert all(each.get("name") != "stderr" for of in outputs for each in of)


@pytest.mark.slow
def test_matched_pairs(tmp_path: Path) -> None:
    series = ["Cc1ccccc1C(=O)O", "Clc1ccccc1C(=O)O", "OC(=O)c1ccccc1", "C1CC", "CCO"]
    rows = [f"{smiles},{number}" for number, smiles in enumerate(series)]
    (tmp_path / "table.csv").write_text("\n".join(["smiles,measured", *rows]))
    said = run(tmp_path, "matched_pairs.py", "esol", "table.csv", "measured")
    changes = sorted(line.split("  ")[0] for line in said)
    assert changes == ["C[*:1] to Cl[*:1]", "[H][*:1] to C[*:1]", "[H][*:1] to Cl[*:1]"]
    header, *pairs = [line.split(",") for line in (tmp_path / "pairs.csv").read_text().splitlines()]
    assert header[-2:] == ["predicted", "measured"]
    [methyl] = [row for row in pairs if row[3:5] == ["[H][*:1]", "C[*:1]"]]
    assert methyl[:3] == [series[2], series[0], "O=C(O)c1ccccc1[*:1]"]
    assert float(methyl[-1]) == 0 - 2
    one, two = Predictor.load("esol", "cpu").predict([series[2], series[0]]).values[:, 0]
    assert float(methyl[-2]) == pytest.approx(two - one, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("norms_in_torch.py", "", r"by [+-]\d+\.\d"),
        ("sepnorm_pyg.py", "--seeds 2 --epochs 1 --molecules 300", r"by [+-]\d+\.\d"),
        ("sepnorm_pyg.py", "--seeds 2 --epochs 1 --molecules 100 --layer gin", r"by [+-]\d+\.\d"),
        ("sepnorm_vit_mae.py", "--epochs 1 --seeds 2 --arms shared-ln bn+bn", r"(?m)^bn\+bn  "),
    ],
)
def test_sepnorm_elsewhere(name: str, arguments: str, said: str, tmp_path: Path) -> None:
    assert re.search(said, "\n".join(run(tmp_path, name, *arguments.split())))
