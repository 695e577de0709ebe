"""A network and gradient boosting in one model: a weighted mean of values, of classes of log-odds.

n molecules · T targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import expit, logit

from graphormer_sepnorm.baselines.features import compute_features
from graphormer_sepnorm.baselines.trees import BoostedTrees
from graphormer_sepnorm.chem.fingerprints import ENVIRONMENTS
from graphormer_sepnorm.errors import CheckpointError, DataError

# No network and no tree is surer of a class than that.
_SMALLEST = 1e-6
# Weights of the network that are tried for values.
WEIGHTS = tuple(tenth / 10 for tenth in range(11))
# Few labels are a poor judge: the best weight is drawn to the half, as if so many had asked for it.
EVEN, EVEN_LABELS = 0.5, 200
# The same for classes: how far what multiplies the log-odds of either is expected to be from the
# half, and constants from 0.
_SLOPES, _CONSTANTS = 0.15, 0.5
# Whatever labels say, the order of molecules is not lost.
_LEAST = 0.01


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


def weigh_values(
    labels: np.ndarray,
    network: np.ndarray,
    trees: np.ndarray,
    std: np.ndarray,
    bounds: np.ndarray | None = None,
) -> float:
    """Return the weight of the network in a mean of values.

    By the squared error in units of the training labels' deviation, a mean over the targets. What
    lies beyond a bound costs nothing, as in training. The best of `WEIGHTS` is drawn to the half as
    if `EVEN_LABELS` more labels were best with that.

    Args:
        labels: ``[n, T]``; nan = missing.
        network: Real units, as `labels`.
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
        beyond = np.fmax(np.fmax(low - values, values - high), 0)
        errors = np.where(np.isnan(labels), beyond, values - labels)
        losses.append(np.mean((errors / std[chosen]) ** 2, axis=0, where=present).mean())
    best = WEIGHTS[int(np.argmin(losses))]
    return round(EVEN + (best - EVEN) * float(fewest / (fewest + EVEN_LABELS)), 2)


def weigh_classes(
    labels: np.ndarray, networks: np.ndarray, trees: np.ndarray, exclusive: bool = False
) -> tuple[float, Stacking]:
    """Return the weight of the network in a mean of log-odds, and what becomes of the mean.

    Stacking (Wolpert 1992) by a logistic regression: a and b, positive, for the log-odds of network
    and trees, the same for all targets, and a constant for each; every label counts alike. Few
    labels are a poor judge: a and b are drawn to the half, and constants to 0, by normal
    distributions around these (the largest a posteriori). How sure network and trees are, and how
    frequent they find a class, does not decide: a mean of probabilities hears less of what is
    less sure, as a network with much dropout, however well it ranks.

    Args:
        labels: 0 and 1, ``[n, T]``; nan = missing.
        networks: Probabilities of class 1 that each of K networks says, ``[K, n, T]``.
        trees: The same of trees, ``[n, T]``; nan in all rows of a target without trees.
        exclusive: Whether the targets are classes of which a molecule is of one: the labels of a
            molecule count as one then.

    Returns:
        a / (a + b), and a + b with the constants; the half, 1 and 0 where a network says
        something that is no number.
    """
    from scipy.optimize import minimize  # is slow to load, and prediction needs none of it

    targets = labels.shape[1]
    present = ~np.isnan(labels) & ~np.isnan(trees).any(axis=0)
    if not np.isfinite(networks[:, present]).all():
        return EVEN, Stacking(1.0, np.zeros(targets))
    right = labels[present]
    network = log_odds(networks[:, present]).mean(axis=0)
    said = np.stack([network, log_odds(trees[present])])
    target = np.nonzero(present)[1]
    share = 1 / targets if exclusive else 1.0
    usual = np.concatenate([[EVEN, EVEN], np.zeros(targets)])
    precision = np.concatenate([np.full(2, _SLOPES), np.full(targets, _CONSTANTS)]) ** -2

    def loss(found: np.ndarray) -> tuple[float, np.ndarray]:
        odds = found[:2] @ said + found[2:][target]
        off, wrong = found - usual, expit(odds) - right
        slopes, constants = said @ wrong, np.bincount(target, wrong, targets)
        return (
            float(share * (np.logaddexp(0, odds) - right * odds).sum() + precision @ off**2 / 2),
            share * np.concatenate([slopes, constants]) + precision * off,
        )

    free = [(_LEAST, None)] * 2 + [(None, None)] * targets
    a, b, *constants = minimize(loss, usual, jac=True, method="L-BFGS-B", bounds=free).x.tolist()
    return round(a / (a + b), 2), Stacking(a + b, np.array(constants))
