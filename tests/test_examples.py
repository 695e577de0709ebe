"""The scripts in examples/ run and say what they promise."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from reference.processes import REPOSITORY, run_python

from graphormer_sepnorm.resources import sample_path

EXAMPLES = REPOSITORY / "examples"


def run(folder: Path, name: str, *arguments: str) -> list[str]:
    """Run an example in a folder of its own; return the lines that it prints."""
    done = run_python(EXAMPLES / name, *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_example_is_tried() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    names = {path.name for path in EXAMPLES.glob("*.py")}
    assert names == set(re.findall(r'"(\w+\.py)"', text))


@pytest.mark.slow
def test_predict_and_train(tmp_path: Path) -> None:
    lines = gzip.decompress(sample_path().read_bytes()).decode().splitlines()[:301]
    (tmp_path / "table.csv").write_text("\n".join(lines))
    said = run(tmp_path, "predict_and_train.py", "table.csv")
    bundled, trained = said.index("esol, a bundled model:"), len(said) - 3
    assert re.fullmatch(r"  CCO +logSolubility -?\d+\.\d\d", said[bundled + 1])
    assert re.match(r"  C1CC +.*unclosed ring", said[bundled + 3])  # why there is no value
    assert any(re.fullmatch(r"test_mae \d+\.\d\d", line) for line in said)
    assert re.fullmatch(r"  CCO +penalised_logp -?\d+\.\d\d", said[trained])
    assert (tmp_path / "model.ckpt").is_file()


@pytest.mark.slow
def test_norms_in_torch(tmp_path: Path) -> None:
    said = run(tmp_path, "norms_in_torch.py")
    errors = {line.split()[0]: [float(value) for value in line.split()[1:]] for line in said[:2]}
    assert errors.keys() == {"LayerNorm", "SepNorm"}
    differences = [b - a for a, b in zip(*errors.values(), strict=True)]
    mean = float(re.search(r"by ([+-]\d\.\d+)", said[2])[1])  # type: ignore[index]
    assert mean == pytest.approx(sum(differences) / len(differences), abs=2e-3)
    assert all(0 < value < 2 for values in errors.values() for value in values)
