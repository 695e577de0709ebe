"""Kernel ridge regression on counts of substructures: what a checkpoint can hold, how it predicts.

The kernel of two molecules is the mean of three min-max kernels (Ralaivola et al. 2005), each on
counts c of another kind of substructure: Σₖ min(cₖ, c'ₖ) / Σₖ max(cₖ, c'ₖ).

n molecules · m landmarks · V pairs of a substructure and a count · G kinds · T targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.special import expit

from graphormer_sepnorm.chem.fingerprints import SUBSTRUCTURES, Substructures

# Rows of a kernel that are computed at once.
_ROWS = 500


@dataclass(frozen=True, eq=False)
class Counts:
    """Substructures of molecules, one kind after the other.

    min(a, b) = Σₖ [a ≥ k][b ≥ k], so that molecules are sets of pairs (substructure, k), and the
    sum of minima is the size of the intersection: a sparse product.

    Attributes:
        vocabulary: By kind, the V pairs that occur, int64, increasing.
        sets: By kind, float32 ``[n, V]`` of ones.
        sizes: How many pairs a molecule has, those outside the vocabulary too, float32 ``[n, G]``.
    """

    vocabulary: tuple[np.ndarray, ...]
    sets: tuple[csr_array, ...]
    sizes: np.ndarray

    @classmethod
    def of(cls, found: Substructures, vocabulary: Sequence[np.ndarray] | None = None) -> Self:
        """Count the substructures of molecules.

        Args:
            found: By `substructures`.
            vocabulary: Pairs to look for. None: all that occur.
        """
        count = len(found[next(iter(SUBSTRUCTURES))])
        vocabularies: list[np.ndarray] = []
        sets: list[csr_array] = []
        sizes = np.zeros((count, len(SUBSTRUCTURES)), np.float32)
        for kind, name in enumerate(SUBSTRUCTURES):
            keys = found[name]
            lengths = np.array([len(some) for some in keys], np.int64)
            flat = np.concatenate([np.empty(0, np.int64), *keys])
            known = np.unique(flat) if vocabulary is None else vocabulary[kind]
            column = np.searchsorted(known, flat)
            there = column < len(known)
            there[there] = known[column[there]] == flat[there]
            rows = np.repeat(np.arange(count), lengths)[there]
            shape = (count, len(known))
            ones = np.ones(len(rows), np.float32)
            sets.append(csr_array((ones, (rows, column[there])), shape=shape))
            vocabularies.append(known)
            sizes[:, kind] = lengths
        return cls(tuple(vocabularies), tuple(sets), sizes)

    def similarities(self, others: Counts) -> np.ndarray:
        """Return the kernel of all molecules and `others`, 0 to 1, float64 ``[n, m]``.

        Both have one vocabulary.
        """
        result = np.zeros((len(self.sizes), len(others.sizes)))
        for kind, columns in enumerate(others.sets):
            transposed = columns.T.tocsr()
            for start in range(0, len(result), _ROWS):
                rows = slice(start, start + _ROWS)
                both = (self.sets[kind][rows] @ transposed).toarray().astype(np.float64)
                union = self.sizes[rows, kind, None] + others.sizes[None, :, kind] - both
                result[rows] += np.divide(both, union, out=np.ones_like(both), where=union > 0)
        return result / len(others.sets)


@dataclass(frozen=True, eq=False)
class Kernel:
    """Kernel ridge regression of one or several targets: Σⱼ αⱼ (k(x, xⱼ) + 1) + intercept.

    Attributes:
        landmarks: The substructures of the m molecules xⱼ.
        alpha: float64 ``[m, T]``, in units of the labels, or log-odds; nan without a model.
        intercept: float64 ``[T]``.
        logistic: Whether the sum is a logit.
    """

    landmarks: Counts
    alpha: np.ndarray
    intercept: np.ndarray
    logistic: bool

    def predict(self, found: Substructures) -> np.ndarray:
        """Return values or probabilities of class 1, float64 ``[n, T]``; nan without a model.

        Of molecules by their `substructures`.
        """
        counts = Counts.of(found, self.landmarks.vocabulary)
        values = (counts.similarities(self.landmarks) + 1) @ self.alpha + self.intercept
        return expit(values) if self.logistic else values

    def to_plain(self) -> dict[str, Any]:
        """Return dictionaries, lists and tensors, for a checkpoint."""
        kinds = [
            {"vocabulary": known, "columns": one.indices, "starts": one.indptr}
            for known, one in zip(self.landmarks.vocabulary, self.landmarks.sets, strict=True)
        ]
        arrays = {"sizes": self.landmarks.sizes, "alpha": self.alpha, "intercept": self.intercept}
        return {
            "kinds": [{name: torch.tensor(array) for name, array in one.items()} for one in kinds],
            **{name: torch.tensor(array) for name, array in arrays.items()},
            "logistic": self.logistic,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any], targets: int) -> Self:
        """Make it, of so many targets, from what `to_plain` gave.

        Raises:
            ValueError: Arrays do not fit each other.
        """
        sizes = plain["sizes"].numpy()
        vocabulary, sets = [], []
        for one in plain["kinds"]:
            known, columns, starts = (one[n].numpy() for n in ("vocabulary", "columns", "starts"))
            ones = np.ones(len(columns), np.float32)
            made = csr_array((ones, columns, starts), shape=(len(sizes), len(known)))
            made.check_format(full_check=True)  # indices come from a file
            vocabulary.append(known)
            sets.append(made)
        landmarks = Counts(tuple(vocabulary), tuple(sets), sizes)
        alpha, intercept = plain["alpha"].numpy(), plain["intercept"].numpy()
        shapes = sizes.shape, alpha.shape, intercept.shape, len(sets)
        kinds = len(SUBSTRUCTURES)
        if shapes != ((len(sizes), kinds), (len(sizes), targets), (targets,), kinds):
            raise ValueError("the arrays of its kernel do not fit each other")
        return cls(landmarks, alpha, intercept, plain["logistic"])
