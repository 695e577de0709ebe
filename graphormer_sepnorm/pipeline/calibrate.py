"""After training: what the model knows of its errors, kept in its file and judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from graphormer_sepnorm.chem.fingerprints import morgan_counts
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.files import write_json
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.inference.checkpoint import CONFIDENCE, KEY
from graphormer_sepnorm.inference.predictor import LEVEL, SAMPLE, Predictor
from graphormer_sepnorm.pipeline.held_out import HeldOut, tokens_of
from graphormer_sepnorm.runs.directory import RunDirectory
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.uncertainty.calibration import Calibration
from graphormer_sepnorm.uncertainty.conformal import LEVELS, limits_of
from graphormer_sepnorm.uncertainty.domain import (
    MOST_KEPT,
    MOST_TOKENS,
    Neighbors,
    TokenDistance,
    sampled,
)
from graphormer_sepnorm.uncertainty.quality import (
    evaluate_intervals,
    evaluate_probabilities,
    in_words,
    summarised,
)
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty

# So many molecules that the model has not seen are enough to measure by.
MOST_HELD_OUT = 10_000


@dataclass(frozen=True, eq=False)
class Measured:
    """What a model knows of its errors, and how that was on the test split.

    Attributes:
        confidence: In its checkpoint now.
        held: How many unseen molecules it was measured on.
        predictions: float64 ``[n, T]`` of the test split, probabilities calibrated; None without
            one.
        columns: Of the test molecules: ends of intervals, similarity, distance of [CLS].
        quality: By the names of the targets; without those that have no label there.
        outside: Which test molecules are outside the domain: bool ``[n]``.
    """

    confidence: Uncertainty
    held: int
    predictions: np.ndarray | None
    columns: dict[str, np.ndarray]
    quality: dict[str, dict[str, Any]]
    outside: np.ndarray


def measure(
    module: GraphormerModule,
    data: MoleculeDataModule,
    run: RunDirectory,
    checkpoint: Mapping[str, Any],
    held: HeldOut,
    tested: Inputs | None,
    keep: str,
) -> tuple[Measured, dict[str, Any]]:
    """Measure how wrong a model is on molecules that it has not seen.

    Args:
        module: With the weights of the checkpoint.
        data: What it was trained on, molecules with SMILES.
        run: Gets ``confidence.json``.
        checkpoint: Of the model, with its blend.
        held: What the model says of molecules that it has not seen.
        tested: What it says of the test split, without fingerprints; None: there is none.
        keep: ``fingerprints``, ``smiles`` or ``labels``: what the file keeps of the molecules of
            training; each has what stands before it.

    Returns:
        What it knows of its errors, and the checkpoint with that.
    """
    held = held.take(sampled(len(held.numbers), MOST_HELD_OUT))
    task, std = module.task, np.asarray(module.facts["target_std"])
    kept, neighbors = _sketch(data, keep)
    own, places = None, None
    if data.member_folds is not None:  # molecules of training are the unseen ones too
        own, places = data.numbers.dealt[kept], _places(kept, held.numbers)
    tokens, distance = _distances(module, data, kept, held)
    told = Inputs(held.values, held.spread, held.apart, distance, _fingerprints(data, held.numbers))
    labels, exclusive = data.labels(held.numbers), bool(task.one_of)
    learned = np.union1d(data.numbers.described, held.numbers)
    limits = [
        limits_of(*of_target)
        for of_target in zip(
            data.labels(learned).T, data.sides(learned).swapaxes(0, 1), strict=True
        )
    ]
    confidence = Uncertainty.fit(
        task.kind,
        labels,
        told,
        held.folds,
        std,
        neighbors,
        own_folds=own,
        places=places,
        exclusive=exclusive,
        tokens=tokens,
        bounds=data.sides(held.numbers),
        limits=limits,
    )
    numbers = data.indices("test")
    if tested is not None:
        tested = tested._replace(
            fingerprints=_fingerprints(data, numbers),
            distance=None if tokens is None else tokens.of(tokens_of(module, data, numbers)),
        )
        if data.member_folds is not None:  # no label is looked at for it
            confidence = confidence.of_mean(tested, data.member_folds.count)
    checkpoint = {**checkpoint, CONFIDENCE: confidence.to_plain()}
    if neighbors.smiles:
        sample = Predictor(checkpoint, "cpu").sample(neighbors.smiles)
        checkpoint[KEY] = {**checkpoint[KEY], SAMPLE: sample}
    if tested is None:
        outside = np.zeros(0, dtype=bool)
        measured = Measured(confidence, len(held.numbers), None, {}, {}, outside)
        _keep(measured, run)
        return measured, checkpoint
    known = data.labels(numbers), data.sides(numbers)
    measured = _tested(confidence, task, tested, *known, len(held.numbers))
    _keep(measured, run)
    return measured, checkpoint


def _sketch(data: MoleculeDataModule, keep: str) -> tuple[np.ndarray, Neighbors]:
    """Return a sketch of the molecules of training, and their numbers in the store.

    They are known by their rows in a table, or by their places in the data set.
    """
    numbers, report = data.numbers.weighed(data.numbers.described), data.splits.report
    numbers = numbers[sampled(len(numbers), MOST_KEPT)]
    rows = numbers
    if report is not None:
        rows = np.concatenate([report.splits[split].rows for split in SPLITS])[numbers]
    sketch = Neighbors.of(
        _fingerprints(data, numbers),
        rows,
        data.splits.smiles_of(numbers) if keep in ("smiles", "labels") else (),
        data.labels(numbers) if keep == "labels" else None,
    )
    return numbers, sketch


def _distances(
    module: GraphormerModule, data: MoleculeDataModule, kept: np.ndarray, held: HeldOut
) -> tuple[TokenDistance | None, np.ndarray | None]:
    """Return how far molecules are from those of training by [CLS], and those unseen ones are.

    None of a model that does not read [CLS].
    """
    if not module.model.config.reads_graph_token:
        return None, None
    kept = kept[sampled(len(kept), MOST_TOKENS)]
    folds = None if data.member_folds is None else (data.numbers.dealt[kept], held.folds)
    seen, unseen = (tokens_of(module, data, numbers) for numbers in (kept, held.numbers))
    return TokenDistance.fit(seen, unseen, *(folds or ()))


def _places(kept: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Return of each molecule of the sketch its place among the unseen ones, -1 if it is none."""
    places = {number: place for place, number in enumerate(held.tolist())}
    return np.array([places.get(number, -1) for number in kept.tolist()], np.int64)


def _fingerprints(data: MoleculeDataModule, numbers: np.ndarray) -> csr_array:
    return morgan_counts([parse_smiles(text).molecule for text in data.splits.smiles_of(numbers)])


def _tested(
    confidence: Uncertainty,
    task: Task,
    told: Inputs,
    labels: np.ndarray,
    bounds: np.ndarray,
    held: int,
) -> Measured:
    """Ask for the test split what `predict.py` says, and see how that is."""
    nearest = confidence.nearest(told)
    assert nearest is not None
    assert confidence.domain is not None
    values = confidence.calibrated(told.values)
    expected = confidence.expected(told, nearest)
    ends = {level: confidence.intervals(values, expected, level) for level in LEVELS}
    quality: dict[str, dict[str, Any]] = {}
    for target, (name, one) in enumerate(zip(task.targets, confidence.targets, strict=True)):
        known = ~np.isnan(labels[:, target])
        if one is None or not known.any():
            continue
        if isinstance(one, Calibration):
            right, before, said = (of[known, target] for of in (labels, told.values, values))
            by = confidence.calibrated_by(target)
            quality[name] = evaluate_probabilities(right, before, said, one, by)
        else:
            own = {level: (low[:, target], high[:, target]) for level, (low, high) in ends.items()}
            quality[name] = evaluate_intervals(
                labels[:, target], values[:, target], expected[:, target], own, bounds[:, target]
            )
    columns = {}
    if task.kind == "regression":
        parts = (*ends[LEVEL], confidence.known(values, expected))
        for target, name in enumerate(task.targets):
            names = (f"low_{name}", f"high_{name}", f"expected_error_{name}")
            columns |= dict(zip(names, (part[:, target] for part in parts), strict=True))
    similarity = nearest.similarity[:, 0]
    columns["similarity"] = similarity
    if told.distance is not None:
        columns["distance"] = told.distance
    outside = confidence.domain.outside(similarity, told.distance)
    return Measured(confidence, held, values, columns, quality, outside)


def _keep(measured: Measured, run: RunDirectory) -> None:
    domain = measured.confidence.domain
    assert domain is not None
    content = {
        "molecules_held_out": measured.held,
        "domain": asdict(domain),
        "test_molecules_outside": int(measured.outside.sum()),
        "test": measured.quality,
    }
    write_json(run.confidence_file, content)


def said(measured: Measured, task: Task, run: RunDirectory) -> str:
    """Return what is printed of it, in lines."""
    unit = task.units[0] if len(set(task.units)) == 1 else ""
    lines = []
    if words := in_words(summarised(measured.quality.values()), unit):
        lines.append(f"how sure    {words}")
    highest = measured.confidence.highest_level
    if task.kind == "regression" and highest < LEVEL:
        there, needed = (round(level / (1 - level)) for level in (highest, LEVEL))
        lines.append(
            f"{'' if lines else 'how sure':<12}predictions get no intervals: for {100 * LEVEL:g} % "
            f"{needed} labels of unseen molecules are needed, and there are {there}"
        )
    domain = measured.confidence.domain
    assert domain is not None
    if domain.rule and not len(measured.outside):
        lines.append(f"domain      outside are molecules with {domain.rule}")
    elif domain.rule:
        count, total = int(measured.outside.sum()), len(measured.outside)
        lines.append(
            f"domain      {count:,} of {total:,} test molecules are outside: {domain.rule}"
        )
    else:
        lines.append(
            "domain      no border, so in_domain is left empty: too few unseen molecules, or too "
            "unlike the others"
        )
    lines.append(f"            {run.confidence_file}")
    return "\n".join(lines)
