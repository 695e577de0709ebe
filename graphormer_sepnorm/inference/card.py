"""What a model is, for machines: its card as plain values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.files import read_json, sha256_of
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    count_parameters_of,
)
from graphormer_sepnorm.runs.directory import CHECKPOINTS, RunDirectory

# Of the summary of a run: all but where it lies and what stands elsewhere in the card.
_NOT_OF_THE_CARD = {"checkpoint", "dataset", "dataset_fingerprint", "norm", "parameters"}


def model_card(checkpoint: dict[str, Any], file: Path) -> dict[str, Any]:
    """Return what there is to know about a model, ready for JSON.

    In the directory of a run there is more to know: the split, test metrics, simple models beside
    it and how well intervals hold (under ``run``).

    Raises:
        CheckpointError: The file cannot be read again.
    """
    facts = checkpoint[KEY]
    extra = ExtraInputs.of_facts(facts)
    about: dict[str, Any] = {
        "file": _file(file),
        "about": facts.get("card") or {},
        "predicts": _targets(facts),
        "reads": {
            "featuriser": facts["featuriser"],
            "standardised": list(facts.get("standardise") or ()),
            "descriptors": list(extra.descriptors),
            "columns": list(extra.columns),
        },
        "model": {
            "networks": 1 + len(checkpoint.get("members") or ()),
            "parameters": count_parameters_of(checkpoint),
            "pretrained": facts.get("from_pretrained") or None,
            **facts["model"],
        },
        "blend": _blend(checkpoint.get(BLEND)),
        "confidence": _confidence(checkpoint.get(CONFIDENCE)),
        "trained_on": {
            "dataset": facts["dataset"],
            "fingerprint": facts["dataset_fingerprint"],
            "molecules": facts.get("training_graphs"),
            "atoms": (facts.get("training_summary") or {}).get("atoms"),
        },
        "validation": facts.get("validation", {}),
        "packages": facts.get("packages", {}),
    }
    run = run_of(file)
    return about | ({} if run is None else {"run": run_card(run)})


def run_of(file: Path) -> RunDirectory | None:
    """Return the finished run that a checkpoint lies in; None if it lies in none."""
    if file.parent.name != CHECKPOINTS:
        return None
    run = RunDirectory(file.parent.parent)
    return run if run.finished and run.tested == file else None


def _file(file: Path) -> dict[str, Any]:
    try:
        return {"name": file.name, "bytes": file.stat().st_size, "sha256": sha256_of(file)}
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read ({error.strerror})") from error


def _targets(facts: dict[str, Any]) -> list[dict[str, Any]]:
    task = Task.from_plain(facts["task"])
    summary = (facts.get("training_summary") or {}).get("targets") or [{}] * len(task.targets)
    ones = dict(zip(task.targets, task.ones, strict=False))
    return [
        {"target": target, "unit": unit, "kind": task.kind}
        | ({"class_1": ones[target]} if ones.get(target) else {})
        | {"training_labels": labels or None}
        for target, unit, labels in zip(task.targets, task.units, summary, strict=True)
    ]


def _blend(blend: dict[str, Any] | None) -> dict[str, Any] | None:
    if blend is None:
        return None
    return {
        "network_weights": [float(weight) for weight in blend["weights"]],
        **({"stacking": _stacking(blend["stacking"])} if "stacking" in blend else {}),
        "trees": len(blend["trees"]["roots"]),
        "validation": blend.get("validation") or {},
    }


def _stacking(stacking: dict[str, Any]) -> dict[str, Any]:
    constants = [float(constant) for constant in stacking["constants"]]
    return {"slope": float(stacking["slope"]), "constants": constants}


def _confidence(confidence: dict[str, Any] | None) -> dict[str, Any] | None:
    if confidence is None:
        return None
    sketch, tokens = confidence.get("neighbours"), confidence.get("tokens")
    return {
        "labels": [
            None if one is None else int(one["labels"] if "labels" in one else sum(one["counts"]))
            for one in confidence["targets"]
        ],
        "domain": confidence.get("domain"),
        "keeps": {}
        if sketch is None
        else {
            "molecules": len(sketch["sizes"]),
            "smiles": "smiles" in sketch,
            "labels": "labels" in sketch,
            "graph_tokens": max(len(one["points"]) for one in tokens["clouds"]) if tokens else 0,
        },
    }


def run_card(run: RunDirectory) -> dict[str, Any]:
    """Return what a finished run knows of its model beside the checkpoint."""
    report = read_json(run.data_report_file) or {}
    summary = run.summary() or {}
    return {
        "split": report.get("split"),
        "molecules": report.get("splits"),
        **{name: value for name, value in summary.items() if name not in _NOT_OF_THE_CARD},
        "confidence": read_json(run.confidence_file),
    }
