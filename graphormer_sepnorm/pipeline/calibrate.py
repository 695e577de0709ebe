"""After training: the uncertainty of a model, measured on molecules that it has not seen.

n molecules · T targets.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from graphormer_sepnorm.chem.fingerprints import morgan_bits
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.files import write_json
from graphormer_sepnorm.inference.checkpoint import CONFIDENCE
from graphormer_sepnorm.inference.predictor import LEVEL
from graphormer_sepnorm.pipeline.predicted import Outcome, Predicted, of_networks
from graphormer_sepnorm.training.described import Described
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
    summarized,
)
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty

# Of unseen molecules as many are enough to calibrate on.
MOST_UNSEEN = 10_000


def calibrate(
    outcome: Outcome, module: Described, data: MoleculeData, keep: str, checkpoint: dict[str, Any]
) -> None:
    """Measure the errors of a model on molecules that it has not seen, and on the test split.

    `outcome` has what the model predicts for both; it gets the uncertainty and its quality, and
    `checkpoint` the uncertainty. Of the molecules of training is stored what `keep` says:
    ``fingerprints``, ``smiles`` or ``labels``, each with those before it.
    """
    unseen, test = outcome.unseen, outcome.test
    assert unseen is not None
    unseen = unseen.take(sampled(len(unseen.indices), MOST_UNSEEN))
    uncertainty = _measured(module, data, unseen, keep)
    inputs, distance = None, None
    if test is not None:
        if uncertainty.tokens is not None:
            distance = uncertainty.tokens.of(of_networks(module, data, test.indices)[1])
        inputs = test.inputs._replace(
            fingerprints=_fingerprints(data, test.indices), distance=distance
        )
        if data.member_folds is not None:  # no label is used for it
            uncertainty = uncertainty.of_mean(inputs, data.member_folds.count)
    checkpoint[CONFIDENCE] = uncertainty.to_plain()
    if test is not None and inputs is not None:
        _test(outcome, uncertainty, data, inputs, test)
    outcome.uncertainty = uncertainty
    domain = uncertainty.domain
    assert domain is not None
    record = {
        "molecules_held_out": len(unseen.indices),
        "domain": dataclasses.asdict(domain),
        "test_molecules_outside": int(outcome.outside.sum()),
        "test": outcome.quality,
    }
    write_json(outcome.run.uncertainty_file, record)


def _measured(module: Described, data: MoleculeData, unseen: Predicted, keep: str) -> Uncertainty:
    task, folds, report = module.task, data.member_folds, data.splits.report
    stored = data.numbers.weighed(data.numbers.described)
    stored = stored[sampled(len(stored), MOST_KEPT)]
    rows = stored  # known by their rows in a table, or by their indices
    if report is not None:
        rows = np.array([row.number for part in report.splits.values() for row in part])[stored]
    neighbors = Neighbors.of(
        _fingerprints(data, stored),
        rows,
        data.splits.smiles_of(stored) if keep in ("smiles", "labels") else (),
        task.in_units(data.labels(stored)) if keep == "labels" else None,
    )
    own_folds = positions = tokens = distance = None
    if folds is not None:  # molecules of training are the unseen ones too
        own_folds = data.numbers.assigned[stored]
        among = np.searchsorted(unseen.indices, stored).clip(max=len(unseen.indices) - 1)
        positions = np.where(unseen.indices[among] == stored, among, -1)
    if module.has_network and module.model.config.reads_graph_token:
        some = stored[sampled(len(stored), MOST_TOKENS)]
        by_fold = () if folds is None else (data.numbers.assigned[some], unseen.folds)
        both = (of_networks(module, data, of)[1] for of in (some, unseen.indices))
        tokens, distance = TokenDistance.fit(*both, *by_fold)
    learned = np.union1d(data.numbers.described, unseen.indices)
    sides = data.sides(learned).swapaxes(0, 1)
    fingerprints = _fingerprints(data, unseen.indices)
    return Uncertainty.fit(
        task.kind,
        data.labels(unseen.indices),
        unseen.inputs._replace(distance=distance, fingerprints=fingerprints),
        unseen.folds,
        np.asarray(module.facts["target_std"]),
        neighbors,
        own_folds=own_folds,
        places=positions,
        exclusive=bool(task.one_of),
        tokens=tokens,
        bounds=data.sides(unseen.indices),
        limits=[limits_of(*of) for of in zip(data.labels(learned).T, sides, strict=True)],
    )


def _fingerprints(data: MoleculeData, indices: np.ndarray) -> np.ndarray:
    return morgan_bits([parse_smiles(text).molecule for text in data.splits.smiles_of(indices)])


def _test(
    outcome: Outcome, uncertainty: Uncertainty, data: MoleculeData, inputs: Inputs, test: Predicted
) -> None:
    """Give the test split what `predict.py` gives, and evaluate that."""
    task = data.splits.task
    labels = task.in_units(data.labels(test.indices))
    bounds = np.stack([*map(task.in_units, np.moveaxis(data.sides(test.indices), 2, 0))], axis=2)
    nearest, domain = uncertainty.nearest(inputs), uncertainty.domain
    assert nearest is not None
    assert domain is not None
    values = uncertainty.calibrated(inputs.values)
    expected = uncertainty.expected(inputs, nearest)
    ends = {
        level: [*map(task.in_units, uncertainty.intervals(values, expected, level))]
        for level in LEVELS
    }
    shown, errors = task.in_units(values), task.widths_in_units(values, expected)
    errors_known = np.where(np.isnan(uncertainty.known(values, expected)), np.nan, errors)
    columns: dict[str, np.ndarray] = {}
    for target, (name, own) in enumerate(zip(task.targets, uncertainty.targets, strict=True)):
        if task.kind == "regression":
            low, high = ends[LEVEL]
            columns |= {f"low_{name}": low[:, target], f"high_{name}": high[:, target]}
            columns[f"expected_error_{name}"] = errors_known[:, target]
        known = ~np.isnan(labels[:, target])
        if own is None or not known.any():
            continue
        if isinstance(own, Calibration):
            right, before, after = (of[known, target] for of in (labels, inputs.values, values))
            by = uncertainty.calibrated_by(target)
            outcome.quality[name] = evaluate_probabilities(right, before, after, own, by)
        else:
            at = {level: (low[:, target], high[:, target]) for level, (low, high) in ends.items()}
            outcome.quality[name] = evaluate_intervals(
                labels[:, target], shown[:, target], errors[:, target], at, bounds[:, target]
            )
    columns["similarity"] = nearest.similarity[:, 0]
    if inputs.distance is not None:
        columns["distance"] = inputs.distance
    outcome.outside = domain.outside(columns["similarity"], inputs.distance)
    outcome.columns = columns
    outcome.test = dataclasses.replace(test, inputs=inputs._replace(values=values))
    outcome.summary["uncertainty"] = summarized(outcome.quality.values())
    if task.kind == "binary":
        found = task.evaluate(labels, values)
        outcome.summary |= {f"test_{name}": value for name, value in found.items()}
