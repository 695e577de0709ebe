"""Every option of the data, once; see `config`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.values import Options, ranged

ALL = "all"  # target columns: every one of numbers
STANDARDIZE = ("fragment", "neutralize", "tautomer")
# The splits that decide themselves where molecules go, and the options of the others.
DEALT = ("random", "scaffold", "group")
_SPLIT_OPTIONS = {
    "files": ("validation_table", "test_table"),
    "column": ("split_column",),
    "group": ("group_column",),
    "time": ("time_column",),
}
_FILES = ("table", "validation_table", "test_table", "molecules")
_LISTS = (
    *("target_columns", "split_fractions", "units", "standardize", "descriptor_columns"),
    "label_transform",
)
# Options of the data that are for other data sets than tables, too.
_OF_ALL_DATA = (
    *("dataset", "root", "batch_size", "eval_batch_size", "num_workers", "attention_blocks"),
    *("member_folds", "member_fold", "molecules"),
)


@dataclass(frozen=True)
class DataConfig(Options):
    """Molecules in three splits, and the batches that are made of them.

    Attributes:
        dataset: zinc-subset, zinc, ogbg-molhiv, sample (bundled, nothing is downloaded) or table
            (a file of your own). null takes table if one is given, else zinc-subset.
        root: The data root: raw files are looked for and downloads and the graph store are kept
            here. A relative path is relative to where the command was started.
        batch_size: Graphs in a training batch, at least 2; several processes share them. Batches
            are random and nearly equal in size. Memory and time of a step grow linearly with it.
            With accumulated gradients this is the micro-batch, and BatchNorm in the model sees
            the micro-batch.
        eval_batch_size: Graphs in a batch of validation and test; null takes batch_size. The
            results do not depend on it.
        num_workers: Processes that prepare batches. 0 prepares them in the training process, which
            is best on a few CPU cores; 2 to 4 hide the work behind a GPU.
        attention_blocks: Groups of similar size that a batch is split into for attention. More
            groups mean less padding but more, smaller operations; results are the same.
        table: Your own molecules with labels: CSV, TSV or SDF (gzipped too), Parquet or
            Excel.
        validation_table: A file of its own for the validation split.
        test_table: A file of its own for the test split.
        smiles_column: Column of the SMILES of a table, or of molecules for pretraining; null finds
            it by its name.
        sheet: Of Excel files, the sheet's name or its number from 1; null takes the only one with a
            column of SMILES.
        header_row: The row (line) of Excel, CSV and TSV files that names the columns, from 1; null
            takes the first.
        target_columns: Columns of the labels; null takes the only column with numbers, all every
            one. Missing labels are left out of the loss and the metrics.
        weight_column: Column of weights in the training loss, 0 or more; null weighs all rows the
            same. Metrics are not weighted; but by folds of an ensemble rows of 0 are not
            validated on.
        id_column: Column that names the rows, for the files of a run; null takes the first whose
            name says so, such as compound_id.
        task: regression, binary (labels 0 and 1), multiclass (each different value of the only
            target column is a class), or auto: binary if there are no other labels than 0 and 1.
        units: Unit of each target, for messages.
        split: random, scaffold (molecules with the same ring systems stay together), group, time,
            column or files; auto takes files or a column if they are given, else scaffold.
        split_column: Column that says train, validation or test; the last two may be missing, as
            files of their own may.
        group_column: Column of groups that stay together, such as a series or a laboratory.
        time_column: Column of numbers or dates (2024-05-31): the newest rows are the test split,
            the next newest the validation split.
        split_fractions: Shares of training, validation and test split.
        split_seed: Decides the random split, and the folds; not tied to seed_everything, so that
            runs with different seeds share their split.
        folds: Number of folds of a cross-validation, by chance or by scaffold as split says;
            train.py crossvalidate trains on all of them.
        fold: The fold that is the test split, from 0; a tenth of the others is the validation
            split.
        member_folds: For the members of an ensemble (--ensemble_by folds): training and validation
            split together are divided into so many folds, by scaffold where the split is.
        member_fold: The fold that this member validates on, from 0; it trains on the others.
        on_invalid: What to do with rows that cannot be used: skip lists them and goes on, error
            stops at the first.
        duplicates: What to do with rows of one molecule: keep them, or bring them to one with the
            mean or median of their labels.
        label_transform: log learns ln(y) in place of each target's labels y, which are 0 or more;
            a list does so for these targets; auto for skewed ones of which kernel ridge regression
            has the smaller mean error out of fold then. Predictions and intervals come in the unit
            of the labels. null learns labels as they are.
        positive: The class that is 1, as it stands in the target column; all others are 0.
        class_weight: balanced gives both classes, or all, the same weight in the training loss;
            for a single target. Metrics are not weighted.
        standardize: What is done to each molecule of a table first, and again at prediction: some
            of fragment (the largest one, without salts and solvents), neutralize (charges that
            protons can remove), tautomer (RDKit's canonical one).
        descriptors: rdkit lets predictions be read from RDKit's descriptors too, next to what the
            network makes of the graph; for a table. Costs 4 to 10 ms a molecule, once.
        descriptor_columns: Columns of numbers that predictions are read from too, such as a
            temperature or a pH. A missing value stands for the mean; predict.py needs them too.
        molecules: Molecules without labels for dataset pretraining: SMILES, one on each line, or a
            table with a column of them. Their descriptors are what is learned.
    """

    section: ClassVar[str] = "--data."
    dataset: str | None = None
    root: str = "data"
    batch_size: int = ranged(256, least=2)
    eval_batch_size: int | None = ranged(None, least=1)
    num_workers: int = ranged(0, least=0)
    attention_blocks: int = ranged(1, least=1)
    table: str | None = None
    validation_table: str | None = None
    test_table: str | None = None
    smiles_column: str | None = None
    sheet: str | None = None
    header_row: int | None = ranged(None, least=1)
    target_columns: list[str] | str | None = None
    weight_column: str | None = None
    id_column: str | None = None
    task: Literal["auto", "regression", "binary", "multiclass"] = "auto"
    units: list[str] | str | None = None
    split: Literal["auto", "random", "scaffold", "group", "time", "column", "files"] = "auto"
    split_column: str | None = None
    group_column: str | None = None
    time_column: str | None = None
    split_fractions: tuple[float, float, float] = ranged((0.8, 0.1, 0.1), above=0, below=1)
    split_seed: int = 0
    folds: int | None = ranged(None, least=2)
    fold: int | None = ranged(None, least=0)
    member_folds: int | None = ranged(None, least=2)
    member_fold: int | None = ranged(None, least=0)
    on_invalid: Literal["skip", "error"] = "skip"
    duplicates: Literal["keep", "mean", "median"] = "keep"
    label_transform: list[str] | str | None = None
    positive: str | None = None
    class_weight: Literal["balanced"] | None = None
    standardize: list[str] | None = None
    descriptors: Literal["rdkit"] | None = None
    descriptor_columns: list[str] | str | None = None
    molecules: str | None = None

    def __post_init__(self) -> None:
        for name in _FILES:
            file = getattr(self, name)
            object.__setattr__(self, name, str(file) if isinstance(file, os.PathLike) else file)
        for name in _LISTS:
            names = _as_names(name, getattr(self, name))
            object.__setattr__(self, name, names)
            if name.endswith("columns") and len(set(names or ())) < len(names or ()):
                raise ConfigError(f"--data.{name} names a column twice: {', '.join(names or ())}")
        super().__post_init__()
        for wrong, message in self._mistakes():
            if wrong:
                raise ConfigError(message)

    def _mistakes(self) -> Iterator[tuple[Any, str]]:
        """Yield what options that exclude each other, or need each other, would be."""
        for step in self.standardize or ():
            guess = did_you_mean(step, STANDARDIZE)
            known = f"there are {', '.join(STANDARDIZE)}"
            yield step not in STANDARDIZE, f"--data.standardize names {step!r}{guess}: {known}"
        targets = self.target_columns or (ALL,)
        name_it = "name it with --data.target_columns COLUMN"
        yield (
            self.task == "multiclass" and (len(targets) != 1 or targets == (ALL,)),
            f"--data.task multiclass is for one column, whose values are the classes: {name_it}",
        )
        yield (
            self.positive and self.task not in ("auto", "binary"),
            f"--data.positive {self.positive} is for --data.task binary, and this is {self.task}: "
            "leave one of them out",
        )
        yield (
            self.positive and targets == (ALL,),
            f"--data.positive {self.positive} is one of two classes of a column: {name_it}",
        )
        # Of "all" the number shows when the table is read.
        yield (
            self.units and targets != (ALL,) and len(self.units) != len(targets),
            f"--data.units has {len(self.units or ())} units for {len(targets)} target columns: "
            "give one for each, '' where there is none",
        )
        yield (
            abs(sum(self.split_fractions) - 1) > 1e-9,
            f"--data.split_fractions is {[*self.split_fractions]}: give the shares of training, "
            "validation and test, which add up to 1",
        )
        split = self.resolved_split
        for other, names in _SPLIT_OPTIONS.items():
            given = [name for name in names if getattr(self, name) is not None]
            needs = other != "files" and not given and split == other
            yield needs, f"--data.split {split} needs --data.{names[0]}: name the column"
            extra = given and split != other
            yield extra, f"--data.split {split} takes no --data.{[*given, ''][0]}: leave one out"
        for count, one in (("folds", "fold"), ("member_folds", "member_fold")):
            folds, fold = getattr(self, count), getattr(self, one)
            yield (
                (folds is None) != (fold is None),
                f"--data.{count} and --data.{one}: give both, or none; all folds are trained on by "
                "train.py crossvalidate and by --ensemble_by folds",
            )
            yield (
                folds is not None and fold >= folds,
                f"--data.{one} is {fold}: of {folds} folds it must be below {folds}",
            )
        yield (
            self.folds and split not in DEALT,
            f"--data.folds {self.folds} assigns the molecules itself, and --data.split {split} "
            "says where they go: leave one of them out",
        )
        yield (
            self.folds and self.split_fractions != (0.8, 0.1, 0.1),
            f"--data.folds {self.folds} decides the shares of the splits: leave "
            "--data.split_fractions out",
        )

    def check_seed(self) -> None:
        """Raise a ConfigError for a seed that decides nothing; a cross-validation adds folds."""
        split = self.resolved_split
        if self.split_seed and split not in ("random", "group") and self.folds is None:
            raise ConfigError(
                f"--data.split_seed {self.split_seed} decides a random split, and this is {split}: "
                "give --data.split random, or leave it out"
            )

    @property
    def resolved_split(self) -> str:
        """The split that ``auto`` stands for."""
        if self.split != "auto":
            return self.split
        for split, names in _SPLIT_OPTIONS.items():
            if any(getattr(self, name) is not None for name in names):
                return split
        return "scaffold"

    @property
    def column_of_split(self) -> str | None:
        """The column that says the split, the group or the time; None: there is none."""
        return self.split_column or self.group_column or self.time_column

    @property
    def files(self) -> dict[str, Path]:
        """The files of a table by their splits; one file is under ``train``."""
        given = (self.table, self.validation_table, self.test_table)
        named = zip(("train", "validation", "test"), given, strict=True)
        return {split: Path(file).expanduser() for split, file in named if file}

    def of_table(self) -> dict[str, Any]:
        """Return the options of a table as plain values, files absolute: for a checkpoint."""
        plain = {k: value for k, value in self.to_plain().items() if k not in _OF_ALL_DATA}
        paths = {name: getattr(self, name) for name in _FILES[:3]}
        return plain | {
            k: path and str(Path(path).expanduser().resolve()) for k, path in paths.items()
        }


def _as_names(option: str, given: Any) -> tuple[Any, ...] | str | None:
    """Return a list that may be given as text, with or without brackets; None where it is empty.

    Names that YAML takes for something else, as in ``[720,721]`` or ``[on]``, arrive as one text;
    without brackets it is one name, but of descriptor columns several with commas between them.
    """
    if option == "label_transform" and given in ("auto", "log", "none"):
        return None if given == "none" else given
    if isinstance(given, str):
        in_brackets = given.startswith("[") and given.endswith("]")
        if in_brackets or option == "descriptor_columns":
            bare = given[1:-1] if in_brackets else given
            given = [name.strip().strip("'\"") for name in bare.split(",")]
        else:
            given = [given]
    if not isinstance(given, Iterable | None):
        raise ConfigError(f"--data.{option} is {given!r}: give a list")
    return tuple(() if given is None else given) or None
