"""Networks, gradient boosting and a kernel in one model: weighted means, of classes of log-odds.

The network is blended with the others, which are gradient boosting, or its mean with the kernel.

n molecules · T targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import expit, logit

from graphormer_sepnorm.baselines.features import COUNTED, compute_features, raw_features
from graphormer_sepnorm.baselines.kernel import Kernel
from graphormer_sepnorm.baselines.trees import BoostedTrees
from graphormer_sepnorm.chem.descriptors import compute_descriptors
from graphormer_sepnorm.errors import CheckpointError, DataError
from graphormer_sepnorm.files import typed

_SMALLEST = 1e-6  # no probability is closer to 0 or 1 than that
# Weights of the network that are tried for values.
WEIGHTS = tuple(tenth / 10 for tenth in range(11))
# Few labels decide little: the best weight is shrunk toward the half by this many pseudo-labels.
EVEN, EVEN_LABELS = 0.5, 200
# Priors for classes: deviations of both slopes from the half, and of constants from 0.
_SLOPES, _CONSTANTS = 0.15, 0.5
_LEAST = 0.01  # a slope above 0 keeps the order of molecules


@dataclass(frozen=True, eq=False)
class Stacking:
    """How the mean of log-odds is calibrated: slope · mean + constant.

    Attributes:
        slope: Above 0; below 1 where network and trees are overconfident.
        constants: float64 ``[T]``, above 0 where both predict a class too rarely.
    """

    slope: float
    constants: np.ndarray


@dataclass(frozen=True, eq=False)
class Blend:
    """A network blended with trees, and a kernel.

    Attributes:
        trees: Gradient boosting; of no target where the kernel stands alone.
        weights: float64 ``[T]``, the share of the network; 1 for targets that have no others, 0 in
            a model without networks.
        validation: Metrics of the blend on the molecules that its weight was fitted on.
        exclusive: Whether the targets are mutually exclusive classes.
        stacking: Of classes: log-odds are blended. None: values are, or probabilities, as in
            checkpoints of before 2026-11-25.
        kernel: None: there is none.
        kernel_share: float64 ``[T]``, its weight in the mean with the trees, 0 to 1.
    """

    trees: BoostedTrees
    weights: np.ndarray
    validation: dict[str, float] = field(default_factory=dict)
    exclusive: bool = False
    stacking: Stacking | None = None
    kernel: Kernel | None = None
    kernel_share: np.ndarray | float = 0.0

    @classmethod
    def of_trees(cls, trees: BoostedTrees, weight: float | np.ndarray, **more: Any) -> Self:
        """Give targets that have trees, or a kernel, a weight; `more` are further attributes."""
        made = cls(trees, np.ones(len(trees.trees)), **more)
        return replace(made, weights=np.where(made.known, weight, 1.0))

    @cached_property
    def known(self) -> np.ndarray:
        """Which targets the network is blended in, bool ``[T]``."""
        if self.kernel is None:
            return self.trees.known
        return self.trees.known | ~np.isnan(self.kernel.alpha).any(axis=0)

    @property
    def weight(self) -> float:
        """The share of the network in the targets that have others; their mean."""
        return round(float(self.weights[self.known].mean()), 2) if self.known.any() else 1.0

    def shares(self, network: str) -> str:
        """Return the shares of its models in words; the first one is called `network`."""
        kernel = round(float(np.mean(self.kernel_share)), 2)
        shares = {
            network: self.weight,
            "gradient boosting": (1 - self.weight) * (1 - kernel),
            "kernel": (1 - self.weight) * kernel,
        }
        return " + ".join(f"{share:.2g} {name}" for name, share in shares.items() if share)

    def combined(
        self, networks: np.ndarray, others: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the blended values, ``[n, T]``, and the spread of the networks.

        Of predictions of K networks ``[K, n, T]`` the mean is taken, of log-odds where these are
        blended; `others` are ``[n, T]``. The spread is the standard deviation of the blends of each
        network with the same others; None where there is one network.
        """
        if not len(networks):  # what counts for nothing may be anything
            networks = np.where(self.known, 0.5, np.nan * others)[None]
        if self.stacking is None:
            values = np.where(
                self.weights < 1, self.weights * networks + (1 - self.weights) * others, networks
            )
            mean = values.mean(axis=0)
        else:
            odds = self.weights * log_odds(networks) + (1 - self.weights) * log_odds(others)
            odds = self.stacking.slope * odds + self.stacking.constants
            values = np.where(self.known, expit(odds), networks)
            mean = np.where(self.known, expit(odds.mean(axis=0)), networks.mean(axis=0))
        if self.exclusive:
            # The others see one class at a time.
            values, mean = (one / one.sum(axis=-1, keepdims=True) for one in (values, mean))
        return mean, values.std(axis=0, ddof=1) if len(values) > 1 else None

    def pair_of(
        self, molecules: Sequence[Any], own: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return what trees and kernel predict for molecules, with their columns of a table.

        SMILES are computed by several processes where they are many.
        """
        text = len(molecules) > 0 and isinstance(molecules[0], str)
        names = self.trees.columns.descriptors
        raw = (compute_features if text else raw_features)(molecules, names=names)
        trees = self.trees.predict(self.trees.columns.of(raw.with_columns(own)))
        return trees, None if self.kernel is None else self.kernel.predict(raw.substructures)

    def others(self, trees: np.ndarray, kernel: np.ndarray | None) -> np.ndarray:
        """Return the mean of trees and kernel, or what there is, ``[n, T]``; nan of neither."""
        if kernel is None:
            return trees
        odds = self.trees.logistic
        pair = [log_odds(trees), log_odds(kernel)] if odds else [trees, kernel]
        mean = (1 - self.kernel_share) * pair[0] + self.kernel_share * pair[1]
        mean = np.where(np.isnan(kernel), trees, expit(mean) if odds else mean)
        return np.where(np.isnan(trees), kernel, mean)

    def apart(
        self, networks: np.ndarray, others: np.ndarray, pair: tuple[np.ndarray, np.ndarray | None]
    ) -> np.ndarray:
        """Return how far networks and `others` are from each other, ``[n, T]``; nan of neither.

        In a model without networks (nan) how far its trees and its kernel are, 0 of one alone.
        """
        distance = np.abs(networks - others)
        if np.isnan(networks).all() and pair[1] is not None:
            distance = np.nan_to_num(np.abs(pair[0] - pair[1]))
        return np.where(self.known, distance, np.nan)

    def to_plain(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        plain: dict[str, Any] = {
            "trees": self.trees.to_plain(),
            "weights": self.weights.tolist(),
            "validation": dict(self.validation),
            "exclusive": self.exclusive,
        }
        if self.stacking is not None:
            constants = self.stacking.constants.tolist()
            plain["stacking"] = {"slope": self.stacking.slope, "constants": constants}
        if self.kernel is not None:
            share = np.broadcast_to(self.kernel_share, self.weights.shape).tolist()
            plain |= {"kernel": self.kernel.to_plain(), "kernel_share": share}
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Make a blend from what `to_plain` gave.

        Raises:
            CheckpointError: This release of RDKit lacks a descriptor, or an environment cannot be.
        """
        kernel = plain.get("kernel")
        blend = typed(cls, plain | {"kernel": None})
        columns = blend.trees.columns
        environments = columns.environments
        if environments and not 0 <= environments[0] <= environments[-1] < COUNTED:
            raise CheckpointError(f"blend.trees has an environment that is not below {COUNTED}")
        try:
            compute_descriptors([], columns.descriptors)
        except DataError as error:
            raise CheckpointError(str(error)) from error
        if kernel is None:
            return blend
        return replace(blend, kernel=Kernel.from_plain(kernel, len(blend.trees.trees)))


def log_odds(probabilities: np.ndarray) -> np.ndarray:
    """Return ln(p / (1 - p)), which nothing makes infinite."""
    return logit(np.clip(probabilities, _SMALLEST, 1 - _SMALLEST))


def fit_weight(
    labels: np.ndarray,
    network: np.ndarray,
    trees: np.ndarray,
    std: np.ndarray,
    bounds: np.ndarray | None = None,
) -> np.ndarray:
    """Return the weights of the network in means of values, from 0 to 1, ``[T]``.

    By the squared error in units of the training labels' standard deviation. What lies beyond a
    bound costs nothing, as in training. The best of `WEIGHTS` for the mean over all targets is
    shrunk toward the half as if `EVEN_LABELS` more labels were best with that; each target's own is
    shrunk toward this common one in the same way. It is what it is shrunk toward where there is
    nothing to choose by, or the network predicts something that is not finite.

    Args:
        labels: ``[n, T]``; nan = missing.
        network: Real units, as `labels`.
        trees: The same; nan in all rows of a target without trees.
        std: ``[T]``, standard deviations of the training labels.
        bounds: Of missing labels what they are at least, and at most, ``[n, T, 2]``; nan where
            nothing is known.
    """
    bounds = np.full((*labels.shape, 2), np.nan) if bounds is None else bounds
    low, high = np.moveaxis(bounds, 2, 0)
    present = ~np.isnan(np.fmax(np.fmax(labels, low), high))
    counts = present.sum(axis=0)
    by_weight = []  # mean losses of the targets, each
    with np.errstate(invalid="ignore"):
        for weight in WEIGHTS:
            values = weight * network + (1 - weight) * trees
            beyond = np.fmax(np.fmax(low - values, values - high), 0)
            errors = np.where(np.isnan(labels), beyond, values - labels) / std
            by_weight.append((errors**2).sum(axis=0, where=present) / np.maximum(counts, 1))

    def best(targets: np.ndarray, even: float) -> float:
        known, fewest = present[:, targets], counts[targets].min(initial=len(labels))
        if not len(targets) or not fewest or not np.isfinite(network[:, targets][known]).all():
            return even
        found = WEIGHTS[int(np.argmin([losses[targets].mean() for losses in by_weight]))]
        return round(even + (found - even) * float(fewest / (fewest + EVEN_LABELS)), 2)

    several = np.flatnonzero(~np.isnan(trees).any(axis=0))
    common = best(several, EVEN)
    weights = np.full(labels.shape[1], common)
    if len(several) > 1:
        weights[several] = [best(several[[at]], common) for at in range(len(several))]
    return weights


def fit_stacking(
    labels: np.ndarray, networks: np.ndarray, trees: np.ndarray, exclusive: bool = False
) -> tuple[float, Stacking]:
    """Return the weight of the network in a mean of log-odds, and how the mean is calibrated.

    Stacking (Wolpert 1992) by a logistic regression: a and b, positive, for the log-odds of network
    and trees, the same for all targets, and a constant for each; every label counts alike. Normal
    priors shrink a and b toward the half and constants toward 0 (maximum a posteriori). A mean of
    probabilities would give less weight to a model that is less confident, however well it ranks.

    Args:
        labels: 0 and 1, ``[n, T]``; nan = missing.
        networks: Probabilities of class 1 of K networks, ``[K, n, T]``.
        trees: Those of the trees, ``[n, T]``; nan in all rows of a target without trees.
        exclusive: Whether the targets are mutually exclusive classes: the labels of a molecule
            count as one then.

    Returns:
        a / (a + b), and a + b with the constants; the half, 1 and 0 where a network predicts
        something that is not finite.
    """
    from scipy.optimize import minimize  # slow to load, and not for prediction

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
