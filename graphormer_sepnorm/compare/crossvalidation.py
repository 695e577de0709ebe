"""What a cross-validation was asked to do, kept as ``crossvalidation.yaml`` in its directory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from graphormer_sepnorm.compare.arms import Arm
from graphormer_sepnorm.compare.comparison import Comparison
from graphormer_sepnorm.compare.runner import Run

# Without --arms: the options that are given, and no others.
ONE_MODEL = (Arm("graphormer", {}),)
# Each run has its own.
FOLD_OPTIONS = ("data.folds", "data.fold", "data.split_seed")


@dataclass(frozen=True)
class FoldRun(Run):
    """One arm, trained without one fold.

    Attributes:
        repeat: From 0.
        fold: The fold that is the test split, from 0.
        named: Whether the arm has a name of its own.
    """

    repeat: int
    fold: int
    named: bool

    @property
    def name(self) -> str:
        """How it is called in messages."""
        return f"{f'{self.arm} ' if self.named else ''}repeat {self.repeat} fold {self.fold}"

    @property
    def columns(self) -> dict[str, Any]:
        """What it is called in a table: ``arm``, if that has a name, ``repeat`` and ``fold``."""
        arm = {"arm": self.arm} if self.named else {}
        return arm | {"repeat": self.repeat, "fold": self.fold}


@dataclass(frozen=True)
class CrossValidation(Comparison):
    """Arms and repeats of a cross-validation, each of which trains on every fold.

    `seeds` are those of the repeats, one after the other: each repeat has other folds and begins
    with other values. The data of `dataset_fingerprint` are the first fold's.

    Attributes:
        folds: How many.
        split_seed: Of the folds of the first repeat.
    """

    file: ClassVar[str] = "crossvalidation.yaml"
    folds: int = 5
    split_seed: int = 0

    @property
    def with_arms(self) -> bool:
        """Whether arms were named."""
        return self.arms != ONE_MODEL

    def runs(self, directory: Path) -> Sequence[FoldRun]:
        """Return all runs, fold by fold, so that what is finished early is paired."""
        base_options = self.words_in(directory)
        return [
            FoldRun(
                arm.name,
                seed,
                place := (directory / arm.name if self.with_arms else directory)
                / f"repeat{repeat}"
                / f"fold{fold}",
                (
                    *base_options,
                    *arm.arguments,
                    f"--data.folds={self.folds}",
                    f"--data.fold={fold}",
                    f"--data.split_seed={self.split_seed + repeat}",
                    f"--seed_everything={seed}",
                    f"--output={place}",
                ),
                repeat,
                fold,
                self.with_arms,
                again=self.again(arm),
            )
            for repeat, seed in enumerate(self.seeds)
            for fold in range(self.folds)
            for arm in self.arms
        ]

    def command_line(self) -> list[str]:
        """The words of one command that does all of this, however it was really put together."""
        arms = self.arms_option() if self.with_arms else []
        return [
            "python",
            "train.py",
            "crossvalidate",
            *self.base_options,
            *arms,
            "--folds",
            str(self.folds),
            "--repeats",
            str(len(self.seeds)),
            "-o",
            "DIR",
        ]
