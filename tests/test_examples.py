"""The scripts in examples/ run and say what they promise."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from reference.processes import REPOSITORY, run_python

from graphormer_sepnorm import Predictor
from graphormer_sepnorm.resources import sample_path

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
def test_matched_pairs(tmp_path: Path) -> None:
    series = ["Cc1ccccc1C(=O)O", "Clc1ccccc1C(=O)O", "OC(=O)c1ccccc1", "C1CC", "CCO"]
    rows = [f"{smiles},{number}" for number, smiles in enumerate(series)]
    (tmp_path / "table.csv").write_text("\n".join(["smiles,measured", *rows]))
    said = run(tmp_path, "matched_pairs.py", "esol", "table.csv", "measured")
    assert sorted(line.split("  ")[0] for line in said) == [
        "C[*:1] to Cl[*:1]",
        "[H][*:1] to C[*:1]",
        "[H][*:1] to Cl[*:1]",
    ]
    header, *pairs = [line.split(",") for line in (tmp_path / "pairs.csv").read_text().splitlines()]
    assert header[-2:] == ["predicted", "measured"]
    [methyl] = [row for row in pairs if row[3:5] == ["[H][*:1]", "C[*:1]"]]
    assert methyl[:3] == [series[2], series[0], "O=C(O)c1ccccc1[*:1]"]
    assert float(methyl[-1]) == 0 - 2
    one, two = Predictor.load("esol", "cpu").predict([series[2], series[0]]).values[:, 0]
    assert float(methyl[-2]) == pytest.approx(two - one, rel=1e-3)


@pytest.mark.slow
def test_norms_in_torch(tmp_path: Path) -> None:
    said = run(tmp_path, "norms_in_torch.py")
    errors = {line.split()[0]: [float(value) for value in line.split()[1:]] for line in said[:2]}
    assert errors.keys() == {"LayerNorm", "SepNorm"}
    differences = [b - a for a, b in zip(*errors.values(), strict=True)]
    mean = float(re.search(r"by ([+-]\d\.\d+)", said[2])[1])  # type: ignore[index]
    assert mean == pytest.approx(sum(differences) / len(differences), abs=2e-3)
    assert all(0 < value < 2 for values in errors.values() for value in values)


# The two experiments, as small as they can be: a script and its options.
EXPERIMENTS = {
    "sepnorm_vit_mae.py": ("--epochs", "1"),
    "sepnorm_smiles_bert.py": ("--steps", "2", "--simcse_steps", "1"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_with_the_six_arms(name: str, tmp_path: Path) -> None:
    """By six_arms.py: the first seed is run, broken off and gone on with; then there are two."""
    options = (*EXPERIMENTS[name], "--out", "out", "--arms")
    first = run(tmp_path, name, *options, "shared-ln", "--seeds", "1")
    assert re.match(r"1 of 1  shared-ln  seed 0  \w+ ", first[0])
    said = run(tmp_path, name, *options, "shared-ln,bn+bn", "--seeds", "2")
    assert [line.split()[3] for line in said[:3]] == ["bn+bn", "shared-ln", "bn+bn"]
    rows = (tmp_path / "out" / "runs.csv").read_text().splitlines()[1:]
    assert [row.split(",")[:2] for row in rows] == [
        [arm, seed] for seed in "01" for arm in ("shared-ln", "bn+bn")
    ]
    report = (tmp_path / "out" / "report.md").read_text()
    assert report.splitlines() == said[3:]
    metric = said[0].split()[6]
    values = [float(row.split(",")[2]) for row in rows]
    change = (values[1] - values[0] + values[3] - values[2]) / 2
    table = next(line for line in said if line.startswith("| bn+bn |"))
    shown = table.split("|")[3].strip().replace("\N{MINUS SIGN}", "-")
    assert f"| {metric} | mean ± sd | change" in report
    assert float(shown) == pytest.approx(change, abs=1e-4)
    assert (tmp_path / "out" / "figure.png").read_bytes().startswith(b"\x89PNG")
    # Runs with other settings are not mixed in.
    other = run_python(
        EXAMPLES / name, *options, "shared-ln", EXPERIMENTS[name][0], "9", cwd=tmp_path
    )
    assert other.returncode == 2
    assert "take another --out" in other.stderr


@pytest.mark.parametrize(("folder", "metric"), [("vit_mae", "accuracy"), ("smiles_bert", "logp")])
def test_tables_of_the_page_are_those_of_the_runs(
    folder: str, metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """elsewhere.md shows the report of each experiment, and that what runs.csv gives."""
    monkeypatch.syspath_prepend(EXAMPLES)
    import six_arms

    docs = REPOSITORY / "docs" / "experiments"
    kept = (docs / "elsewhere" / folder / "report.md").read_text(encoding="utf-8").splitlines()
    runs = six_arms.read(docs / "elsewhere" / folder / "runs.csv")
    made = six_arms.report(runs, six_arms.ARMS, {metric: "higher"}).splitlines()
    page = (docs / "elsewhere.md").read_text(encoding="utf-8").splitlines()
    for line in made:
        assert line in kept
        assert line in page
