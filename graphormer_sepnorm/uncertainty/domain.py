"""Which molecules a model may be trusted with: those that are like some of its training.

n molecules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.special import stdtrit

# Similarities and distances that a border is looked for among, how much larger errors are beyond
# it, how many molecules have to say so, and which share may lie there: what excludes half is no
# domain.
_BORDERS = tuple(round(0.15 + 0.05 * step, 2) for step in range(11))
_FURTHEST = tuple(round(1.2 + 0.1 * step, 1) for step in range(29))
LARGER, FEWEST, MOST = 1.5, 20, 1 / 3
# How sure it has to be that they are not larger by chance.
_SURE = 0.99
# Where errors do not tell: less similar than this share of what the model was tried on.
_UNTRIED = 0.01


@dataclass(frozen=True)
class Domain:
    """A border of similarity to the most similar molecule of training, and one of [CLS].

    Attributes:
        border: Tanimoto similarity; less similar molecules are outside.
        larger: How many times as large as usual the errors of unseen molecules outside were; 0
            where there is no border beyond which they are large.
        molecules: How many unseen molecules were outside.
        furthest: Distance of [CLS] from molecules of training, see `TokenDistance`; those further
            away are outside too. None: there is no such border.
        larger_beyond: As `larger`, beyond `furthest`.
    """

    border: float
    larger: float
    molecules: int
    furthest: float | None = None
    larger_beyond: float = 0.0

    @classmethod
    def fit(
        cls,
        similarity: np.ndarray,
        errors: np.ndarray,
        distance: np.ndarray | None = None,
        expected: np.ndarray | None = None,
    ) -> Self:
        """Find the borders: the nearest ones beyond which errors are `LARGER` times the usual.

        With fewer than `FEWEST` molecules there are none, and nothing is outside.

        Args:
            similarity: Of unseen molecules to the most similar one of training, ``[n]``.
            errors: Absolute ones, or the log loss of classes, ``[n]``.
            distance: Of their [CLS] from molecules of training, ``[n]``; None: it is not known.
            expected: What each error should be by the prediction itself, which may well grow
                outside, ``[n]``; None: the same for all.
        """
        furthest, beyond = None, 0.0
        expected = np.ones(len(errors)) if expected is None else expected
        usual = expected * (errors.sum() / max(expected.sum(), 1e-300))
        if distance is not None:
            furthest, beyond = _first_border(_FURTHEST, distance.__gt__, errors, usual)
        border, larger = _first_border(_BORDERS[::-1], similarity.__lt__, errors, usual)
        if border is None:
            few = len(similarity) < FEWEST
            # Rounded down: many molecules may have the very similarity of the border, as 2 / 3.
            border = 0.0 if few else math.floor(1000 * np.quantile(similarity, _UNTRIED)) / 1000
        found = cls(border, larger, 0, furthest, beyond)
        return replace(found, molecules=int(found.outside(similarity, distance).sum()))

    @property
    def has_border(self) -> bool:
        """Whether anything is outside; without a border nobody knows what is inside either."""
        return bool(self.border) or self.furthest is not None

    @property
    def rule(self) -> str:
        """What is outside, in words; the empty string where there is no border."""
        if not self.has_border:
            return ""
        rule = f"similarity to training molecules below {self.border:g}"
        rule += f" (errors were {self.larger:.1f} times the usual)" if self.larger else ""
        if self.furthest is not None:
            rule += (
                f", [CLS] beyond {self.furthest:g} times the usual distance "
                f"({self.larger_beyond:.1f} times)"
            )
        return rule

    def said(self, similarity: float, distance: float | None = None) -> str:
        """Return why a molecule is outside; the empty string for one inside."""
        reasons = []
        if similarity < self.border:
            why = "nearly all that the model was tried on are above it"
            if self.larger:
                why = f"errors were {self.larger:.1f} times the usual"
            near = f"similarity {similarity:.2f} to the most similar training molecule"
            reasons.append(f"{near}, below {self.border:.2f}: {why}")
        if self.furthest is not None and distance is not None and distance > self.furthest:
            reasons.append(
                f"its [CLS] is {distance:.1f} times as far from training molecules as usual, "
                f"beyond {self.furthest:.1f}: errors were {self.larger_beyond:.1f} times the usual"
            )
        return "; ".join(reasons)

    def outside(self, similarity: np.ndarray, distance: np.ndarray | None) -> np.ndarray:
        """Return which molecules are outside, bool ``[n]``."""
        outside = similarity < self.border
        if self.furthest is None or distance is None:
            return outside
        return outside | (distance > self.furthest)


def _first_border(
    borders: Sequence[float],
    beyond: Callable[[float], np.ndarray],
    errors: np.ndarray,
    usual: np.ndarray,
) -> tuple[float | None, float]:
    """Return the first border beyond which errors are `LARGER` times usual, and how many times.

    A lower confidence bound has to be above the usual ones too: beyond some of forty borders a few
    errors are large by chance. None and 0 where there is none with at least `FEWEST` and at most
    `MOST` of the molecules there.
    """
    for border in borders:
        outside = beyond(border)
        count = int(outside.sum())
        if FEWEST <= count <= MOST * len(errors):
            larger = float(errors[outside].sum() / max(usual[outside].sum(), 1e-300))
            excess = errors[outside] - usual[outside]
            by_chance = stdtrit(count - 1, _SURE) * excess.std(ddof=1) / math.sqrt(count)
            if larger >= LARGER and excess.mean() > by_chance:
                return border, round(larger, 2)
    return None, 0.0
