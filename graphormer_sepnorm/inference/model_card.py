"""The facts of a model as lines, or as a card in Markdown."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from graphormer_sepnorm.files import read_json, sha256_of
from graphormer_sepnorm.formatting import aligned, four_digits, in_a_line, listed
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.graphs.task import Kind, Task
from graphormer_sepnorm.inference.checkpoint import BLEND, CONFIDENCE, KEY, model_weights
from graphormer_sepnorm.inference.predictor import LEVEL
from graphormer_sepnorm.model.config import EXTENSIONS, GraphormerConfig
from graphormer_sepnorm.runs.directory import CHECKPOINTS, RunDirectory
from graphormer_sepnorm.uncertainty.uncertainty import Uncertainty

Facts = list[tuple[str, str]]


def describe(checkpoint: dict[str, Any], file: Path | None = None) -> str:
    """Return a text of aligned lines: what is predicted, by what, trained on what, how well.

    The file adds its path and size, and the test of the run that it lies in.
    """
    return aligned(_facts(checkpoint, file))


def model_card(checkpoint: dict[str, Any], file: Path) -> str:
    """Return the same as a table in Markdown, with the SHA-256 of the file."""
    facts = [*_facts(checkpoint, file), ("SHA-256", sha256_of(file))]
    rows = [" | ".join(in_a_line(cell).replace("|", "\\|") for cell in fact) for fact in facts]
    return "\n".join([f"# {file.stem}", "", "| | |", "| --- | --- |", *(f"| {r} |" for r in rows)])


def _facts(checkpoint: dict[str, Any], file: Path | None) -> Facts:
    facts = checkpoint[KEY]
    rows = [("file", f"{file} ({file.stat().st_size / 1e6:.1f} MB)")] if file is not None else []
    rows += [(name, str(value)) for name, value in (facts.get("card") or {}).items()]
    rows += _targets(facts)
    extra, steps = ExtraInputs.of_facts(facts), facts.get("standardize")
    rows += [("from", f"the molecule, {extra.in_words()}")] if len(extra) else []
    rows += [("standardized", f"first of all, by {listed(steps)}")] if steps else []
    rows += _model(checkpoint)
    if (plain := checkpoint.get(CONFIDENCE)) is not None:
        rows += _uncertainty(plain, facts["task"]["kind"])
    rows += _training(checkpoint)
    if file is not None and file.parent.name == CHECKPOINTS:
        rows += _run(facts, file)
    featurizer, packages = facts["featurizer"], facts.get("packages", {})
    return [
        *rows,
        ("from SMILES", f"by {featurizer}" if featurizer else "not possible"),
        ("made with", ", ".join(f"{name} {version}" for name, version in packages.items())),
    ]


def _targets(facts: dict[str, Any]) -> Facts:
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
            text += f"; {labels['labels']:,} labels from {labels['min']:.4g} to "
            text += f"{labels['max']:.4g}, mean {labels['mean']:.4g}"
        if target in task.logarithmic:
            text += "; learned as logarithm"
        rows.append(("predicts", text))
    return rows


def _model(checkpoint: dict[str, Any]) -> Facts:
    if checkpoint[KEY].get("without_networks"):
        return [("model", "trees and kernel alone, without a network"), *_blend(checkpoint)]
    model = checkpoint[KEY]["model"]
    # BatchNorm's statistics and scalings are stored with the weights and are not parameters.
    parameters = sum(
        value.numel()
        for name, value in model_weights(checkpoint).items()
        if not name.rpartition(".")[2].startswith(("running_", "num_batches", "training_"))
    )
    text = f"Graphormer, norm {model['norm']} ([CLS]+atoms), {model['layers']} layers, width "
    text += f"{model['width']}, {model['heads']} heads, {parameters:,} parameters"
    rows = [("model", text)]
    beyond = [
        name if model[name] is True else f"{name} {model[name]}"
        for name in EXTENSIONS
        if model.get(name, neutral := getattr(GraphormerConfig, name)) != neutral
    ]
    rows += [("beyond it", ", ".join(beyond))] if beyond else []
    if others := checkpoint.get("members"):
        rows.append(("ensemble", f"{1 + len(others)} such networks; their mean is predicted"))
    return [*rows, *_blend(checkpoint)]


def _blend(checkpoint: dict[str, Any]) -> Facts:
    rows: Facts = []
    if (blend := checkpoint.get(BLEND)) is not None:
        trees, weight = blend["trees"], min(blend["weights"])
        share = blend.get("kernel_share", 0.0)
        share = statistics.fmean(share) if isinstance(share, list) else share
        of = f" (log-odds, times {blend['stacking']['slope']:.2f})" if "stacking" in blend else ""
        text = f"{weight:g} of the network, " if weight else ""
        text += f"{(1 - weight) * (1 - share):.2g} of gradient boosting"
        if share:
            molecules = len(blend["kernel"]["alpha"])
            text += f", {(1 - weight) * share:.2g} of a kernel with {molecules:,} molecules"
        text += f"{of}: {len(trees['roots']):,} trees"
        if own := trees["columns"].get("columns"):
            text += f", with {listed(own)} of a table"
        if without := sum(each == 1 for each in blend["weights"]):
            text += f"; {without:,} of {len(blend['weights']):,} targets by the network alone"
        rows += [("blend", text), *_metrics("of the blend", blend.get("validation", {}))]
    return rows


def _metrics(name: str, values: dict[str, Any]) -> Facts:
    """Return metrics, in the order that they have; nothing where there are none."""
    shown = [
        f"{metric.removeprefix('validation_')} {four_digits(value)}"
        for metric, value in values.items()
        if metric != "validation_loss" and type(value) is float
    ]
    return [(name, ", ".join(shown))] if shown else []


def _uncertainty(plain: dict[str, Any], kind: Kind) -> Facts:
    known = Uncertainty.from_plain(plain, kind)
    targets = [target for target in plain["targets"] if target is not None]
    counts = [one["labels"] if "labels" in one else sum(one["counts"]) for one in targets]
    most = max(counts, default=0)
    if kind == "regression":
        text = f"intervals, by the errors on up to {most:,} unseen molecules"
        if 0 < known.highest_level < LEVEL:
            text += f": of at most {int(100 * known.highest_level)} %, so only with --interval"
    else:
        maps = {known.calibrated_by(target) for target in range(len(known.targets))}
        how = "as they come" if maps == {"none"} else f"calibrated ({', '.join(sorted(maps))})"
        text = f"probabilities {how}, by up to {most:,} labels of unseen molecules"
    rows = [("uncertainty", text)]
    if known.domain is not None:
        rule = known.domain.rule
        rows.append(("domain", f"outside it: {rule}" if rule else "no border"))
    if (sketch := known.neighbors) is not None:
        parts = {
            "SMILES": sketch.smiles,
            "labels": sketch.labels is not None,
            "[CLS]": known.tokens,
        }
        stored = ["fingerprints", *(name for name, there in parts.items() if there)]
        rows.append(("it stores", f"{listed(stored)} of {len(sketch):,} training molecules"))
    return rows


def _training(checkpoint: dict[str, Any]) -> Facts:
    facts = checkpoint[KEY]
    text = f"{facts['dataset']} (fingerprint {facts['dataset_fingerprint'][:12]})"
    if "training_graphs" in facts:
        text += f", {facts['training_graphs']:,} molecules"
    summary = facts.get("training_summary") or {}
    if atoms := summary.get("atoms"):
        text += f" of {atoms['min']} to {atoms['max']} atoms"
        text += ", each of one piece" if summary.get("connected") else ""
    start = facts.get("from_pretrained")
    rows = [("pre-trained", start)] if start else []
    rows.append(("trained on", text))
    if "global_step" in checkpoint and "epoch" in checkpoint:
        steps = f"epoch {checkpoint['epoch'] + 1}, step {checkpoint['global_step']:,}"
        rows.append(("training", steps))
    return [*rows, *_metrics("validation", facts.get("validation", {}))]


def _run(facts: dict[str, Any], file: Path) -> Facts:
    """Return what the directory of its run records of its test."""
    run = RunDirectory(file.parent.parent)
    if not run.finished or run.tested != file:
        return []
    summary, task = run.summary() or {}, Task.from_plain(facts["task"])
    split = (read_json(run.data_report_file) or {}).get("split")
    rows = [("split", str(split))] if split else []
    tested = {metric.name: summary.get(f"test_{metric.name}") for metric in task.metrics}
    rows += _metrics("test", tested)
    for one in summary.get("baselines") or ():
        if (value := one["test"].get(task.metric)) is not None:
            rows.append(("baseline", f"{one['name']}: test {task.metric} {four_digits(value)}"))
    return rows
