"""What can be said about a table to train on, checked as far as that needs no file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from graphormer_sepnorm.chem.standardise import STEPS
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.tables.reader import Layout

Kind = Literal["auto", "regression", "binary", "multiclass"]
Split = Literal["auto", "random", "scaffold", "group", "time", "column", "files"]
Duplicates = Literal["keep", "mean", "median"]
ClassWeight = Literal["balanced"]
OnInvalid = Literal["skip", "error"]
Descriptors = Literal["rdkit"]

ALL = "all"  # target columns: every one of numbers
DEFAULT_FRACTIONS = (0.8, 0.1, 0.1)
_PATHS = ("table", "validation_table", "test_table")
TUPLES = ("target_columns", "split_fractions", "units", "standardise", "descriptor_columns")


@dataclass(frozen=True)
class TableOptions:
    """A table to train on: which files, which columns, which split.

    The names are those of the options on the command line and in checkpoints, which
    `MoleculeDataModule` explains. What takes several names is empty where none is given.

    Raises:
        ConfigError: A value does not exist or contradicts another one.
    """

    table: Path
    validation_table: Path | None = None
    test_table: Path | None = None
    smiles_column: str | None = None
    sheet: str | None = None
    header_row: int | None = None
    target_columns: tuple[str, ...] = ()
    weight_column: str | None = None
    id_column: str | None = None
    task: Kind = "auto"
    split: Split = "auto"
    split_column: str | None = None
    group_column: str | None = None
    time_column: str | None = None
    split_fractions: tuple[float, float, float] = DEFAULT_FRACTIONS
    split_seed: int = 0
    folds: int | None = None
    fold: int | None = None
    on_invalid: OnInvalid = "skip"
    duplicates: Duplicates = "keep"
    positive: str | None = None
    class_weight: ClassWeight | None = None
    units: tuple[str, ...] = ()
    standardise: tuple[str, ...] = ()
    descriptors: Descriptors | None = None
    descriptor_columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, choices in (
            ("task", Kind),
            ("split", Split),
            ("on_invalid", OnInvalid),
            ("duplicates", Duplicates),
            ("class_weight", ClassWeight),
            ("descriptors", Descriptors),
        ):
            value = getattr(self, name)
            if value is not None and value not in get_args(choices):
                raise ConfigError(
                    f"--data.{name} is {value!r}{did_you_mean(str(value), get_args(choices))}: "
                    f"it must be one of {', '.join(get_args(choices))}"
                )
        for name in self.standardise:
            if name not in STEPS:
                raise ConfigError(
                    f"--data.standardise names {name!r}{did_you_mean(name, STEPS)}: there are "
                    f"{', '.join(STEPS)}"
                )
        if self.task == "multiclass" and len(self.target_columns) != 1:
            raise ConfigError(
                "--data.task multiclass is for one column, whose values are the classes: name it "
                "with --data.target_columns '[COLUMN]'"
            )
        if self.positive is not None and self.task not in ("auto", "binary"):
            raise ConfigError(
                f"--data.positive {self.positive} is for two classes, not --data.task {self.task}"
            )
        if self.positive is not None and self.target_columns in ((), (ALL,)):
            raise ConfigError(
                f"--data.positive {self.positive} is a class of which column? Give "
                "--data.target_columns '[COLUMN]'"
            )
        self._check_split()
        self._check_folds()
        for option in ("target_columns", "descriptor_columns"):
            names = getattr(self, option)
            for name in names:
                if names.count(name) > 1:
                    raise ConfigError(f"--data.{option} names {name!r} twice: name it once")
        named = self.target_columns != (ALL,) and self.target_columns  # of "all" it shows later
        if self.units and named and len(self.units) != len(self.target_columns):
            raise ConfigError(
                f"--data.units has {len(self.units)} units for {len(self.target_columns)} target "
                "columns: give one for each, '' where there is none"
            )

    def _check_split(self) -> None:
        fractions = self.split_fractions
        if len(fractions) != 3 or min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-9:
            raise ConfigError(
                f"--data.split_fractions is {list(fractions)}: give the shares of training, "
                "validation and test, each above 0, that add up to 1"
            )
        given = [path is not None for path in (self.validation_table, self.test_table)]
        files = any(given)
        if (files or self.split == "files") and not all(given):
            missing = "test_table" if self.validation_table is not None else "validation_table"
            raise ConfigError(
                f"separate files need all three of --data.table, --data.validation_table and "
                f"--data.test_table: give --data.{missing} too"
            )
        by_column = {"column": "split_column", "group": "group_column", "time": "time_column"}
        option = by_column.get(self.split, "")
        if option and getattr(self, option) is None:
            raise ConfigError(f"--data.split {self.split} needs --data.{option}: name the column")
        for is_given, option, wanted in (
            (files, "validation_table", "files"),
            *((getattr(self, name) is not None, name, split) for split, name in by_column.items()),
        ):
            if is_given and self.resolved_split != wanted:
                raise ConfigError(
                    f"--data.split {self.resolved_split} takes no --data.{option}: leave one of "
                    "them out"
                )
        seeded = self.resolved_split in ("random", "group") or self.folds is not None
        if self.split_seed and not seeded:
            raise ConfigError(
                f"--data.split_seed {self.split_seed} decides a random split, and this is "
                f"{self.resolved_split}: give --data.split random, or leave it out"
            )

    def _check_folds(self) -> None:
        folds, fold = self.folds, self.fold
        if folds is None:
            if fold is not None:
                raise ConfigError(f"--data.fold {fold} is one of how many? Give --data.folds too")
            return
        if folds < 2:
            raise ConfigError(f"--data.folds is {folds}: it must be 2 or more")
        if fold is None:
            raise ConfigError(
                f"--data.folds {folds} needs --data.fold, 0 to {folds - 1}, the one that is the "
                f"test split; for all of them: train.py crossvalidate --folds {folds}"
            )
        if not 0 <= fold < folds:
            raise ConfigError(
                f"--data.fold is {fold}: of {folds} folds it must be from 0 to {folds - 1}"
            )
        if self.resolved_split not in ("random", "scaffold", "group"):
            raise ConfigError(
                f"--data.folds {folds} deals out the molecules itself, and --data.split "
                f"{self.resolved_split} says where they go: leave one of them out"
            )
        if tuple(self.split_fractions) != DEFAULT_FRACTIONS:
            raise ConfigError(
                f"--data.folds {folds} decides the shares of the splits: leave "
                "--data.split_fractions out"
            )

    @property
    def resolved_split(self) -> Literal["random", "scaffold", "group", "time", "column", "files"]:
        """The split that ``auto`` stands for."""
        if self.split != "auto":
            return self.split
        if self.validation_table is not None:
            return "files"
        if self.split_column is not None:
            return "column"
        if self.group_column is not None:
            return "group"
        return "scaffold" if self.time_column is None else "time"

    @property
    def column_of_split(self) -> str | None:
        """The column that says the split, the group or the time; None: there is none."""
        return self.split_column or self.group_column or self.time_column

    @property
    def layout(self) -> Layout:
        """Which part of each file is the table."""
        return Layout(self.sheet, self.header_row, self.smiles_column, "--data.")

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files: one, or training, validation and test."""
        if self.validation_table is None or self.test_table is None:
            return (self.table,)
        return (self.table, self.validation_table, self.test_table)

    def to_plain(self) -> dict[str, Any]:
        """Return the options under their names on the command line, as plain values.

        Paths are absolute. For a checkpoint; `from_data_options` is the way back.
        """
        plain = dataclasses.asdict(self)
        for name in _PATHS:
            path: Path | None = plain[name]
            plain[name] = None if path is None else str(path.expanduser().resolve())
        return plain | {name: list(plain[name]) or None for name in TUPLES}

    @classmethod
    def from_data_options(cls, options: Mapping[str, Any]) -> TableOptions:
        """Make the options from their names on the command line (``table``, ``task``, ...).

        Args:
            options: What is missing has its default, and so has a target column or unit of None.

        Raises:
            ConfigError: A value does not exist or contradicts another one.
        """
        values = dict(options)
        for name in values.keys() & set(_PATHS):
            values[name] = Path(values[name]).expanduser() if values[name] else None
        for name in values.keys() & set(TUPLES):
            values[name] = as_tuple(name, values[name])
        return cls(**values)


def as_tuple(name: str, given: Any) -> tuple[Any, ...]:
    """Return the value of one of the options `TUPLES`, which may be given as a list or as text."""
    if isinstance(given, str):
        given = _listed(given, commas=name == "descriptor_columns")
    return tuple(given or ())


def _listed(names: str, commas: bool) -> list[str]:
    """One name may be given without the brackets of a list; with `commas` several may.

    Names that YAML takes for something else, as in ``[720,721]`` or ``[on]``, arrive as one text.
    """
    in_brackets = names.startswith("[") and names.endswith("]")
    bare = names[1:-1] if in_brackets else names
    if commas or in_brackets:
        return [name.strip().strip("'\"") for name in bare.split(",")]
    return [names]
