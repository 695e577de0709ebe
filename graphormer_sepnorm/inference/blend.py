"""A network and gradient boosting in one model: a weighted mean of values, of classes of log-odds.

n molecules · T targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import expit, logit

from graphormer_sepnorm.chem.fingerprints import ENVIRONMENTS
from graphormer_sepnorm.chem.tree_features import compute_features
from graphormer_sepnorm.errors import CheckpointError, DataError
from graphormer_sepnorm.inference.trees import BoostedTrees

# No network and no tree is surer of a class than that.
_SMALLEST = 1e-6


class Stacking(NamedTuple):
    """What becomes of the mean of log-odds: slope · mean + constant.

    Attributes:
        slope: Above 0; below 1 where network and trees are too sure, above where they are not sure
            enough, as of two that each know something of their own.
        constants: float64 ``[T]``, above 0 where both find a class too rare.
    """

    slope: float
    constants: np.ndarray


@dataclass(frozen=True, eq=False)
class Blend:
    """Trees beside a network.

    Attributes:
        trees: What the network is blended with.
        weights: float64 ``[T]``, the share of the network; 1 for targets without trees.
        validation: Metrics of the blend on the molecules that it was weighed on, by their names.
        exclusive: Whether the targets are classes of which a molecule is of one.
        stacking: Of classes: log-odds are blended. None: values are, or probabilities, as in
            checkpoints of before 2026-11-25.
    """

    trees: BoostedTrees
    weights: np.ndarray
    validation: dict[str, float] = field(default_factory=dict)
    exclusive: bool = False
    stacking: Stacking | None = None

    @classmethod
    def of_trees(
        cls,
        trees: BoostedTrees,
        weight: float,
        exclusive: bool = False,
        stacking: Stacking | None = None,
    ) -> Self:
        """Give all targets that have trees the same weight."""
        weights = np.where(trees.known, weight, 1.0)
        return cls(trees, weights, exclusive=exclusive, stacking=stacking)

    @property
    def weight(self) -> float:
        """The share of the network in the targets that have trees."""
        return float(self.weights.min(initial=1.0))

    @property
    def changes(self) -> bool:
        """Whether it says anything else than the network."""
        return self.weight < 1 or self.stacking is not None

    def combined(
        self, networks: np.ndarray, trees: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return what the blend says.

        Args:
            networks: What each of K networks says, real units or probabilities of class 1:
                ``[K, n, T]``. Of several the mean is taken, of log-odds where these are blended.
            trees: The same of trees, ``[n, T]``.

        Returns:
            The blended values, ``[n, T]``; and how far those of the networks disagree, each beside
            the same trees, as a standard deviation. None: there is one network.
        """
        if self.stacking is None:
            values = np.where(
                self.weights < 1, self.weights * networks + (1 - self.weights) * trees, networks
            )
            mean = values.mean(axis=0)
        else:
            odds = self.weights * log_odds(networks) + (1 - self.weights) * log_odds(trees)
            odds = self.stacking.slope * odds + self.stacking.constants
            values = np.where(self.trees.known, expit(odds), networks)
            mean = np.where(self.trees.known, expit(odds.mean(axis=0)), networks.mean(axis=0))
        if self.exclusive:
            # Trees look at one class at a time, and know nothing of the others.
            values, mean = (one / one.sum(axis=-1, keepdims=True) for one in (values, mean))
        return mean, values.std(axis=0, ddof=1) if len(values) > 1 else None

    def trees_of_molecules(
        self,
        molecules: Sequence[Any],
        columns: np.ndarray | None,
        known: tuple[Sequence[str], np.ndarray] | None,
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
        plain: dict[str, Any] = {
            "trees": self.trees.to_plain(),
            "weights": self.weights.tolist(),
            "validation": dict(self.validation),
        }
        if self.exclusive:
            plain["exclusive"] = True
        if self.stacking is not None:
            slope, constants = self.stacking
            plain["stacking"] = {"slope": slope, "constants": constants.tolist()}
        return plain

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
        return cls(
            trees,
            np.array(plain["weights"], np.float64),
            plain.get("validation", {}),
            plain.get("exclusive", False),
            _stacking_from(plain.get("stacking")),
        )


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Return ln(p / (1 - p)), which nothing makes infinite."""
    return logit(np.clip(probabilities, _SMALLEST, 1 - _SMALLEST))


def _stacking_from(plain: dict[str, Any] | None) -> Stacking | None:
    if plain is None:
        return None
    return Stacking(float(plain["slope"]), np.array(plain["constants"], np.float64))
