"""Curves of a classification: ROC, precision and recall, and the interval of a share."""

from __future__ import annotations

import numpy as np


def roc_curve(positive: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, ...]:
    """False positive rate, recall and precision with the threshold falling, from (0, 0) on.

    Equal scores are one step. The first precision, of no molecule, is 1.
    """
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(positive[order])
    last = np.append(np.diff(scores[order]) != 0, True)
    true, found = hits[last], np.flatnonzero(last) + 1
    false_rate = (found - true) / (len(scores) - hits[-1])
    return (
        np.append(0.0, false_rate),
        np.append(0.0, true / hits[-1]),
        np.append(1.0, true / found),
    )


def average_precision(positive: np.ndarray, scores: np.ndarray) -> float:
    """The mean of the precision over the positives: the area below the steps of the curve."""
    _, recall, precision = roc_curve(positive, scores)
    return float((np.diff(recall) * precision[1:]).sum())


def wilson(share: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's 95 % interval of a share; that of 0 of n does not shrink to a point."""
    z2 = 1.96**2
    centre = (share + z2 / (2 * counts)) / (1 + z2 / counts)
    half = np.sqrt(share * (1 - share) * z2 / counts + (z2 / (2 * counts)) ** 2) / (1 + z2 / counts)
    return centre - half, centre + half
