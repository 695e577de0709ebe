"""The page of results is what its script makes of the records, and the script adds runs to them."""

import json
import shutil
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from reference.processes import REPOSITORY, module_of

from graphormer_sepnorm.runs.directory import Record, RunDirectory, Session

EXPERIMENTS = REPOSITORY / "docs" / "experiments"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return module_of(EXPERIMENTS / "make_results.py")


@pytest.fixture
def document(tmp_path: Path) -> Path:
    shutil.copyfile(EXPERIMENTS / "results.md", tmp_path / "results.md")
    (tmp_path / "records").mkdir()
    return tmp_path / "results.md"


def write_run(path: Path, seed: int, test: float, *words: str, finished: bool = True) -> None:
    path.mkdir(parents=True)
    run = RunDirectory(path)
    command = ["train.py", "fit", "-c", "configs/mine.yaml", "--model.width=64", *words]
    command += ["--data.root", "/home/me", "--seed_everything", str(seed), f"--output={path}"]
    told = {"started": f"2026-01-0{seed + 1}", "to_step": 1000, "end": "trained", "seconds": 600.0}
    told |= {"machine": {"processor": "A processor", "device": "cpu", "threads": 2}}
    told |= {"commit": "0123456789abcdef", "packages": {"torch": "2.13.0"}, "command": command}
    known = {"dataset": "zinc-subset", "dataset_fingerprint": "abc", "parameters": 489_481}
    known |= {"molecules": {"train": 1000, "validation": 10, "test": 10}, "seed": seed}
    known |= {"metric": "mae", "selected_on": "validation_mae", "sessions": [Session(**told)]}
    run.write_record(Record(**known))
    options = {"output": str(path), "model": {"width": 64, "seed": seed}, "words": [*words]}
    run.configuration_file.write_text(yaml.safe_dump(options))
    if finished:
        run.write_summary({"steps": 1000, "best_validation_mae": 0.3, "test_mae": test})


def test_the_document_is_that_of_the_records(script: ModuleType, document: Path) -> None:
    script.main([], EXPERIMENTS / "results", document)
    assert document.read_bytes() == (EXPERIMENTS / "results.md").read_bytes()


def test_runs_of_one_experiment_become_a_row(script: ModuleType, document: Path, tmp_path) -> None:
    records = tmp_path / "records"
    write_run(tmp_path / "runs" / "a", 0, 0.4)
    write_run(tmp_path / "runs" / "b", 1, 0.5)
    write_run(tmp_path / "other", 0, 0.2, "--model.norm", "bn+bn")
    script.main([str(tmp_path / "runs"), str(tmp_path / "other")], records, document)
    for _ in range(2):  # runs that are there already change nothing
        text = document.read_text(encoding="utf-8")
        assert "mine · model.width=64 | 0, 1 | 489,481 | 1,000 | 10 min |" in text
        assert "| A processor, 2 threads | 0.3000, 0.3000 | 0.4000, 0.5000 |" in text
        assert "mine · model.width=64, model.norm=bn+bn † |" in text
        assert "`python train.py fit -c mine --model.width 64 --seed_everything SEED`" in text
        assert "1,000 / 10 / 10 molecules" in text
        assert "/home/me" not in text + "".join(path.read_text() for path in records.iterdir())
        assert sorted(len(json.loads(p.read_text())["runs"]) for p in records.iterdir()) == [1, 2]
        script.main([str(tmp_path / "runs" / "b")], records, document)


def test_an_unfinished_run_is_refused(script: ModuleType, document: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "run", 0, 0.4, finished=False)
    with pytest.raises(SystemExit, match="is no finished run"):
        script.main([str(tmp_path / "run")], tmp_path / "records", document)
