"""A network and gradient boosting in one model: a weighted mean of what both say.

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


class LogOdds(NamedTuple):
    """What becomes of the mean of log-odds: slope · mean + constant.

    Attributes:
        slope: Not negative; below 1 where network and trees are too sure, above where they are not
            sure enough, as of two that each know something of their own.
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
        log_odds: Of classes: the mean is of log-odds. None: of values, or of probabilities, as in
            checkpoints of before 2026-11-25.
    """

    trees: BoostedTrees
    weights: np.ndarray
    validation: dict[str, float] = field(default_factory=dict)
    exclusive: bool = False
    log_odds: LogOdds | None = None

    @classmethod
    def of_trees(
        cls,
        trees: BoostedTrees,
        weight: float,
        exclusive: bool = False,
        log_odds: LogOdds | None = None,
    ) -> Self:
        """Give all targets that have trees the same weight."""
        weights = np.where(trees.known, weight, 1.0)
        return cls(trees, weights, exclusive=exclusive, log_odds=log_odds)

    @property
    def weight(self) -> float:
        """The share of the network in the targets that have trees."""
        return float(self.weights.min(initial=1.0))

    @property
    def changes(self) -> bool:
        """Whether it says anything else than the network."""
        return self.weight < 1 or self.log_odds is not None

    def combined(self, network: np.ndarray, trees: np.ndarray) -> np.ndarray:
        """Return the weighted mean of what both say, real units or probabilities: ``[n, T]``."""
        if self.log_odds is None:
            mean = self.weights * network + (1 - self.weights) * trees
            values = np.where(self.weights < 1, mean, network)
        else:
            mean = self.weights * log_odds(network) + (1 - self.weights) * log_odds(trees)
            said = expit(self.log_odds.slope * mean + self.log_odds.constants)
            values = np.where(self.trees.known, said, network)
        # Trees look at one class at a time, and know nothing of the others.
        return values / values.sum(axis=1, keepdims=True) if self.exclusive else values

    def spread(self, spread: np.ndarray, network: np.ndarray, combined: np.ndarray) -> np.ndarray:
        """Return how far members of an ensemble disagree in the blend; their trees are the same.

        To first order: how much a small change of the `network` changes what is `combined`.

        Args:
            spread: Standard deviation of what the members say, ``[n, T]``.
            network: Their mean.
            combined: What `combined` makes of it.
        """
        if self.log_odds is None:
            return spread * self.weights
        inside = np.clip(network, _SMALLEST, 1 - _SMALLEST)
        slope = self.weights * self.log_odds.slope
        steeper = combined * (1 - combined) / (inside * (1 - inside))
        return spread * np.where(self.trees.known, slope * steeper, 1.0)

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
        plain: dict[str, Any] = {
            "trees": self.trees.to_plain(),
            "weights": self.weights.tolist(),
            "validation": dict(self.validation),
        }
        if self.exclusive:
            plain["exclusive"] = True
        if self.log_odds is not None:
            slope, constants = self.log_odds
            plain["log_odds"] = {"slope": slope, "constants": constants.tolist()}
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
            _log_odds_from(plain.get("log_odds")),
        )


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Return ln(p / (1 - p)), which nothing makes infinite."""
    return logit(np.clip(probabilities, _SMALLEST, 1 - _SMALLEST))


def _log_odds_from(plain: dict[str, Any] | None) -> LogOdds | None:
    if plain is None:
        return None
    return LogOdds(float(plain["slope"]), np.array(plain["constants"], np.float64))
