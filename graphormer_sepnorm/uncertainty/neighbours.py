"""The molecules of training that are most like a given one, by a sketch that a model file keeps.

n molecules · m of training · k neighbours · T targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from scipy.sparse import csr_array

from graphormer_sepnorm.chem.fingerprints import ENVIRONMENTS
from graphormer_sepnorm.errors import CheckpointError

# About 100 bytes each, 4 MB in all, and their SMILES. Of more molecules so many are drawn.
MOST_KEPT = 40_000
_AT_ONCE = 128
# Two different similarities are further apart than so many times the number of kept molecules.
_TIE = 1e-11
# In the mean error of neighbours they count by similarity to this power, and the mean error of all
# as much as a molecule of this weight.
_POWER, _PRIOR = 3, 0.1


class Nearest(NamedTuple):
    """Neighbours, the most similar first.

    Attributes:
        similarity: float64 ``[n, k]``, Tanimoto's of the sets of Morgan environments, 0 to 1.
        rows: int64 ``[n, k]``, which molecules of the sketch these are.
    """

    similarity: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True, eq=False)
class Neighbours:
    """A sketch of the molecules that a model was trained on.

    Attributes:
        environments: bool ``[m, ENVIRONMENTS]``, sparse: the Morgan environments of each.
        numbers: int64 ``[m]``, by which they are known: rows of a table.
        smiles: Of each; empty where they are not kept.
        labels: float64 ``[m, T]``, nan = missing; None where they are not kept.
    """

    environments: csr_array
    numbers: np.ndarray
    smiles: tuple[str, ...] = ()
    labels: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        fingerprints: csr_array,
        numbers: np.ndarray,
        smiles: Sequence[str] = (),
        labels: np.ndarray | None = None,
    ) -> Self:
        """Make a sketch of molecules, at most `MOST_KEPT`; see `drawn`.

        Args:
            fingerprints: What `morgan_counts` gives, ``[m, ENVIRONMENTS]``.
            numbers: By which they are known, int64 ``[m]``.
            smiles: Of each, to keep them; empty: none are kept.
            labels: ``[m, T]``, to keep them.
        """
        return cls(csr_array(fingerprints > 0), np.asarray(numbers), tuple(smiles), labels)

    def __len__(self) -> int:
        return len(self.numbers)

    @cached_property
    def _by_environment(self) -> csr_array:
        """Which molecules have an environment, float32 ``[ENVIRONMENTS, m]``."""
        return csr_array(self.environments.T, dtype=np.float32)

    def nearest(
        self,
        fingerprints: csr_array,
        count: int,
        groups: np.ndarray | None = None,
        own_groups: np.ndarray | None = None,
    ) -> Nearest:
        """Return the `count` most similar molecules of the sketch, fewer where it has fewer.

        Of those that are as similar the first ones: with a larger count these stay what they are.

        Args:
            fingerprints: What `morgan_counts` gives, ``[n, ENVIRONMENTS]``.
            count: How many.
            groups: int64 ``[n]``: a molecule of the sketch with the same number in `own_groups` is
                no neighbour (similarity -1).
            own_groups: int64 ``[m]``.
        """
        sizes = np.diff(self.environments.indptr)
        count = min(count, len(self))
        parts = [(np.empty((0, count)), np.empty((0, count), np.int64))]
        for start in range(0, len(np.diff(fingerprints.indptr)), _AT_ONCE):
            some = csr_array(fingerprints[start : start + _AT_ONCE] > 0, dtype=np.float32)
            common = csr_array(some @ self._by_environment).toarray()
            union = np.diff(some.indptr)[:, None] + sizes - common
            shared = np.divide(common, union, out=np.zeros(common.shape), where=union > 0)
            if groups is not None and own_groups is not None:
                shared[groups[start : start + _AT_ONCE, None] == own_groups] = -1
            distance = _TIE * np.arange(len(self)) - shared
            best = np.argpartition(distance, min(count, len(self) - 1), axis=1)[:, :count]
            order = np.argsort(np.take_along_axis(distance, best, axis=1), axis=1)
            best = np.take_along_axis(best, order, axis=1)
            parts.append((np.take_along_axis(shared, best, axis=1), best))
        return Nearest(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def to_plain(self) -> dict[str, Any]:
        """Return it as a checkpoint holds it."""
        plain: dict[str, Any] = {
            "environments": torch.from_numpy(self.environments.indices.astype(np.int16)),
            "sizes": torch.from_numpy(np.diff(self.environments.indptr).astype(np.int16)),
            "numbers": torch.from_numpy(self.numbers.astype(np.int32)),
        }
        if self.smiles:
            plain["smiles"] = list(self.smiles)
        if self.labels is not None:
            plain["labels"] = torch.from_numpy(self.labels)
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Self:
        """Make it from what `to_plain` gave, of which the kinds have been checked.

        Raises:
            CheckpointError: It has an environment that cannot be.
        """
        columns, sizes = (plain[name].numpy() for name in ("environments", "sizes"))
        starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        if len(columns) and not 0 <= columns.min() <= columns.max() < ENVIRONMENTS:
            raise CheckpointError(
                f"confidence.neighbours has an environment that is not below {ENVIRONMENTS}"
            )
        labels = plain.get("labels")
        return cls(
            csr_array(
                (np.ones(len(columns), bool), columns.astype(np.int32), starts),
                shape=(len(sizes), ENVIRONMENTS),
            ),
            plain["numbers"].numpy().astype(np.int64),
            tuple(plain.get("smiles", ())),
            None if labels is None else labels.numpy(),
        )


def drawn(count: int, most: int) -> np.ndarray:
    """Return which of so many molecules are taken, int64, increasing: all, or `most` of them."""
    if count <= most:
        return np.arange(count)
    return np.sort(np.random.default_rng(0).permutation(count)[:most])


def mean_errors(nearest: Nearest, errors: np.ndarray) -> np.ndarray:
    """Return how wrong a model was on the neighbours of each molecule, ``[n]``.

    A mean by similarity, drawn to the mean over all where there is nothing similar.

    Args:
        nearest: The neighbours.
        errors: float64 ``[m]``, absolute ones; nan where not known.
    """
    overall = float(np.nanmean(errors)) if np.isfinite(errors).any() else 0.0
    known = errors[nearest.rows]
    weights = np.clip(nearest.similarity, 0, None) ** _POWER * np.isfinite(known)
    total = (weights * np.nan_to_num(known)).sum(axis=1)
    return (total + _PRIOR * overall) / (weights.sum(axis=1) + _PRIOR)
