"""Experiments and run directories that nobody has trained, for the tests of the results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from graphormer_sepnorm.runs.records import Experiment, SeedRun

DEFAULTS = {"trainer": {"max_steps": -1}, "model": {"norm": "bn+ln", "width": 80}}


def seed_run(seed: int = 0, **changes: Any) -> SeedRun:
    values: dict[str, Any] = {
        "seed": seed,
        "began": "2026-01-01T00:00:00+00:00",
        "finished": True,
        "steps": 1000,
        "planned_steps": 1000,
        "parameters": 489_481,
        "seconds": 600.0,
        "interruptions": 0,
        "device": "A GPU",
        "torch": "2.13.0",
        "commit": "0123456789abcdef",
        "validation": 0.3,
        "test": 0.4,
    }
    return SeedRun(**values | changes)


def experiment(*runs: SeedRun, **changes: Any) -> Experiment:
    values: dict[str, Any] = {
        "name": "mine",
        "dataset": "zinc-subset",
        "dataset_fingerprint": "abc",
        "split": None,
        "molecules": (10_000, 1_000, 1_000),
        "data_note": "",
        "metric": "mae",
        "unit": "",
        "selected_on": "validation_mae",
        "options": {"model.width": 64},
        "commands": ("python train.py fit -c mine.yaml --seed_everything SEED",),
        "runs": runs or (seed_run(),),
    }
    return Experiment(**values | changes)


def session(**changes: Any) -> dict[str, Any]:
    return {
        "started": "2026-01-01T00:00:00+00:00",
        "from_step": 0,
        "to_step": 1000,
        "seconds": 600.0,
        "end": "trained",
        "command": [
            "train.py",
            "fit",
            "-c",
            "configs/mine.yaml",
            "--model.width=64",
            "--data.root",
            "/home/me/data",
            "--model.norm",
            "sharenorm",
            "--seed_everything",
            "0",
            "--output=/home/me/runs/a",
        ],
        "commit": "0123456789",
        "packages": {"torch": "2.13.0"},
        "machine": {"processor": "CPU", "device": "cpu", "threads": 2, "processes": 1},
    } | changes


def write_run(
    directory: Path,
    *sessions: dict[str, Any],
    seed: int = 0,
    summary: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    **record: Any,
) -> Path:
    """Write a run directory; without `summary` an unfinished one."""
    directory.mkdir(parents=True)
    content = {
        "format_version": 1,
        "dataset": "zinc-subset",
        "dataset_fingerprint": "abc",
        "molecules": {"train": 100, "validation": 10, "test": 10},
        "split": None,
        "data_note": "",
        "metric": "mae",
        "unit": "",
        "selected_on": "validation_mae",
        "parameters": 489_481,
        "planned_steps": 1000,
        "seed": seed,
        "sessions": list(sessions or [session()]),
    }
    (directory / "run.json").write_text(json.dumps(content | record))
    options = {
        "seed_everything": seed,
        "output": str(directory),
        "trainer": {"max_steps": 1000, "accelerator": "cpu"},
        "model": {"norm": "sharenorm", "width": 64} | (model or {}),
        "data": {"root": str(directory.parent)},
    }
    (directory / "config.yaml").write_text(yaml.safe_dump(options))
    if summary is not None:
        (directory / "summary.json").write_text(json.dumps(summary))
    return directory


FINISHED = {"steps": 1000, "best_validation_mae": 0.31, "test_mae": 0.42, "parameters": 7}
