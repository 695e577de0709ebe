"""How much of a blend is the network's, by molecules that neither it nor the trees have seen.

n molecules · T targets.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from graphormer_sepnorm.inference.blend import Stacking, log_odds

# Weights of the network that are tried for values.
WEIGHTS = tuple(tenth / 10 for tenth in range(11))
# Few labels are a poor judge: the best weight is drawn to the half, as if so many had asked for it.
EVEN, EVEN_LABELS = 0.5, 200
# The same for classes: how far what multiplies the log-odds of either is expected to be from the
# half, and constants from 0.
_SLOPES, _CONSTANTS = 0.15, 0.5
# Whatever labels say, the order of molecules is not lost.
_LEAST = 0.01


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
