"""Leaderboards: by the published split and metric, and by nothing else."""

import json
from pathlib import Path

import numpy as np
import pytest
from reference.tables import write_csv

from benchmarks import leaderboards
from benchmarks.leaderboards import main, published, result_rows, tasks_of, values_of
from graphormer_sepnorm.runs.directory import read_rows

CHAINS = [f"{'C' * length}{end}" for length in range(1, 14) for end in ("O", "N", "F")]


def write(path: Path, header: str, rows: list[tuple[object, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_csv(path, [header.split(","), *rows])


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Both boards with a small task each, in the form of the published files."""
    folder = tmp_path / "boards"
    rows = [
        (one, 1.0, len(one) + 0.1 * (n % 3), int(n % 8 == 0), "test" if n % 4 == 0 else "train", 0)
        for n, one in enumerate(CHAINS)
    ]
    header = "smiles,exp_mean [nM],y,cliff_mol,split,y [pEC50/pKi]"
    write(folder / "moleculeace" / "CHEMBL1_Ki.csv", header, rows)
    for name, part in (("train_val", CHAINS[:30]), ("test", CHAINS[30:])):
        of_part = [(n, one, len(one)) for n, one in enumerate(part)]
        write(folder / "tdc" / "caco2_wang" / f"{name}.csv", "Drug_ID,Drug,Y", of_part)
    of_models = [("CHEMBL1_Ki", 0.0, 9.0, "")]
    write(folder / "moleculeace_published.csv", "dataset,a,CM_CheMeleon,none", of_models)
    rows = [("caco2_wang", "MAE", 1, "MapLight", 0.0, 0.1), ("caco2_wang", "MAE", 2, "b", 99, 0.1)]
    write(folder / "tdc_published.csv", "benchmark,metric,rank,model,mean,std", rows)
    monkeypatch.setattr(leaderboards, "OPENINGS", tmp_path / "openings.csv")
    return folder


def test_tasks_have_their_published_metric(data: Path) -> None:
    (activity,) = tasks_of("moleculeace", data)
    assert (activity.metric, activity.test) == ("rmse", None)
    (permeability,) = tasks_of("tdc", data, ["caco2_wang"])
    assert (permeability.metric, permeability.target) == ("mae", "Y")
    with pytest.raises(SystemExit, match="ames"):
        tasks_of("tdc", data, ["ames"])


def test_training_alone_is_read_for_development(data: Path, tmp_path: Path, monkeypatch) -> None:
    for board, count in (("moleculeace", 29), ("tdc", 30)):
        (task,) = tasks_of(board, data)
        words = task.options(tmp_path / "tables", development=True)
        assert not any("test" in word for word in words[2:])
        rows = read_rows(Path(words[1]))
        assert len(rows) == count
        assert {row["part"] for row in rows} == {"train"}
    monkeypatch.setattr(leaderboards, "read_checkpoint", lambda _: {})  # of networks alone
    (tmp_path / "summary.json").write_text('{"seconds": 1, "network": {"test_mae": 0.25}}')
    for part in ("validation", "test"):
        (tmp_path / f"{part}_predictions.csv").write_text("label_Y,pred_Y\n1,2\n3,3\n")
    found = {"value": 0.5, "seconds": 1}
    assert values_of(task, tmp_path, development=True) == found
    found |= {"molecules": 2, "networks": 0.25}
    assert values_of(task, tmp_path, development=False) == found


def test_a_rank_counts_better_rows(data: Path) -> None:
    (task,) = tasks_of("tdc", data)
    runs = [{"value": value, "molecules": 9, "seconds": 1.0} for value in (1.0, 2.0)]
    (row,) = result_rows("tdc", data, [task], {task.name: runs})
    assert (row["value"], row["rank"], row["best"]) == (1.5, 2, "MapLight")
    assert row["deviation"] == pytest.approx(np.std([1, 2], ddof=1), abs=1e-4)
    assert published("moleculeace", data) == {"CHEMBL1_Ki": {"a": 0.0, "CM_CheMeleon": 9.0}}
    (row,) = result_rows("tdc", data, [task], {task.name: [{"value": 1.0, "seconds": 1.0}]})
    assert "rank" not in row


def test_finished_runs_are_gone_on_from(data: Path, tmp_path: Path, monkeypatch) -> None:
    made: list[int] = []
    values = {"value": 0.5, "molecules": 9.0, "seconds": 1.0}

    def train(task: object, seed: int, options: object) -> Path:
        made.append(seed)
        if len(made) == 3:
            raise SystemExit("interrupted")
        return tmp_path

    monkeypatch.setattr(leaderboards, "train", train)
    monkeypatch.setattr(leaderboards, "values_of", lambda *_, **__: values)
    words = ["tdc", str(data), "-o", str(tmp_path / "out")]
    with pytest.raises(SystemExit, match="interrupted"):
        main(words)
    main(words)
    assert sorted(made) == [1, 2, 3, 3, 4, 5]
    (row,) = read_rows(tmp_path / "out" / "results.csv")
    assert (row["value"], row["seeds"]) == ("0.5", "5")
    main([*words, "--development"])
    assert sorted(made) == [1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5]


@pytest.mark.slow
def test_a_board_is_run_once_and_what_opens_tests_is_recorded(data: Path, tmp_path, capsys) -> None:
    words = ["moleculeace", str(data), "-o", str(tmp_path / "out"), "--members", "kernel"]
    main([*words, "--baselines", "false"])
    out = capsys.readouterr().out
    (row,) = read_rows(tmp_path / "out" / "results.csv")
    tested = read_rows(tmp_path / "out" / "CHEMBL1_Ki" / "seed0" / "test_predictions.csv")
    assert [one["smiles"] for one in tested] == CHAINS[::4]
    errors = np.array([float(one["label_y"]) - float(one["pred_y"]) for one in tested])
    assert float(row["value"]) == pytest.approx((errors**2).mean() ** 0.5, abs=1e-4)
    assert float(row["cliffs"]) == pytest.approx((errors[::2] ** 2).mean() ** 0.5, abs=1e-4)
    assert row["rank"] == "2"
    assert "means of 1 tasks" in out
    before = (tmp_path / "out" / "CHEMBL1_Ki" / "seed0" / "summary.json").stat().st_mtime_ns
    main([*words, "--baselines", "false"])
    after = (tmp_path / "out" / "CHEMBL1_Ki" / "seed0" / "summary.json").stat().st_mtime_ns
    assert before == after
    (run,) = read_rows(tmp_path / "out" / "runs.csv")
    assert float(run["kernel ridge regression"]) == pytest.approx(float(row["value"]), abs=1e-3)
    main([*words[:2], "-o", str(tmp_path / "dev"), *words[4:], "--development"])
    assert len(read_rows(leaderboards.OPENINGS)) == 1
    record = json.loads((tmp_path / "dev" / "record.json").read_text())
    assert "opening" not in record
    assert str(tmp_path) not in record["command"]
