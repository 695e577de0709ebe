"""Fitting kernel ridge regression, with held-out predictions in closed form.

n molecules · m landmarks · T targets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from scipy.linalg import cholesky, eigh, solve_triangular
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from graphormer_sepnorm.baselines.kernel import Counts, Kernel
from graphormer_sepnorm.chem.fingerprints import Substructures
from graphormer_sepnorm.metrics import Kind

# Up to so many molecules the regression is exact; of more so many are landmarks, and fewer where
# the time, which grows with T m³, or the memory, with n m, would be larger than of these.
LANDMARKS, MOST_SIMILARITIES = 5000, 25_000_000
# The ratios of noise to signal that held-out errors choose from.
NOISES = tuple(float(10**exponent) for exponent in np.arange(-3, 1.01, 0.5))
# Added to the diagonal for a Cholesky factor, as molecules may be equal: the first that is enough.
_JITTERS = (1e-8, 1e-6, 1e-4)


def fit_kernel(
    found: Substructures,
    labels: np.ndarray,
    rows: np.ndarray,
    weights: np.ndarray,
    folds: np.ndarray | None,
    kind: Kind,
    targets: Sequence[int],
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> tuple[Kernel, np.ndarray]:
    """Fit targets on some molecules, and predict all.

    Args:
        found: `substructures` of the n molecules.
        labels: Real values, or 0 and 1, ``[n, T]``; nan where missing.
        rows: bool ``[n]``, which molecules are fitted on.
        weights: ``[n]``, positive of these.
        folds: int64 ``[n]``; None: each molecule is a fold of its own (leave-one-out).
        kind: Of the labels.
        targets: Which have a model: of some labels, and of both classes.
        progress: Is given how many targets are done, of how many.

    Returns:
        The kernel; and predictions float64 ``[n, T]``, of molecules that were fitted on by what was
        fitted without their fold; nan without a model.
    """
    fitted_on = np.flatnonzero(rows)
    most = int(LANDMARKS / max(1, len(targets)) ** (1 / 3))
    most = min(most, max(1000, MOST_SIMILARITIES // max(1, len(labels))))
    landmarks = np.sort(np.random.default_rng(0).permutation(fitted_on)[:most])
    counts = Counts.of(
        {kind: [keys[index] for index in landmarks.tolist()] for kind, keys in found.items()}
    )
    similarities = Counts.of(found, counts.vocabulary).similarities(counts) + 1
    factor = _cholesky(similarities[landmarks])
    features = solve_triangular(factor, similarities.T, lower=True).T
    del similarities
    alpha = np.full((len(landmarks), labels.shape[1]), np.nan)
    intercept, predictions = np.zeros(labels.shape[1]), np.full(labels.shape, np.nan)
    for done, target in enumerate(targets):
        progress(done, len(targets))
        known = rows & ~np.isnan(labels[:, target])
        own = None if folds is None else folds[known]
        y, weight = labels[known, target], weights[known]
        beta, constant, held_out = fit_ridge(features[known], y, weight, own)
        if kind == "binary":
            odds = LogisticRegression(C=1e3).fit(held_out[:, None], y, sample_weight=weight)
            slope, shift = float(odds.coef_[0, 0]), float(odds.intercept_[0])
            if slope < 0.01:  # noise: held-out scores of noise run against the labels
                slope, shift = 0.01, float(logit(np.average(y, weights=weight)))
            constant = shift + slope * constant
            beta, held_out = slope * beta, slope * held_out + shift
        alpha[:, target] = solve_triangular(factor, beta, lower=True, trans=1)
        intercept[target] = constant
        predictions[:, target] = features @ beta + constant
        predictions[known, target] = held_out
    values = expit(predictions) if kind == "binary" else predictions
    return Kernel(counts, alpha, intercept, kind == "binary"), values


def _cholesky(gram: np.ndarray) -> np.ndarray:
    """Return the lower factor of a kernel of molecules, float64 ``[m, m]``."""
    for jitter in _JITTERS[:-1]:
        with suppress(np.linalg.LinAlgError):
            return cholesky(gram + jitter * np.eye(len(gram)), lower=True)
    return cholesky(gram + _JITTERS[-1] * np.eye(len(gram)), lower=True)


def fit_ridge(
    features: np.ndarray, y: np.ndarray, weights: np.ndarray, folds: np.ndarray | None = None
) -> tuple[np.ndarray, float, np.ndarray]:
    """Fit one target; the noise is the one with the least squared error of held-out predictions.

    With features Φ = K L⁻ᵀ of molecules, L Lᵀ the kernel of the landmarks, this is ridge
    regression, whose residuals without fold F are (I - H_FF)⁻¹ (y - ŷ)_F, H = Φ (ΦᵀWΦ + λI)⁻¹ ΦᵀW
    the hat matrix (Cook and Weisberg 1982). If all molecules are landmarks, it is kernel ridge
    regression; otherwise its Nyström approximation. The mean of the labels is taken as known.

    Args:
        features: float64 ``[n, m]``.
        y: Labels, ``[n]``.
        weights: Positive, ``[n]``.
        folds: int64 ``[n]``; None: leave-one-out.

    Returns:
        β ``[m]``, the intercept, and the held-out predictions ``[n]``.
    """
    weights = weights / weights.mean()
    mean = float(np.average(y, weights=weights))
    scale = float(np.sqrt(np.average((y - mean) ** 2, weights=weights))) or 1.0
    z, root = (y - mean) / scale, np.sqrt(weights)[:, None]
    values, vectors = eigh((features * root).T @ (features * root))
    rotated = features @ vectors
    projected = rotated.T @ (weights * z)
    groups = [] if folds is None else [np.flatnonzero(folds == one) for one in np.unique(folds)]
    best, beta, held_out = np.inf, np.zeros(len(values)), z
    for noise in NOISES:
        shrunk = rotated / (np.maximum(values, 0) + noise)
        residuals = z - shrunk @ projected
        if folds is None:
            residuals /= 1 - weights * np.einsum("ij,ij->i", shrunk, rotated)
        for rows in groups:
            part, weighted = rotated[rows], rotated[rows].T * weights[rows]
            if len(rows) > len(values):  # the same as a fit without the fold, which is smaller
                left = np.diag(np.maximum(values, 0) + noise) - weighted @ part
                without = np.linalg.solve(left, projected - weighted @ z[rows])
                residuals[rows] = z[rows] - part @ without
            else:
                hat = shrunk[rows] @ weighted
                residuals[rows] = np.linalg.solve(np.eye(len(rows)) - hat, residuals[rows])
        error = float(np.average(residuals**2, weights=weights))
        if error < best:
            best, held_out = error, z - residuals
            beta = vectors @ (projected / (np.maximum(values, 0) + noise))
    return beta * scale, mean, held_out * scale + mean
