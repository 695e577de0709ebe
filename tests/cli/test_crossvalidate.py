"""The command train.py crossvalidate: its folds, what it leaves, and what it refuses."""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_run import on_table, read_csv, refused, sample_table, summary

from graphormer_sepnorm.cli.train import main
from graphormer_sepnorm.config import save_config
from graphormer_sepnorm.runs import scheduler
from graphormer_sepnorm.runs.plan import RunSpec

ROWS = 60


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = sample_table(tmp_path_factory.mktemp("crossvalidate") / "mine.csv", ROWS)
    with path.open("a") as file:
        file.write("not a molecule,1\n")
    return path


def options(table: Path) -> list[str]:
    return [*on_table(table), "--trainer.max_steps=1", "--data.units=[furlong]"]


def crossvalidate(directory: Path, *words: str) -> int:
    return main(["crossvalidate", *words, "-o", str(directory), "--jobs", "1"])


@pytest.fixture(scope="module")
def trained() -> Iterator[list[str]]:
    """Names of the runs that were trained, in this process instead of one each."""
    names: list[str] = []

    def train(specs: Sequence[RunSpec], **_: Any) -> bool:
        for spec in specs:
            if not spec.finished:
                names.append(spec.name)
                spec.config_file.parent.mkdir(parents=True, exist_ok=True)
                own = spec.config.with_options({"output": str(spec.directory)})
                save_config(own, spec.config_file)
                assert main(["fit", "-c", str(spec.config_file)]) == 0
        return True

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "train", train)
        yield names


@pytest.fixture(scope="module")
def whole(table: Path, trained: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-validation that has ended."""
    directory = tmp_path_factory.mktemp("whole") / "out"
    assert crossvalidate(directory, *options(table), "--folds", "3", "--data.split=random") == 0
    return directory


def test_each_fold_is_a_run_and_every_row_is_predicted_once(whole: Path) -> None:
    rows = read_csv(whole / "out_of_fold.csv")
    target = "penalized_logp"
    own_columns = ["row", "smiles", *(f"{of}_{target}" for of in ("label", "pred", "low", "high"))]
    assert list(rows[0]) == [*own_columns, "repeat", "fold"]
    assert (whole / "out_of_fold.png").read_bytes().startswith(b"\x89PNG")
    assert [int(row["row"]) for row in rows] == list(range(1, ROWS + 1))
    for fold in range(3):
        run = whole / "repeat0" / f"fold{fold}"
        own = read_csv(run / "test_predictions.csv")
        assert [row for row in rows if row["fold"] == str(fold)] == [
            {name: row[name] for name in own_columns} | {"repeat": "0", "fold": str(fold)}
            for row in own
        ]
        splits = Counter(row["split"] for row in read_csv(run / "splits.csv"))
        assert splits == {"train": 36, "validation": 4, "test": 20}

    folds = read_csv(whole / "folds.csv")
    assert [(row["repeat"], row["fold"]) for row in folds] == [("0", "0"), ("0", "1"), ("0", "2")]
    assert {row["train_molecules"] for row in folds} == {"36"}
    for row in folds:
        found = summary(whole / "repeat0" / f"fold{row['fold']}")
        for name in ("mae", "rmse", "r2", "spearman"):
            assert float(row[f"test_{name}"]) == found[f"test_{name}"]

    stored = summary(whole)
    (network,) = stored["networks"]
    errors = [float(row["test_mae"]) for row in folds]
    assert network["metrics"]["mae"] == pytest.approx(
        {"mean": np.mean(errors), "sd": np.std(errors, ddof=1), "folds": 3}
    )
    labels, predictions = (
        np.array([float(row[f"{of}_{target}"]) for row in rows]) for of in ("label", "pred")
    )
    assert network["out_of_fold"]["mae"] == pytest.approx(np.abs(labels - predictions).mean())
    assert "inside_95" not in network["uncertainty"]  # four molecules cannot tell
    assert stored["task"]["units"] == ["furlong"]
    assert stored["folds_finished"] == 3
    assert stored["baselines"] == stored["differences"] == []


def test_a_checkpoint_knows_its_fold(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole / "repeat0" / "fold2"
    assert main(["test", str(run)]) == 0
    lines = (line.split() for line in capsys.readouterr().out.splitlines() if "test_" in line[:5])
    assert float(dict(lines)["test_mae"]) == pytest.approx(summary(run)["test_mae"], rel=5e-4)


def test_only_what_is_missing_is_trained(whole: Path, trained: list[str], tmp_path, capsys) -> None:
    copied = Path(shutil.copytree(whole, tmp_path / "out"))
    trained.clear()
    before = {name: (copied / name).read_text() for name in ("folds.csv", "out_of_fold.csv")}
    shutil.rmtree(copied / "repeat0" / "fold1")
    (copied / "folds.csv").unlink()
    (copied / "repeat0" / "fold0" / "run.json").unlink()  # an ensemble has none, its members have
    assert crossvalidate(copied) == 0
    assert trained == ["repeat 0 fold 1"]
    # The same seed, the same fold: the same numbers.
    assert {name: (copied / name).read_text() for name in before} == before
    out = capsys.readouterr().out
    assert "mine: 3 folds (random), 1 repeat" in out
    assert "MAE (furlong)" in out
    assert out.splitlines()[-1] == f'try      python predict.py {copied}/repeat0/fold0 "CCO"'


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[RunSpec]:
    """What would have been trained."""
    specs: list[RunSpec] = []

    def train(asked: Sequence[RunSpec], **_: Any) -> bool:
        specs[:] = asked
        return False

    monkeypatch.setattr(scheduler, "train", train)
    return specs


def test_repeats_and_arms_are_planned(table: Path, tmp_path: Path, planned: list[RunSpec]) -> None:
    words = ["--folds=2", "--arms=sharenorm,bn+bn", "--seed_everything=3", "--data.split_seed=7"]
    assert crossvalidate(tmp_path, *options(table), *words) == 130
    assert len(planned) == 4
    assert crossvalidate(tmp_path, "--repeats", "2", "--arms", "sepnorm") == 130
    assert len(planned) == 12
    last = planned[-1]
    assert (last.arm, last.repeat, last.fold, last.seed) == ("sepnorm", 1, 1, 4)
    assert last.config.data.split_seed == 8
    assert last.directory == tmp_path / "sepnorm" / "repeat1" / "fold1"


def test_arms_have_the_same_folds(table: Path, trained: list[str], tmp_path: Path, capsys) -> None:
    trained.clear()
    words = ["--folds", "2", "--arms", "sharenorm,bn+bn"]
    assert crossvalidate(tmp_path / "out", *options(table), *words) == 0
    assert trained == [f"{arm} repeat 0 fold {n}" for n in (0, 1) for arm in ("sharenorm", "bn+bn")]
    assert "bn+bn against sharenorm" in capsys.readouterr().out
    rows = read_csv(tmp_path / "out" / "out_of_fold.csv")
    assert [row["arm"] for row in rows] == ["bn+bn"] * ROWS + ["sharenorm"] * ROWS
    folds = [(row["row"], row["fold"]) for row in rows]
    assert folds[:ROWS] == folds[ROWS:]
    runs = [tmp_path / "out" / arm / "repeat0" / "fold1" for arm in ("sharenorm", "bn+bn")]
    assert [summary(run)["norm"] for run in runs] == ["shared-ln", "bn+bn"]


def test_a_directory_goes_on_as_it_was_begun(table, tmp_path, planned, capsys):
    out, same = tmp_path / "out", [*options(table), "--data.split=random"]
    assert crossvalidate(out, *same, "--folds=3") == 130
    before = (out / "crossvalidation.yaml").read_text()
    assert crossvalidate(out, *same) == 130
    # As if the file itself had been changed.
    (tmp_path / "new").mkdir()
    other = sample_table(tmp_path / "new" / "mine.csv", ROWS - 1)
    for words, named in (
        (["--folds", "4"], "--folds is 4 here and 3"),
        (["--arms", "sepnorm,sharenorm"], "--arms"),
        ([*same, "--seed_everything", "5"], "--seed_everything is 5 here and 0"),
        ([*same, "--data.split_seed", "5"], "--data.split_seed is 5 here and 0"),
        (["--data.table", other], "other data"),
    ):
        assert named in refused(capsys, main, "crossvalidate", "-o", out, *words)
    assert (out / "crossvalidation.yaml").read_text() == before


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], "-o/--output"),
        (["-o", "x", "--folds", "1"], "--folds is 1"),
        (["-o", "x", "--repeats", "0"], "--repeats is 0"),
        (["-o", "x", "--data.folds", "4"], "--data.folds"),
        (["-o", "x", "--fold", "4"], "--fold"),
        (["-o", "x", "-c", "quickstart"], "--data.table"),
        (["-o", "x", "TABLE", "--folds", "99"], "99 folds"),
        (["-o", "x", "TABLE", "--data.split_column=a"], "--data.split"),
        (["-o", "x", "TABLE", "--arms", "arms.yaml"], "--data.split_seed"),
    ],
)
@pytest.mark.usefixtures("nothing_starts")
def test_mistakes(words: list[str], named: str, table: Path, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "arms.yaml").write_text("a: {data.split_seed: 1}\nb: {model.norm: sepnorm}\n")
    given = [one for word in words for one in (options(table) if word == "TABLE" else [word])]
    assert named in refused(capsys, main, "crossvalidate", *given)
    assert not (tmp_path / "x").exists()
