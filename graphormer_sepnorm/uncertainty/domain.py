"""Which molecules a model may be trusted with: those that are like its training molecules.

Similarity is that of fingerprints, to the training molecules that a model file stores; distance is
that of the graph token, [CLS], as the networks see a molecule.

n molecules · m training molecules · k neighbors · T targets · K networks · C channels · D axes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import torch

from graphormer_sepnorm.chem.fingerprints import ENVIRONMENTS

# Candidates for a border of similarity and of distance, how much larger errors are beyond it, how
# many molecules have to show that, and which share may lie there: what excludes half is no domain.
_BORDERS = tuple(round(0.15 + 0.05 * step, 2) for step in range(11))
_FURTHEST = tuple(round(1.2 + 0.1 * step, 1) for step in range(29))
LARGER, FEWEST, MOST = 1.5, 20, 1 / 3
# How certain it has to be that they are not larger by chance.
_CERTAIN = 0.99
# Where errors show no border: less similar than this share of the unseen molecules.
_UNTRIED = 0.01

# Molecules of a sketch: 100 bytes each, and their SMILES. Of more that many are sampled.
MOST_KEPT = 40_000
_AT_ONCE, _PAIRS = 128, 120_000  # compared at once: molecules, and pairs that a core's cache holds
# Two different similarities are further apart than that many times the number of stored molecules.
_TIE = 1e-11
# In the mean error of neighbors they count by similarity to this power, and the mean error of all
# as much as a molecule of this weight.
_POWER, _PRIOR = 3, 0.1

# Principal axes of a cloud, and its molecules, 32 bytes each; of more that many are sampled.
AXES, MOST_TOKENS = 16, 4_000
_NEAREST = 5
_SMALLEST = 1e-12


def sampled(count: int, most: int) -> np.ndarray:
    """Return which of `count` molecules are taken, int64, increasing: all, or `most` of them."""
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


@dataclass(frozen=True)
class Domain:
    """Borders of similarity to the most similar training molecule and of the distance of [CLS].

    Attributes:
        border: Tanimoto similarity; less similar molecules are outside.
        larger: How many times as large as usual the errors of unseen molecules outside were; 0:
            they are not large beyond any border.
        molecules: How many unseen molecules were outside.
        furthest: Distance, see `TokenDistance`; molecules further away are outside too; None: there
            is no such border.
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
        """Find the nearest borders beyond which errors are `LARGER` times the usual ones.

        With fewer than `FEWEST` molecules there are none, and nothing is outside.

        Args:
            similarity: Of unseen molecules to the most similar training molecule, ``[n]``.
            errors: Absolute errors, or the log loss of classes, ``[n]``.
            distance: Of their [CLS] from training molecules, ``[n]``.
            expected: What each error should be by the prediction itself, ``[n]``; None: the same.
        """
        furthest, beyond = None, 0.0
        expected = np.ones(len(errors)) if expected is None else expected
        usual = expected * (errors.sum() / max(expected.sum(), 1e-300))
        if distance is not None:
            furthest, beyond = _first_border(_FURTHEST, distance.__gt__, errors, usual)
        border, larger = _first_border(_BORDERS[::-1], similarity.__lt__, errors, usual)
        if border is None:
            few = len(similarity) < FEWEST
            # Rounded down: many molecules may have exactly this similarity, as 2 / 3.
            border = 0.0 if few else math.floor(1000 * np.quantile(similarity, _UNTRIED)) / 1000
        found = cls(border, larger, 0, furthest, beyond)
        return replace(found, molecules=int(found.outside(similarity, distance).sum()))

    @property
    def rule(self) -> str:
        """What is outside, in words.

        The empty string where there is no border: then nobody knows what is inside either.
        """
        if not self.border and self.furthest is None:
            return ""
        rule = f"similarity to training molecules below {self.border:.3f}"
        rule += f" (errors were {self.larger:.1f} times the usual)" if self.larger else ""
        if self.furthest is not None:
            rule += (
                f", [CLS] beyond {self.furthest:g} times the usual distance "
                f"({self.larger_beyond:.1f} times)"
            )
        return rule

    def reasons(self, similarity: np.ndarray, distance: np.ndarray | None) -> list[str]:
        """Return why molecules are outside, ``[n]``; the empty string for one inside."""
        unlike = "nearly all molecules that it was evaluated on are above it"
        if self.larger:
            unlike = f"errors were {self.larger:.1f} times the usual"
        reasons = [""] * len(similarity)
        for index in np.flatnonzero(self.outside(similarity, distance)).tolist():
            parts = []
            if similarity[index] < self.border:
                near = f"similarity {similarity[index]:.3f} to the most similar training molecule"
                parts.append(f"{near}, below {self.border:.3f}: {unlike}")
            if distance is not None and self._is_far(distance[index]):
                parts.append(
                    f"its [CLS] is {distance[index]:.2f} times as far from training molecules as "
                    f"usual, beyond {self.furthest:.2f}: "
                    f"errors were {self.larger_beyond:.1f} times the usual"
                )
            reasons[index] = "; ".join(parts)
        return reasons

    def outside(self, similarity: np.ndarray, distance: np.ndarray | None) -> np.ndarray:
        """Return which molecules are outside, bool ``[n]``."""
        outside = similarity < self.border
        return outside if distance is None else outside | self._is_far(distance)

    def _is_far(self, distance: np.ndarray) -> np.ndarray:
        return distance > (math.inf if self.furthest is None else self.furthest)


def _first_border(
    borders: Sequence[float],
    beyond: Callable[[float], np.ndarray],
    errors: np.ndarray,
    usual: np.ndarray,
) -> tuple[float | None, float]:
    """Return the first border beyond which errors are `LARGER` times usual, and how many times.

    What they have in excess has to be certain too: beyond some of forty borders a few errors are
    large by chance. None and 0: there is no such border.
    """
    from scipy.special import stdtrit  # slow to load, and not for predictions

    for border in borders:
        outside = beyond(border)
        count = int(outside.sum())
        if FEWEST <= count <= MOST * len(errors):
            larger = float(errors[outside].sum() / max(usual[outside].sum(), 1e-300))
            excess = errors[outside] - usual[outside]
            by_chance = stdtrit(count - 1, _CERTAIN) * excess.std(ddof=1) / math.sqrt(count)
            if larger >= LARGER and excess.mean() > by_chance:
                return border, round(larger, 2)
    return None, 0.0


class Nearest(NamedTuple):
    """Neighbors, the most similar first.

    Attributes:
        similarity: float64 ``[n, k]``, Tanimoto, of the sets of Morgan environments.
        rows: int64 ``[n, k]``, which molecules of the sketch these are.
    """

    similarity: np.ndarray
    rows: np.ndarray

    def mean_errors(self, errors: np.ndarray) -> np.ndarray:
        """Return the mean of absolute errors ``[m]`` (nan = unknown) on the neighbors, ``[n]``.

        Weighted by similarity, and shrunk to the mean over all where nothing is similar.
        """
        overall = float(np.nanmean(errors, dtype=np.float64)) if np.isfinite(errors).any() else 0.0
        known = errors[self.rows]
        weights = np.clip(self.similarity, 0, None) ** _POWER * np.isfinite(known)
        total = (weights * np.nan_to_num(known)).sum(axis=1)
        return (total + _PRIOR * overall) / (weights.sum(axis=1) + _PRIOR)


@dataclass(frozen=True, eq=False)
class Neighbors:
    """A sketch of the training molecules, at most `MOST_KEPT`; see `sampled`.

    Attributes:
        environments: int16 ``[sum of sizes]``, the Morgan environments of one after the other.
        sizes: int16 ``[m]``, how many each has.
        numbers: int32 ``[m]``, by which they are known: rows of a table.
        smiles: Of each; empty where they are not stored.
        labels: float64 ``[m, T]``, nan = missing; None where they are not stored.
    """

    environments: np.ndarray
    sizes: np.ndarray
    numbers: np.ndarray
    smiles: tuple[str, ...] = ()
    labels: np.ndarray | None = None

    def __post_init__(self) -> None:
        _ = self._words  # arrays that do not fit each other show when they are read, not later

    @classmethod
    def of(
        cls,
        fingerprints: np.ndarray,
        numbers: np.ndarray,
        smiles: Sequence[str] = (),
        labels: np.ndarray | None = None,
    ) -> Self:
        """Make a sketch of fingerprints by `morgan_bits` and the rest."""
        there = np.unpackbits(fingerprints.view(np.uint8), axis=1, bitorder="little")
        arrays = there.nonzero()[1].astype(np.int16), there.sum(axis=1, dtype=np.int16)
        return cls(*arrays, np.asarray(numbers, np.int32), tuple(smiles), labels)

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def _words(self) -> np.ndarray:
        """The fingerprints, uint64 ``[ENVIRONMENTS / 64, m]``: 64 environments of all molecules."""
        there = np.zeros((len(self), ENVIRONMENTS), np.uint8)
        there[np.repeat(np.arange(len(self)), self.sizes), self.environments] = 1
        return np.ascontiguousarray(np.packbits(there, axis=1, bitorder="little").view(np.uint64).T)

    def nearest(
        self,
        fingerprints: np.ndarray,
        count: int,
        groups: np.ndarray | None = None,
        own_groups: np.ndarray | None = None,
    ) -> Nearest:
        """Return the `count` most similar molecules of the sketch, fewer where it has fewer.

        Of those that are as similar the first ones: with a larger count these stay what they are.
        One of the same group (``[n]``, and ``[m]`` of the sketch) is no neighbor: similarity -1.
        """
        count = min(count, len(self))
        parts = [(np.empty((0, count)), np.empty((0, count), np.int64))]
        rows = min(_AT_ONCE, max(1, _PAIRS // max(1, len(self))))
        for start in range(0, len(fingerprints), rows):
            some = fingerprints[start : start + rows]
            common = np.zeros((len(some), len(self)), np.int16)
            for own, stored in zip(some.T, self._words, strict=True):
                common += np.bitwise_count(own[:, None] & stored)
            sizes = np.bitwise_count(some).sum(axis=1, dtype=np.int16)
            union = sizes[:, None] + self.sizes - common
            shared = np.divide(common, union, out=np.zeros(common.shape), where=union > 0)
            if groups is not None and own_groups is not None:
                shared[groups[start : start + rows, None] == own_groups] = -1
            distance = _TIE * np.arange(len(self)) - shared
            best = np.argpartition(distance, min(count, len(self) - 1), axis=1)[:, :count]
            order = np.argsort(np.take_along_axis(distance, best, axis=1), axis=1)
            best = np.take_along_axis(best, order, axis=1)
            parts.append((np.take_along_axis(shared, best, axis=1), best))
        return Nearest(*(np.concatenate(each) for each in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class Cloud:
    """The [CLS] of the training molecules of one network, along their first principal axes.

    Attributes:
        center: float32 ``[C]``, their mean.
        axes: float32 ``[C, D]``, divided by the root of the total variance.
        points: float16 ``[m, D]``.
    """

    center: np.ndarray
    axes: np.ndarray
    points: np.ndarray

    @classmethod
    def of(cls, tokens: np.ndarray) -> Self:
        """Make it of ``[m, C]``, two molecules or more."""
        center = tokens.mean(axis=0, dtype=np.float64)
        variances, vectors = np.linalg.eigh(np.atleast_2d(np.cov((tokens - center).T)))
        factor = 1 / np.sqrt(max(float(variances.sum()), _SMALLEST))
        axes = (vectors[:, ::-1][:, :AXES] * factor).astype(np.float32)
        center = center.astype(np.float32)
        return cls(center, axes, ((tokens - center) @ axes).astype(np.float16))

    def distance(self, tokens: np.ndarray) -> np.ndarray:
        """Return the mean distance of ``[n, C]`` to the nearest five points; nan: not finite."""
        found = np.full(len(tokens), np.nan)
        finite = np.isfinite(tokens).all(axis=1)
        projected = torch.from_numpy((tokens[finite] - self.center) @ self.axes).double()
        points, means = torch.from_numpy(self.points).double(), []
        for some in projected.split(_AT_ONCE):
            distance = torch.cdist(some, points, compute_mode="donot_use_mm_for_euclid_dist")
            means.append(distance.topk(min(_NEAREST, len(points)), largest=False)[0].mean(dim=1))
        found[finite] = torch.cat(means)
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
            trained: [CLS] of training molecules in each network, float32 ``[K, m, C]``.
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
        if min(map(len, learned)) < 2 or not np.isfinite(unseen).all(axis=(0, 2)).any():
            return None, None
        clouds = tuple(map(Cloud.of, learned))
        if folds is None or own_folds is None:
            found = cls(clouds, 1.0).of(unseen)
        else:
            found = np.empty(len(folds))
            for network, cloud in enumerate(clouds):
                own = folds == network
                found[own] = cloud.distance(unseen[network, own])
        usual = max(float(np.nanmedian(found)), _SMALLEST)
        return cls(clouds, usual), found / usual

    def of(self, tokens: np.ndarray) -> np.ndarray:
        """Return how far [CLS] in each network, ``[K, n, C]``, is from training ones, ``[n]``."""
        each = [cloud.distance(one) for cloud, one in zip(self.clouds, tokens, strict=True)]
        return np.mean(each, axis=0) / self.usual
