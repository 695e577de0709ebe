"""A network and gradient boosting in one model: a weighted mean of what both say.

n molecules · T targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from graphormer_sepnorm.chem.fingerprints import ENVIRONMENTS
from graphormer_sepnorm.chem.tree_features import compute_features
from graphormer_sepnorm.errors import CheckpointError, DataError
from graphormer_sepnorm.inference.trees import BoostedTrees
from graphormer_sepnorm.metrics import Kind

# Weights of the network that are tried on molecules that neither it nor the trees have seen.
WEIGHTS = tuple(tenth / 10 for tenth in range(11))
# Few labels are a poor judge: the best weight is drawn to the half, as if so many had asked for it.
EVEN, EVEN_LABELS = 0.5, 200


@dataclass(frozen=True, eq=False)
class Blend:
    """Trees beside a network.

    Attributes:
        trees: What the network is blended with.
        weights: float64 ``[T]``, the share of the network; 1 for targets without trees.
        validation: Metrics of the blend on the molecules that it was weighed on, by their names.
        exclusive: Whether the targets are classes of which a molecule is of one.
    """

    trees: BoostedTrees
    weights: np.ndarray
    validation: dict[str, float] = field(default_factory=dict)
    exclusive: bool = False

    @classmethod
    def of_trees(cls, trees: BoostedTrees, weight: float, exclusive: bool = False) -> Self:
        """Give all targets that have trees the same weight."""
        return cls(trees, np.where(trees.known, weight, 1.0), exclusive=exclusive)

    @property
    def weight(self) -> float:
        """The share of the network in the targets that have trees."""
        return float(self.weights.min(initial=1.0))

    def combined(self, network: np.ndarray, trees: np.ndarray) -> np.ndarray:
        """Return the weighted mean of what both say, real units or probabilities: ``[n, T]``."""
        values = np.where(
            self.weights < 1, self.weights * network + (1 - self.weights) * trees, network
        )
        # Trees look at one class at a time, and know nothing of the others.
        return values / values.sum(axis=1, keepdims=True) if self.exclusive else values

    def trees_of_molecules(
        self,
        molecules: Sequence[Any],
        columns: np.ndarray | None = None,
        known: tuple[Sequence[str], np.ndarray] | None = None,
    ) -> np.ndarray:
        """Return what the trees say of molecules, ``[n, T]``; takes milliseconds for each.

        See `FeatureColumns.of_molecules`.
        """
        return self.trees.predict(self.trees.columns.of_molecules(molecules, columns, known))

    def trees_of_smiles(self, smiles: Sequence[str], own: np.ndarray | None = None) -> np.ndarray:
        """Return what the trees say of many molecules, in several processes."""
        columns = self.trees.columns
        raw = compute_features(smiles, names=columns.descriptors)
        return self.trees.predict(columns.of(raw.with_columns(own)))

    def apart(self, network: np.ndarray, trees: np.ndarray) -> np.ndarray:
        """Return how far both are from each other, ``[n, T]``; nan for targets without trees."""
        return np.where(self.trees.known, np.abs(network - trees), np.nan)

    def to_plain(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        return {
            "trees": self.trees.to_plain(),
            "weights": self.weights.tolist(),
            "validation": dict(self.validation),
            **({"exclusive": True} if self.exclusive else {}),
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Make a blend from what `to_plain` gave, checked as all of a checkpoint is.

        Raises:
            CheckpointError: This release of RDKit lacks a descriptor.
        """
        trees = BoostedTrees.from_plain(plain["trees"])
        environments = trees.columns.environments
        if environments and not 0 <= environments[0] <= environments[-1] < ENVIRONMENTS:
            raise CheckpointError(
                f"blend.trees has an environment that is not below {ENVIRONMENTS}"
            )
        try:
            trees.columns.check()
        except DataError as error:
            raise CheckpointError(str(error)) from error
        weights = np.array(plain["weights"], np.float64)
        return cls(trees, weights, plain.get("validation", {}), plain.get("exclusive", False))


def choose_weight(
    kind: Kind,
    labels: np.ndarray,
    network: np.ndarray,
    trees: np.ndarray,
    std: np.ndarray,
    bounds: np.ndarray | None = None,
) -> float:
    """Return the weight of the network by its loss on molecules that were not trained on.

    Squared error in units of the training labels' deviation, or log loss, a mean over the targets.
    What lies beyond a bound costs nothing, as in training. The best of `WEIGHTS` is drawn to the
    half as if `EVEN_LABELS` more labels were best with that.

    Args:
        kind: Of the targets.
        labels: ``[n, T]``; nan = missing.
        network: Real units or probabilities, as `labels`.
        trees: The same; nan in all rows of a target without trees.
        std: ``[T]``, deviations of the training labels.
        bounds: Of missing labels what they are at least, then what they are at most, ``[n, 2 T]``;
            nan where nothing is known. None: of none.

    Returns:
        From 0 to 1; the half where there is nothing to choose by, or the network says something
        that is no number.
    """
    chosen = np.flatnonzero(~np.isnan(trees).any(axis=0))
    low, high = np.full((2, *labels.shape), np.nan) if bounds is None else np.split(bounds, 2, 1)
    labels, network, trees, low, high = (
        values[:, chosen] for values in (labels, network, trees, low, high)
    )
    present = ~np.isnan(np.fmax(np.fmax(labels, low), high))
    fewest = present.sum(axis=0).min(initial=len(labels)) if len(chosen) else 0
    if fewest == 0 or not np.isfinite(network[present]).all():
        return EVEN
    losses = []
    for weight in WEIGHTS:
        values = weight * network + (1 - weight) * trees
        if kind == "binary":
            right = np.clip(np.where(labels > 0.5, values, 1 - values), 1e-7, 1)
            loss = -np.log(right)
        else:
            beyond = np.fmax(np.fmax(low - values, values - high), 0)
            errors = np.where(np.isnan(labels), beyond, values - labels)
            loss = (errors / std[chosen]) ** 2
        losses.append(np.mean(loss, axis=0, where=present).mean())
    best = WEIGHTS[int(np.argmin(losses))]
    return round(EVEN + (best - EVEN) * float(fewest / (fewest + EVEN_LABELS)), 2)
