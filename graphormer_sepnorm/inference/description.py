"""What a checkpoint says about itself, for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphormer_sepnorm.confidence.confidence import Confidence
from graphormer_sepnorm.formatting import aligned, four_digits, listed
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.graphs.task import Kind, Task
from graphormer_sepnorm.inference.beside import LEVEL
from graphormer_sepnorm.inference.card import run_card, run_of
from graphormer_sepnorm.inference.checkpoint import (
    BLEND,
    CONFIDENCE,
    KEY,
    count_parameters_of,
)
from graphormer_sepnorm.model.config import EXTENSIONS, GraphormerConfig
from graphormer_sepnorm.process import resuming
from graphormer_sepnorm.runs.directory import CHECKPOINTS, RunDirectory


def describe(checkpoint: dict[str, Any], file: Path | None = None) -> str:
    """Return a text of aligned lines: what is predicted, by what, trained on what, how well.

    By the file there are its path and size, and the test of the run that it lies in.
    """
    facts = checkpoint[KEY]
    rows: list[tuple[str, str]] = []
    if file is not None:
        rows.append(("file", f"{file} ({file.stat().st_size / 1e6:.1f} MB)"))
    card = facts.get("card") or {}
    rows += [(name, str(value)) for name, value in card.items()]
    rows += _targets(facts)
    extra = ExtraInputs.of_facts(facts)
    rows += [("from", f"the molecule, {extra.in_words()}")] if len(extra) else []
    steps = facts.get("standardise")
    rows += [("standardised", f"first of all, by {listed(steps)}")] if steps else []
    rows += _model(checkpoint)
    rows += _blend(checkpoint.get(BLEND))
    rows += _confidence(checkpoint.get(CONFIDENCE), facts["task"]["kind"])
    rows += _training(checkpoint)
    if file is not None:
        rows += _so_far(file) + _run(facts, file)
    no_smiles = "not possible: evaluate it on its own data set with train.py test"
    rows.append(("from SMILES", f"by {facts['featuriser']}" if facts["featuriser"] else no_smiles))
    packages = facts.get("packages", {})
    rows.append(("made with", ", ".join(f"{name} {value}" for name, value in packages.items())))
    return aligned(rows)


def _targets(facts: dict[str, Any]) -> list[tuple[str, str]]:
    task = Task.from_plain(facts["task"])
    if len(task.targets) > 1 and not task.tells_targets_apart:
        return [("predicts", f"{len(task.targets):,} targets: {listed(task.targets, most=3)}")]
    summary = (facts.get("training_summary") or {}).get("targets") or [{}] * len(task.targets)
    rows = []
    for target, unit, labels in zip(task.targets, task.units, summary, strict=True):
        text = f"{target} [{unit}]" if unit else target
        if task.kind == "binary":
            text += f", probability of {task.class_1(target)}"
            if labels:
                text += f"; {labels['labels']:,} labels, {labels['mean']:.1%} of class 1"
        elif labels:
            text += (
                f"; {labels['labels']:,} labels from {labels['min']:.4g} to {labels['max']:.4g}, "
                f"mean {labels['mean']:.4g}, standard deviation {labels['std']:.4g}"
            )
        rows.append(("predicts", text))
    return rows


def _model(checkpoint: dict[str, Any]) -> list[tuple[str, str]]:
    facts = checkpoint[KEY]
    model, parameters = facts["model"], count_parameters_of(checkpoint)
    rows = [
        (
            "model",
            f"Graphormer, norm {model['norm']} ([CLS]+atoms), {model['layers']} layers, width "
            f"{model['width']}, {model['heads']} heads, {parameters:,} parameters",
        )
    ]
    beyond = [
        name if model[name] is True else f"{name} {model[name]}"
        for name in EXTENSIONS
        if model.get(name, neutral := getattr(GraphormerConfig, name)) != neutral
    ]
    if beyond:
        rows.append(("beyond it", ", ".join(beyond)))
    if others := checkpoint.get("members"):
        rows.append(("ensemble", f"{1 + len(others)} such networks; their mean is predicted"))
    return rows


def _blend(blend: dict[str, Any] | None) -> list[tuple[str, str]]:
    if blend is None:
        return []
    trees, columns = blend["trees"], blend["trees"]["columns"]
    weight = min(blend["weights"])
    of = f" (log-odds, times {blend['stacking']['slope']:.2f})" if "stacking" in blend else ""
    text = (
        f"{weight:g} of the network, {1 - weight:g} of gradient boosting{of}: "
        f"{len(trees['roots']):,} trees on {len(columns['environments']):,} Morgan environments "
        f"and {len(columns['descriptors']):,} descriptors of RDKit {columns['rdkit']}"
    )
    if own := columns.get("columns"):
        text += f", with {listed(own)} of a table"
    without = sum(not trees for trees in trees["trees"].tolist())
    if without:
        text += f"; {without:,} of {len(blend['weights']):,} targets by the network alone"
    rows = [("blend", text)]
    if blend.get("validation"):
        values = ", ".join(
            f"{name} {four_digits(value)}" for name, value in blend["validation"].items()
        )
        rows.append(("of the blend", f"validation {values}"))
    return rows


def _confidence(confidence: dict[str, Any] | None, kind: Kind) -> list[tuple[str, str]]:
    if confidence is None:
        return []
    known = Confidence.from_plain(confidence, kind)
    targets = [one for one in confidence["targets"] if one is not None]
    counts = [one["labels"] if "labels" in one else sum(one["counts"]) for one in targets]
    most = max(counts, default=0)
    if kind == "regression":
        text = f"intervals, by the errors on up to {most:,} unseen molecules"
        if 0 < known.highest_level < LEVEL:
            text += f": of at most {int(100 * known.highest_level)} %, so only with --interval"
    elif any(known.calibrated_by(target) != "none" for target in range(len(known.targets))):
        text = f"calibrated probabilities, by up to {most:,} labels of unseen molecules"
    else:
        text = (
            "probabilities as they come: no calibration was better on up to "
            f"{most:,} labels of unseen molecules"
        )
    rows = [("how sure", text)]
    sketch = confidence.get("neighbours")
    if known.domain is not None:
        rule = known.domain.rule
        rows.append(("domain", f"outside it: {rule}" if rule else "no border: not judged"))
    if sketch is not None:
        kept = (
            ["fingerprints"] + ["SMILES"] * ("smiles" in sketch) + ["labels"] * ("labels" in sketch)
        )
        rows.append(("it keeps", f"{listed(kept)} of {len(sketch['sizes']):,} training molecules"))
        if tokens := confidence.get("tokens"):
            most = max(len(cloud["points"]) for cloud in tokens["clouds"])
            rows.append(
                ("", f"[CLS] of {most:,}, in {tokens['clouds'][0]['axes'].shape[1]} numbers each")
            )
    return rows


def _training(checkpoint: dict[str, Any]) -> list[tuple[str, str]]:
    facts = checkpoint[KEY]
    text = f"{facts['dataset']} (fingerprint {facts['dataset_fingerprint'][:12]})"
    if "training_graphs" in facts:
        text += f", {facts['training_graphs']:,} molecules"
    atoms = (facts.get("training_summary") or {}).get("atoms")
    if atoms:
        text += f" of {atoms['min']} to {atoms['max']} atoms"
        text += ", each of one piece" if facts["training_summary"].get("connected") else ""
    rows = [("trained on", text)]
    if facts.get("from_pretrained"):
        rows.insert(0, ("begun with", facts["from_pretrained"]))
    if "global_step" in checkpoint and "epoch" in checkpoint:
        rows.append(
            ("training", f"epoch {checkpoint['epoch'] + 1}, step {checkpoint['global_step']:,}")
        )
    validation = {
        name.removeprefix("validation_"): value
        for name, value in facts.get("validation", {}).items()
        if name != "validation_loss"
    }
    if validation:
        values = ", ".join(f"{name} {four_digits(value)}" for name, value in validation.items())
        rows.append(("validation", values))
    return rows


def _so_far(file: Path) -> list[tuple[str, str]]:
    """What to know of the checkpoint of a run that has not ended."""
    if file.parent.name != CHECKPOINTS:
        return []
    run = RunDirectory(file.parent.parent)
    if run.finished or not run.record_file.is_file():
        return []
    return [("so far", f"the run has not ended; go on with: {resuming(run.path)}")]


def _run(facts: dict[str, Any], file: Path) -> list[tuple[str, str]]:
    """What the directory of its run knows beside the checkpoint."""
    run = run_of(file)
    if run is None:
        return []
    card, task = run_card(run), Task.from_plain(facts["task"])
    rows = [("split", str(card["split"]))] if card.get("split") else []
    values = [
        f"{metric.name} {four_digits(value)}"
        for metric in task.metrics
        if isinstance(value := card.get(f"test_{metric.name}"), float)
    ]
    rows += [("test", ", ".join(values))] if values else []
    for one in card.get("baselines") or ():
        value = one["test"].get(task.metric)
        if value is not None:
            others = "" if one.get("comparable", True) else ", of fewer targets than the model's"
            rows.append(
                ("beside it", f"{one['name']}: test {task.metric} {four_digits(value)}{others}")
            )
    return rows
