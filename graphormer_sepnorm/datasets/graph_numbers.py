"""Which graphs a network is trained and validated on: those of a split, or of a member's folds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from graphormer_sepnorm.datasets.folds import deal, without_large_groups
from graphormer_sepnorm.datasets.splits import SPLITS, DatasetSplits
from graphormer_sepnorm.errors import DataError


@dataclass(frozen=True)
class MemberFolds:
    """How training and validation split together are dealt out to the members of an ensemble.

    Attributes:
        count: The number of folds, one for each member.
        own: The fold that this member validates on, from 0; it trains on the others. None: of all
            members together.
    """

    count: int
    own: int | None = None


@dataclass(frozen=True)
class GraphNumbers:
    """Numbers of graphs in the store, where training, validation and test follow one another.

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
        held = self.dealt == self.folds.own
        return np.flatnonzero(~held) if split == "train" else self.weighed(np.flatnonzero(held))

    @cached_property
    def dealt(self) -> np.ndarray:
        """The fold of each graph of training and validation split, int64 ``[n]``.

        Dealt by scaffold where the split is, but for scaffolds larger than half a fold.

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
                f"validate on cannot be dealt into {self.folds.count} folds: give --ensemble_by "
                "seeds"
            )
        apart = without_large_groups(scaffolds, molecules, self.folds.count)
        return deal(apart, self.folds.count, "members")

    @property
    def described(self) -> np.ndarray:
        """Those from which scaling, vocabulary and summary are taken.

        The training split; where members of an ensemble have folds, all that they are trained on
        together, so that they agree.
        """
        if self.folds is None:
            return self._of_split("train")
        return np.concatenate([self._of_split("train"), self._of_split("validation")])

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
        return [self.weighed(np.flatnonzero(self.dealt == k)) for k in range(self.folds.count)]

    @property
    def trained_on(self) -> int:
        """How many a network is trained on; with folds on average, the same for all members."""
        if self.folds is None:
            return len(self._of_split("train"))
        return round(len(self.described) * (1 - 1 / self.folds.count))

    def weighed(self, numbers: np.ndarray) -> np.ndarray:
        """Return those of some graphs that do not weigh 0; all of them, if none weighs more.

        Where folds make molecules of training judge what was trained on others, those that weigh 0
        judge nothing, and they are no neighbours of what is predicted.
        """
        known = np.asarray(self.weights()[numbers]) > 0
        return numbers[known] if known.any() else numbers

    def _of_split(self, split: str) -> np.ndarray:
        sizes = [len(part) for part in self.splits.parts.values()]
        position = SPLITS.index(split)
        return np.arange(sizes[position]) + sum(sizes[:position])
