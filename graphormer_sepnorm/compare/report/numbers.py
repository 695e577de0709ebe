"""Numbers of a report as text. One that could not be had, nan, is a dash."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphormer_sepnorm.compare.statistics import mean_sd
from graphormer_sepnorm.metrics import METRICS

if TYPE_CHECKING:
    from graphormer_sepnorm.compare.results import Results

MINUS = "\N{MINUS SIGN}"
_MOST_DECIMALS, _LARGE = 8, 1e7
NONE = "\N{EN DASH}"


def number(value: float, decimals: int) -> str:
    """A number with so many decimals, or where these or its digits are many with four digits."""
    if not math.isfinite(value):
        return NONE
    many = decimals > _MOST_DECIMALS or abs(value) >= _LARGE
    text = f"{value:.4g}" if many else f"{value:,.{decimals}f}"
    negative = text.startswith("-") and text.strip("-0.,") != ""
    return (MINUS if negative else "") + text.lstrip("-")


def signed(value: float, decimals: int) -> str:
    """A difference, with its sign."""
    text = number(value, decimals)
    return f"+{text}" if text[0].isdigit() and text.strip("0.,") else text


def interval(low: float, high: float, decimals: int) -> str:
    """Both ends with their signs."""
    if math.isnan(low) or math.isnan(high):
        return NONE
    return f"{signed(low, decimals)} to {signed(high, decimals)}"


def spread(values: np.ndarray | list[float], decimals: int) -> str:
    """Mean and standard deviation; one value has no standard deviation."""
    if not len(values):
        return NONE
    mean, sd = mean_sd(values)
    return f"{number(mean, decimals)} ± {number(sd, decimals)}"


def percent(value: float) -> str:
    """A relative change."""
    text = signed(value, 1)
    return text if text == NONE else f"{text} %"


def p_value(value: float) -> str:
    """A p-value with three decimals, a small one with its first digit, or ``< 0.0001``.

    One below 0.05, which decides on words, is not rounded to it.
    """
    if math.isnan(value):
        return NONE
    if value < 1e-4:
        return "< 0.0001"
    if 0.0495 <= value < 0.05:
        return f"{min(value, 0.0499):.4f}"
    return f"{value:.3f}".rstrip("0").rstrip(".") if value >= 0.001 else f"{value:.4f}"


def count(items: int, what: str) -> str:
    """``1 seed``, ``3 seeds``."""
    return f"{items:,} {what}" if items == 1 else f"{items:,} {what}s"


def plain(text: str) -> str:
    """Text for a terminal that shows ASCII only."""
    for sign, ours in ((MINUS, "-"), (NONE, "-"), ("±", "+/-")):
        text = text.replace(sign, ours)
    return text.encode("ascii", "replace").decode()


@dataclass(frozen=True)
class Metric:
    """The metric of a comparison: its name, its unit, and its values as text.

    Attributes:
        name: ``MAE`` or ``AUROC``.
        decimals: As many as show four digits of the largest value.
        unit: To be put behind a number: a blank first, or nothing at all.
    """

    name: str
    decimals: int
    unit: str

    @classmethod
    def of(cls, results: Results) -> Metric:
        """The metric of these results."""
        values = np.concatenate(
            [np.abs(arm.values(part)) for arm in results.arms for part in ("validation", "test")]
        )
        largest = values.max(initial=0)
        decimals = max(0, 3 - math.floor(math.log10(largest))) if largest else 4
        unit = f" {results.unit}" if results.unit else ""
        return cls(METRICS[results.metric].label, decimals, unit)

    @property
    def label(self) -> str:
        """Its name with its unit, for a heading."""
        return f"{self.name}{in_unit(self.unit)}"


def in_unit(unit: str) -> str:
    """`` (eV)`` behind the title of a column or an axis; nothing if there is no unit."""
    return f" ({unit.strip()})" if unit else ""
