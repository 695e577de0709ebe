"""Which molecules a model may be trusted with: those that are like some of its training.

n molecules.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

# Similarities that a border is looked for among, how much larger errors are beyond it, and how many
# molecules have to say so.
_BORDERS = tuple(round(0.15 + 0.05 * step, 2) for step in range(11))
LARGER, FEWEST = 1.5, 20
# Where errors do not tell: less similar than this share of what the model was tried on.
_UNTRIED = 0.01


@dataclass(frozen=True)
class Domain:
    """A border of similarity to the most similar molecule of training.

    Attributes:
        border: Tanimoto similarity; less similar molecules are outside.
        larger: How many times as large as that of all unseen molecules the mean error of those
            outside was; 0 where there is no border beyond which it is large.
        molecules: How many unseen molecules were outside.
    """

    border: float
    larger: float
    molecules: int

    @classmethod
    def fit(cls, similarity: np.ndarray, errors: np.ndarray) -> Self:
        """Find the border: the highest one beyond which errors are `LARGER` times those of all.

        With fewer than `FEWEST` molecules there is none, and nothing is outside.

        Args:
            similarity: Of unseen molecules to the most similar one of training, ``[n]``.
            errors: Absolute ones, ``[n]``.
        """
        for border in reversed(_BORDERS):
            outside = similarity < border
            count = int(outside.sum())
            if FEWEST <= count <= len(errors) - FEWEST:
                larger = float(errors[outside].mean() / max(errors.mean(), 1e-300))
                if larger >= LARGER:
                    return cls(border, round(larger, 2), count)
        if len(similarity) < FEWEST:
            return cls(0.0, 0.0, 0)
        border = round(float(np.quantile(similarity, _UNTRIED)), 3)
        return cls(border, 0.0, int((similarity < border).sum()))

    def said(self, similarity: float) -> str:
        """Return why a molecule is outside; the empty string for one inside."""
        if similarity >= self.border:
            return ""
        text = f"similarity {similarity:.2f} to the most similar training molecule"
        if self.larger:
            return f"{text}: below {self.border:.2f} errors were {self.larger:.1f} times the mean"
        return f"{text}: nearly all that the model was tried on are above {self.border:.2f}"
