"""Which graphs a network is trained and validated on, and what their labels are.

n molecules · T targets.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graphormer_sepnorm.datasets.splits import SPLITS, DatasetSplits
from graphormer_sepnorm.datasets.splitting import assign_folds, without_large_groups
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import packed_blocks
from graphormer_sepnorm.graphs.task import Task


@dataclass(frozen=True)
class MemberFolds:
    """How training and validation split together are assigned to the members of an ensemble.

    Attributes:
        count: The number of folds, one for each member.
        own: The fold that this member validates on, from 0; it trains on the others. None: of all
            members together.
    """

    count: int
    own: int | None = None


@dataclass(frozen=True)
class GraphIndices:
    """Indices of graphs in the store, where training, validation and test follow one another.

    Attributes:
        splits: The data set.
        weights: Gives the weight of each graph of the store, ``[G]``.
        folds: Of the members of an ensemble; None where all validate on the validation split.
    """

    splits: DatasetSplits
    weights: Callable[[], np.ndarray]
    folds: MemberFolds | None = None

    def of(self, split: str) -> np.ndarray:
        """Return those of a split, int64 ``[n]``; a member's, where it has its own."""
        if self.folds is None or self.folds.own is None or split == "test":
            return self._of_split(split)
        held_out = self.assigned == self.folds.own
        if split == "train":
            return np.flatnonzero(~held_out)
        return self.weighed(np.flatnonzero(held_out))

    @cached_property
    def assigned(self) -> np.ndarray:
        """The fold of each graph of training and validation split, int64 ``[n]``.

        By scaffold where the split is, or is by time, but for scaffolds larger than half a fold.

        Raises:
            DataError: There are fewer different molecules than folds.
        """
        groups = self.splits.groups
        assert self.folds is not None
        assert groups is not None
        scaffolds, molecules = zip(*groups["train"], *groups["validation"], strict=True)
        if len(set(molecules)) < self.folds.count:
            raise DataError(
                f"{self.splits.name}: {len(set(molecules)):,} different molecules to train and "
                f"validate on cannot be assigned to {self.folds.count} folds: give --ensemble_by "
                "seeds"
            )
        apart = without_large_groups(scaffolds, molecules, self.folds.count)
        return assign_folds(apart, self.folds.count, "members")

    @property
    def described(self) -> np.ndarray:
        """Those from which scaling, vocabulary and summary are taken.

        The training split; where members of an ensemble have folds, all that they are trained on
        together, so that they agree.
        """
        train = self._of_split("train")
        return train if self.folds is None else np.append(train, self._of_split("validation"))

    @property
    def validated(self) -> np.ndarray:
        """Those that a network, or an ensemble's networks together, validate on."""
        if self.folds is not None and self.folds.own is None:
            return self.weighed(self.described)
        return self.of("validation")

    @property
    def of_members(self) -> list[np.ndarray]:
        """Those that each member validates on, seen from their ensemble; none elsewhere."""
        if self.folds is None or self.folds.own is not None:
            return []
        return [self.weighed(np.flatnonzero(self.assigned == k)) for k in range(self.folds.count)]

    @property
    def trained_on(self) -> int:
        """How many a network is trained on; with folds on average, the same for all members."""
        share = 1 if self.folds is None else 1 - 1 / self.folds.count
        return round(len(self.described) * share)

    def weighed(self, indices: np.ndarray) -> np.ndarray:
        """Return those of some graphs that do not weigh 0; all of them, if none weighs more.

        Where folds evaluate molecules of training by what was trained on others, those that weigh
        0 are not evaluated, and they are no neighbors of what is predicted.
        """
        known = np.asarray(self.weights()[indices]) > 0
        return indices[known] if known.any() else indices

    def _of_split(self, split: str) -> np.ndarray:
        sizes = [len(part) for part in self.splits.parts.values()]
        at = SPLITS.index(split)
        return np.arange(sizes[at]) + sum(sizes[:at])


def digest_of(parts: Iterable[Iterable[Any]]) -> str:
    """Hash somebody else's graphs, with their labels and weights."""
    digest = hashlib.sha256()
    for block in packed_blocks(itertools.chain(*parts)):
        for array in vars(block).values():
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def check_labels(labels: np.ndarray, splits: DatasetSplits) -> None:
    """Refuse labels of somebody else's graphs, ``[n, T]`` split after split, nan = missing.

    Raises:
        DataError: There are those of more or fewer targets, or one is not what its task takes.
    """
    task = splits.task
    if labels.shape[1] != len(task.targets):
        raise DataError(
            f"{splits.name}: graphs have {labels.shape[1]} labels, the task names "
            f"{len(task.targets)} targets ({', '.join(task.targets)}): give y a value for each, "
            "nan where it is missing"
        )
    binary = task.kind == "binary"
    wrong = ~np.isin(labels, (0, 1)) & ~np.isnan(labels) if binary else np.isinf(labels)
    if wrong.any():
        graph, target = np.argwhere(wrong)[0].tolist()
        places = [(name, at) for name, part in splits.parts.items() for at in range(len(part))]
        split, at = places[graph]
        wanted = "0 or 1, as a binary target takes" if binary else "a finite number"
        raise DataError(
            f"{splits.name}, graph {at} of the {split} split: the label of {task.targets[target]} "
            f"is {labels[graph, target]:g}: give {wanted}, or nan where it is missing"
        )


def scaling(
    labels: np.ndarray, weights: np.ndarray | None, task: Task, name: str
) -> tuple[list[float], list[float]]:
    """Return mean and deviation of the labels ``[n, T]`` of each target, by the rows' weights.

    Missing labels are left out. Binary targets are not scaled: mean 0, deviation 1.

    Raises:
        DataError: A target of the data set `name` has no label.
    """
    weights = np.ones(len(labels)) if weights is None else weights
    labels = np.where(weights[:, None] > 0, labels, np.nan)
    empty = np.asarray(np.isnan(labels).all(axis=0))
    if empty.any():
        names = [target for target, none in zip(task.targets, empty, strict=True) if none]
        raise DataError(f"{name}: no training label for {', '.join(names)}")
    if task.kind == "binary":
        return [0.0] * len(task.targets), [1.0] * len(task.targets)
    if (weights == weights[0]).all():
        mean, deviation = np.nanmean(labels, axis=0), np.nanstd(labels, axis=0)
    else:
        shares = np.where(np.isnan(labels), 0.0, weights[:, None])
        shares /= shares.sum(axis=0)
        mean = np.nansum(shares * labels, axis=0)
        deviation = np.sqrt(np.nansum(shares * (labels - mean) ** 2, axis=0))
    # By inexact shares the deviation of a constant target would be a little above 0.
    deviation = np.where(np.nanmin(labels, axis=0) == np.nanmax(labels, axis=0), 0.0, deviation)
    # A constant target cannot be scaled to deviation 1; it is only shifted.
    return mean.tolist(), np.where(deviation > 0, deviation, 1.0).tolist()
