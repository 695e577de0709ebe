"""How far a molecule is from those of training as networks see it: by the graph token, [CLS].

n molecules · m of training · K networks · C channels · D axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from scipy.spatial import KDTree

# Principal axes that a cloud keeps, and molecules; of more so many are drawn. 32 bytes each.
AXES, MOST_TOKENS = 16, 4_000
_NEAREST = 5
_SMALLEST = 1e-12
_FEWEST = 2  # molecules of a cloud
_PARTS = ("centre", "axes", "points")


@dataclass(frozen=True, eq=False)
class Cloud:
    """The [CLS] of molecules that one network was trained on, along their first principal axes.

    Attributes:
        centre: float32 ``[C]``, their mean.
        axes: float32 ``[C, D]``, divided by the root of the total variance.
        points: float16 ``[m, D]``.
    """

    centre: np.ndarray
    axes: np.ndarray
    points: np.ndarray

    @classmethod
    def of(cls, tokens: np.ndarray) -> Self:
        """Make it of ``[m, C]``, two molecules or more."""
        centre = tokens.mean(axis=0, dtype=np.float64)
        variances, vectors = np.linalg.eigh(np.cov((tokens - centre).T))
        factor = 1 / np.sqrt(max(float(variances.sum()), _SMALLEST))
        axes = (vectors[:, ::-1][:, :AXES] * factor).astype(np.float32)
        centre = centre.astype(np.float32)
        return cls(centre, axes, ((tokens - centre) @ axes).astype(np.float16))

    @cached_property
    def _tree(self) -> KDTree:
        return KDTree(self.points.astype(np.float64))

    def distance(self, tokens: np.ndarray) -> np.ndarray:
        """Return the mean distance of ``[n, C]`` to the nearest five points; nan: not finite."""
        found = np.full(len(tokens), np.nan)
        finite = np.isfinite(tokens).all(axis=1)
        count = min(_NEAREST, len(self.points))
        each, _ = self._tree.query((tokens[finite] - self.centre) @ self.axes, k=count)
        found[finite] = np.reshape(each, (-1, count)).mean(axis=1)
        return found


@dataclass(frozen=True, eq=False)
class TokenDistance:
    """Of a model: the mean over its networks, as a multiple of what is usual.

    Attributes:
        clouds: Of each network.
        usual: The median over molecules that the model had not seen.
    """

    clouds: tuple[Cloud, ...]
    usual: float

    @classmethod
    def fit(
        cls,
        trained: np.ndarray,
        unseen: np.ndarray,
        own_folds: np.ndarray | None = None,
        folds: np.ndarray | None = None,
    ) -> tuple[Self | None, np.ndarray | None]:
        """Measure it on molecules that were not trained on.

        Args:
            trained: [CLS] of molecules of training in each network, float32 ``[K, m, C]``.
            unseen: Of those that were not trained on, ``[K, n, C]``.
            own_folds: int64 ``[m]``: which network was not trained on a molecule; None: all were.
            folds: int64 ``[n]``: which network alone had not seen a molecule; where there are
                `own_folds`.

        Returns:
            The measure, and the distances of the unseen molecules, ``[n]``, nan for those whose
            [CLS] is not finite; two times None where nothing can be measured.
        """
        finite = np.isfinite(trained).all(axis=(0, 2))
        learned = [
            tokens[finite if own_folds is None else finite & (own_folds != network)]
            for network, tokens in enumerate(trained)
        ]
        if min(map(len, learned)) < _FEWEST or not np.isfinite(unseen).all(axis=(0, 2)).any():
            return None, None
        clouds = tuple(map(Cloud.of, learned))
        raw = cls(clouds, 1.0)
        if folds is None or own_folds is None:
            found = raw.of(unseen)
        else:
            found = np.empty(len(folds))
            for network, cloud in enumerate(clouds):
                own = folds == network
                found[own] = cloud.distance(unseen[network, own])
        usual = max(float(np.nanmedian(found)), _SMALLEST)
        return cls(clouds, usual), found / usual

    def of(self, tokens: np.ndarray) -> np.ndarray:
        """Return how far molecules are from those of training, ``[n]``; 1 is usual.

        Args:
            tokens: In each network, ``[K, n, C]``.
        """
        each = [cloud.distance(one) for cloud, one in zip(self.clouds, tokens, strict=True)]
        return np.mean(each, axis=0) / self.usual

    def to_plain(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        clouds = [
            {name: torch.from_numpy(getattr(cloud, name)) for name in _PARTS}
            for cloud in self.clouds
        ]
        return {"clouds": clouds, "usual": self.usual}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Make it from what `to_plain` gave, of which the contents have been checked."""
        clouds = (Cloud(*(cloud[name].numpy() for name in _PARTS)) for cloud in plain["clouds"])
        return cls(tuple(clouds), plain["usual"])
