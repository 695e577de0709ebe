"""After training: the uncertainty of a model, measured on molecules that it has not seen.

n molecules · T targets.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from graphormer_sepnorm.chem.fingerprints import morgan_counts
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.splits import SPLITS
from graphormer_sepnorm.inference.beside import LEVEL
from graphormer_sepnorm.pipeline.predicted import Predicted, tokens_of
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.uncertainty.calibration import Calibration
from graphormer_sepnorm.uncertainty.conformal import LEVELS, limits_of
from graphormer_sepnorm.uncertainty.neighbours import MOST_KEPT, Neighbours, drawn
from graphormer_sepnorm.uncertainty.quality import (
    OfIntervals,
    OfProbabilities,
    evaluate_intervals,
    evaluate_probabilities,
)
from graphormer_sepnorm.uncertainty.token_distance import MOST_TOKENS, TokenDistance
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty

# Of unseen molecules as many are enough to calibrate on.
MOST_UNSEEN = 10_000


@dataclass(frozen=True, eq=False)
class Calibrated:
    """The uncertainty of a model, and how good it is on the test split.

    Attributes:
        uncertainty: For its checkpoint.
        unseen: How many unseen molecules it was measured on.
        values: float64 ``[n, T]`` of the test split, probabilities calibrated; None without one.
        columns: Of the test molecules: ends of intervals, similarity, distance of [CLS].
        quality: By the names of the targets; without those that have no label there.
        outside: Which test molecules are outside the domain: bool ``[n]``.
    """

    uncertainty: Uncertainty
    unseen: int
    values: np.ndarray | None
    columns: dict[str, np.ndarray]
    quality: dict[str, OfIntervals | OfProbabilities]
    outside: np.ndarray

    def to_plain(self) -> dict[str, Any]:
        """Return it as ``confidence.json`` stores it."""
        domain = self.uncertainty.domain
        assert domain is not None
        return {
            "molecules_held_out": self.unseen,
            "domain": asdict(domain),
            "test_molecules_outside": int(self.outside.sum()),
            "test": {name: asdict(one) for name, one in self.quality.items()},
        }


def calibrate(
    module: GraphormerModule,
    data: MoleculeDataModule,
    unseen: Predicted,
    test: Predicted | None,
    keep: str,
) -> Calibrated:
    """Measure the errors of a model on molecules that it has not seen.

    Args:
        module: With the weights of the checkpoint.
        data: What it was trained on, molecules with SMILES.
        unseen: What the model predicts for molecules that it has not seen.
        test: What it predicts for the test split; None: there is none.
        keep: ``fingerprints``, ``smiles`` or ``labels``: what is stored of the molecules of
            training; each includes those before it.
    """
    unseen = unseen.take(drawn(len(unseen.indices), MOST_UNSEEN))
    task, folds = module.task, data.member_folds
    stored = data.numbers.weighed(data.numbers.described)
    stored = stored[drawn(len(stored), MOST_KEPT)]
    own_folds = positions = None
    if folds is not None:  # molecules of training are the unseen ones too
        own_folds = data.numbers.dealt[stored]
        among = np.searchsorted(unseen.indices, stored).clip(max=len(unseen.indices) - 1)
        positions = np.where(unseen.indices[among] == stored, among, -1)
    tokens = distance = None
    if module.model.config.reads_graph_token:
        some = stored[drawn(len(stored), MOST_TOKENS)]
        by_fold = () if folds is None else (data.numbers.dealt[some], unseen.folds)
        both = (tokens_of(module, data, indices) for indices in (some, unseen.indices))
        tokens, distance = TokenDistance.fit(*both, *by_fold)
    learned = np.union1d(data.numbers.described, unseen.indices)
    sides = data.sides(learned).swapaxes(0, 1)
    fingerprints = _fingerprints(data, unseen.indices)
    uncertainty = Uncertainty.fit(
        task.kind,
        data.labels(unseen.indices),
        unseen.inputs._replace(distance=distance, fingerprints=fingerprints),
        unseen.folds,
        np.asarray(module.facts["target_std"]),
        _neighbours(data, stored, keep),
        own_folds=own_folds,
        places=positions,
        exclusive=bool(task.one_of),
        tokens=tokens,
        ranked=data.splits.groups is None,  # a benchmark goes by the order
        bounds=data.sides(unseen.indices),
        limits=[limits_of(*of) for of in zip(data.labels(learned).T, sides, strict=True)],
    )
    if test is None:
        nothing = np.zeros(0, dtype=bool)
        return Calibrated(uncertainty, len(unseen.indices), None, {}, {}, nothing)
    inputs = test.inputs._replace(
        fingerprints=_fingerprints(data, test.indices),
        distance=None if tokens is None else tokens.of(tokens_of(module, data, test.indices)),
    )
    if folds is not None:  # no label is used for it
        uncertainty = uncertainty.of_mean(inputs, folds.count)
    return _tested(uncertainty, data, inputs, test.indices, len(unseen.indices))


def _neighbours(data: MoleculeDataModule, stored: np.ndarray, keep: str) -> Neighbours:
    """A sketch of molecules of training, known by their rows in a table or their indices."""
    rows, report = stored, data.splits.report
    if report is not None:
        rows = np.concatenate([report.splits[split].rows for split in SPLITS])[stored]
    return Neighbours.of(
        _fingerprints(data, stored),
        rows,
        data.splits.smiles_of(stored) if keep in ("smiles", "labels") else (),
        data.labels(stored) if keep == "labels" else None,
    )


def _fingerprints(data: MoleculeDataModule, indices: np.ndarray) -> csr_array:
    return morgan_counts([parse_smiles(text).molecule for text in data.splits.smiles_of(indices)])


def _tested(
    uncertainty: Uncertainty,
    data: MoleculeDataModule,
    inputs: Inputs,
    indices: np.ndarray,
    unseen: int,
) -> Calibrated:
    """Give the test split what `predict.py` gives, and evaluate that."""
    task, labels, bounds = data.splits.task, data.labels(indices), data.sides(indices)
    nearest, domain = uncertainty.nearest(inputs), uncertainty.domain
    assert nearest is not None
    assert domain is not None
    values = uncertainty.calibrated(inputs.values)
    expected = uncertainty.expected(inputs, nearest)
    ends = {level: uncertainty.intervals(values, expected, level) for level in LEVELS}
    quality: dict[str, OfIntervals | OfProbabilities] = {}
    for target, (name, own) in enumerate(zip(task.targets, uncertainty.targets, strict=True)):
        known = ~np.isnan(labels[:, target])
        if own is None or not known.any():
            continue
        if isinstance(own, Calibration):
            right, before, after = (of[known, target] for of in (labels, inputs.values, values))
            by = uncertainty.calibrated_by(target)
            quality[name] = evaluate_probabilities(right, before, after, own, by)
        else:
            at = {level: (low[:, target], high[:, target]) for level, (low, high) in ends.items()}
            quality[name] = evaluate_intervals(
                labels[:, target], values[:, target], expected[:, target], at, bounds[:, target]
            )
    columns = {}
    if task.kind == "regression":
        low, high = ends[LEVEL]
        error = uncertainty.known(values, expected)
        for target, name in enumerate(task.targets):
            columns |= {f"low_{name}": low[:, target], f"high_{name}": high[:, target]}
            columns[f"expected_error_{name}"] = error[:, target]
    similarity = nearest.similarity[:, 0]
    columns["similarity"] = similarity
    if inputs.distance is not None:
        columns["distance"] = inputs.distance
    outside = domain.outside(similarity, inputs.distance)
    return Calibrated(uncertainty, unseen, values, columns, quality, outside)
