"""Gradient boosting several times, with other random numbers, as one model.

Each tree of stochastic gradient boosting sees a part of the molecules and of the features, so that
two boostings of the same data differ; their mean is mostly better than one.

n molecules · F features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import expit
from sklearn.utils.parallel import Parallel, delayed


@dataclass(frozen=True)
class BaggedBoosting:
    """The mean of what several boostings say: of values, or of the logits of class 1.

    Attributes:
        boosters: Fitted, `GradientBoostingRegressor` or `GradientBoostingClassifier`.
    """

    boosters: tuple[Any, ...]

    @classmethod
    def fit(
        cls, booster: Any, number: int, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None
    ) -> Self:
        """Fit `number` copies of a booster, with the random states 0, 1, …, on threads.

        Args:
            booster: Of scikit-learn; it stays as it is.
            number: How many.
            x: Features, ``[n, F]``.
            y: Labels, ``[n]``.
            weight: Of the molecules, ``[n]``; None: all weigh the same.
        """
        copies = [
            type(booster)(**booster.get_params() | {"random_state": state})
            for state in range(number)
        ]
        fitted = Parallel(n_jobs=-1, prefer="threads")(
            delayed(one.fit)(x, y, sample_weight=weight) for one in copies
        )
        return cls(tuple(fitted))

    @property
    def of_classes(self) -> bool:
        """Whether it predicts the probability of class 1."""
        return hasattr(self.boosters[0], "predict_proba")

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return values, or probabilities of class 1, float64 ``[n]``, for features ``[n, F]``."""
        if self.of_classes:
            return expit(np.mean([one.decision_function(x) for one in self.boosters], axis=0))
        return np.mean([one.predict(x) for one in self.boosters], axis=0)
