"""What SepNorm's paper reports for Graphormer (Chen et al. 2023, table of graph tasks).

Single numbers, without seeds, of a variant that is not named.
"""

from __future__ import annotations

import math

# Without and with SepNorm: test MAE, for ogbg-molhiv test ROC-AUC.
_TEST = {"zinc": (0.069, 0.052), "zinc-subset": (0.164, 0.144), "ogbg-molhiv": (0.7336, 0.7564)}


def relative_percent(dataset: str) -> float:
    """Relative change of the test metric, in percent; nan for data that the paper has not."""
    if dataset not in _TEST:
        return math.nan
    without, with_sepnorm = _TEST[dataset]
    return round(100 * (with_sepnorm - without) / without, 1)


def in_words(dataset: str) -> str | None:
    """The two numbers, as ``MAE 0.069 to 0.052``; None for data that the paper has not."""
    if dataset not in _TEST:
        return None
    without, with_sepnorm = _TEST[dataset]
    if dataset != "ogbg-molhiv":
        return f"MAE {without:.3f} to {with_sepnorm:.3f}"
    points = 100 * (with_sepnorm - without)
    return f"ROC-AUC {100 * without:.2f} % to {100 * with_sepnorm:.2f} %, {points:+.2f} points"
