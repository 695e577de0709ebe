"""The facts of a model, as lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphormer_sepnorm.baselines.blend import Blend
from graphormer_sepnorm.files import read_json
from graphormer_sepnorm.formatting import aligned, four_digits, listed
from graphormer_sepnorm.graphs.extra_inputs import columns_of
from graphormer_sepnorm.graphs.task import Kind, Task
from graphormer_sepnorm.inference.checkpoint import BLEND, CONFIDENCE, KEY, model_weights
from graphormer_sepnorm.model.config import EXTENSIONS, GraphormerConfig
from graphormer_sepnorm.runs.directory import CHECKPOINTS, RunDirectory
from graphormer_sepnorm.uncertainty.uncertainty import Uncertainty

Facts = Iterator[tuple[str, str]]


def describe(checkpoint: dict[str, Any], file: Path | None = None) -> str:
    """Return a text of aligned lines: what is predicted, by what, trained on what, how well.

    The file adds its path and size, and the test of the run that it lies in.
    """
    return aligned(_facts(checkpoint, file))


def _facts(checkpoint: dict[str, Any], file: Path | None) -> Facts:
    facts = checkpoint[KEY]
    if file is not None:
        yield "file", f"{file} ({file.stat().st_size / 1e6:.1f} MB)"
    for name, value in (facts.get("card") or {}).items():
        yield name, str(value)
    yield from _targets(facts)
    extra, steps = columns_of(facts), facts.get("standardize")
    if extra:
        yield "from", f"the molecule, {listed(extra)}"
    if steps:
        yield "standardized", f"first of all, by {listed(steps)}"
    yield from _networks(checkpoint)
    if BLEND in checkpoint:
        yield from _blend(checkpoint[BLEND])
    if CONFIDENCE in checkpoint:
        yield from _uncertainty(checkpoint[CONFIDENCE], facts["task"]["kind"])
    yield from _training(checkpoint)
    if file is not None and file.parent.name == CHECKPOINTS:
        yield from _run(facts, file)
    yield "featurizer", facts["featurizer"] or "none: it takes graphs, not SMILES"
    yield "made with", ", ".join(map(" ".join, facts.get("packages", {}).items()))


def _targets(facts: dict[str, Any]) -> Facts:
    task = Task.from_plain(facts["task"])
    if len(task.targets) > 1 and not task.tells_targets_apart:
        yield "predicts", f"{len(task.targets):,} targets: {listed(task.targets, most=3)}"
        return
    summary = (facts.get("training_summary") or {}).get("targets") or [{}] * len(task.targets)
    for target, unit, labels in zip(task.targets, task.units, summary, strict=True):
        text = f"{target} [{unit}]" if unit else target
        if task.kind == "binary":
            word = dict(zip(task.targets, task.ones, strict=False)).get(target)
            text += ", probability of " + (f"{word} (class 1)" if word else "class 1")
        if labels:
            text += f"; {labels['labels']:,} labels from {labels['min']:.4g} to "
            text += f"{labels['max']:.4g}, mean {labels['mean']:.4g}"
        if target in task.logarithmic:
            text += "; learned as logarithm"
        yield "predicts", text


def _networks(checkpoint: dict[str, Any]) -> Facts:
    if checkpoint[KEY].get("without_networks"):
        yield "model", "trees and kernel alone, without a network"
        return
    model = checkpoint[KEY]["model"]
    # BatchNorm's statistics and scalings are stored with the weights and are not parameters.
    parameters = sum(
        value.numel()
        for name, value in model_weights(checkpoint).items()
        if not name.rpartition(".")[2].startswith(("running_", "num_batches", "training_"))
    )
    text = f"Graphormer, norm {model['norm']} ([CLS]+atoms), {model['layers']} layers, width "
    text += f"{model['width']}, {model['heads']} heads, {parameters:,} parameters"
    yield "model", text
    beyond = [
        name if model[name] is True else f"{name} {model[name]}"
        for name in EXTENSIONS
        if model.get(name, neutral := getattr(GraphormerConfig, name)) != neutral
    ]
    if beyond:
        yield "extensions", ", ".join(beyond)
    if others := checkpoint.get("members"):
        yield "ensemble", f"{1 + len(others)} such networks; their mean is predicted"


def _blend(plain: dict[str, Any]) -> Facts:
    blend = Blend.from_plain(plain)
    text = f"{blend.shares('the network')}: {len(blend.trees.roots):,} trees"
    if blend.kernel is not None:
        text += f", a kernel with {len(blend.kernel.alpha):,} molecules"
    if own := blend.trees.columns.columns:
        text += f", with {listed(own)} of a table"
    yield "blend", text
    yield from _metrics("of the blend", blend.validation)


def _metrics(name: str, values: dict[str, Any]) -> Facts:
    """Yield metrics, in the order that they have; nothing where there are none."""
    shown = [
        f"{metric.removeprefix('validation_')} {four_digits(value)}"
        for metric, value in values.items()
        if metric != "validation_loss" and type(value) is float
    ]
    if shown:
        yield name, ", ".join(shown)


def _uncertainty(plain: dict[str, Any], kind: Kind) -> Facts:
    known = Uncertainty.from_plain(plain, kind)
    most = max((target.labels for target in known.targets if target is not None), default=0)
    if kind == "regression":
        yield "uncertainty", f"intervals, by the errors on up to {most:,} unseen molecules"
    else:
        maps = {known.calibrated_by(target) for target in range(len(known.targets))}
        how = "as they come" if maps == {"none"} else f"calibrated ({', '.join(sorted(maps))})"
        yield "uncertainty", f"probabilities {how}, by up to {most:,} unseen molecules of a class"
    if known.domain is not None:
        rule = known.domain.rule
        yield "domain", f"outside it: {rule}" if rule else "no border"
    if (sketch := known.neighbors) is not None:
        parts = {
            "SMILES": sketch.smiles,
            "labels": sketch.labels is not None,
            "[CLS]": known.tokens,
        }
        stored = ["fingerprints", *(name for name, there in parts.items() if there)]
        yield "stored", f"{listed(stored)} of {len(sketch):,} training molecules"


def _training(checkpoint: dict[str, Any]) -> Facts:
    facts = checkpoint[KEY]
    if start := facts.get("from_pretrained"):
        yield "pre-trained", start
    text = f"{facts['dataset']} (fingerprint {facts['dataset_fingerprint'][:12]})"
    if "training_graphs" in facts:
        text += f", {facts['training_graphs']:,} molecules"
    summary = facts.get("training_summary") or {}
    if atoms := summary.get("atoms"):
        text += f" of {atoms['min']} to {atoms['max']} atoms"
        text += ", each connected" if summary.get("connected") else ""
    yield "trained on", text
    if "global_step" in checkpoint and "epoch" in checkpoint:
        yield "training", f"epoch {checkpoint['epoch'] + 1}, step {checkpoint['global_step']:,}"
    yield from _metrics("validation", facts.get("validation", {}))


def _run(facts: dict[str, Any], file: Path) -> Facts:
    """Yield what the directory of its run records of its test."""
    run = RunDirectory(file.parent.parent)
    if not run.finished or run.tested != file:
        return
    summary, task = run.summary() or {}, Task.from_plain(facts["task"])
    if split := (read_json(run.data_report_file) or {}).get("split"):
        yield "split", str(split)
    tested = {metric.name: summary.get(f"test_{metric.name}") for metric in task.metrics}
    yield from _metrics("test", tested)
    for one in summary.get("baselines") or ():
        if (value := one["test"].get(task.metric)) is not None:
            yield "baseline", f"{one['name']}: test {task.metric} {four_digits(value)}"
