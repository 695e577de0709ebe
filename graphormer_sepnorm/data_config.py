"""Every option of the data, once; see `config`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.values import Options, ranged

ALL = "all"  # target columns: every one that is nothing else
# In the order in which they are taken: the largest fragment without its salts and solvents, charges
# that protons can remove.
STANDARDIZE = ("fragment", "neutralize")
# The options of splits.
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
        dataset: zinc-subset, zinc, ogbg-molhiv, sample (bundled) or table (your own file). null:
            table if one is given, else zinc-subset.
        root: Data root: the folder with the raw files, where downloads and the graph store are
            saved. Relative to the working directory.
        batch_size: Number of graphs in a training batch, at least 2, divided among all processes.
            Batches are random and nearly equal in size; memory and time per step grow linearly.
            With accumulate_grad_batches this is the micro-batch, over which BatchNorm computes its
            statistics.
        eval_batch_size: Number of graphs in a validation or test batch; null uses batch_size. Has
            no effect on results.
        num_workers: Number of processes that prepare batches. 0: the training process does it,
            which is best on a few CPU cores; with a GPU 2 to 4 are faster.
        attention_blocks: Number of groups of similar size into which a batch is divided for
            attention. More groups mean less padding but more and smaller operations; has no effect
            on results.
        table: Your molecules with labels: a CSV, TSV or SDF file (also gzipped), Parquet or Excel.
        validation_table: Separate file with the validation split.
        test_table: Separate file with the test split.
        smiles_column: SMILES column of a table, or of the molecules for pre-training; null detects
            it by name.
        sheet: Name of the Excel sheet, or its number, starting with 1; null uses the only sheet
            that is not hidden.
        header_row: Row with the column names in Excel, CSV and TSV files, starting with 1; null
            uses the first.
        target_columns: Label columns, separated by commas, a name with commas in double quotes;
            null uses the only column that is not named otherwise and names no rows, all uses
            every such column. Missing labels are ignored by the loss and the metrics.
        weight_column: Column of sample weights for the training loss, 0 or more; null weights all
            rows equally. Metrics are not weighted, but rows of weight 0 are not used for the
            validation of an ensemble by folds.
        id_column: Column that identifies rows in the files of a run; null uses the first one with a
            name such as compound_id.
        task: regression, binary (labels 0 and 1), multiclass (each distinct value of the only
            target column is a class), or auto: binary if all labels are 0 or 1.
        units: Unit of each target, shown in messages.
        split: random, scaffold (molecules with the same ring systems stay together), group, time,
            column or files; auto uses files or a column if given, else scaffold.
        split_column: Column with the values train, validation or test; the last two may be absent,
            as may the separate files.
        group_column: Column of groups that stay together, such as chemical series or laboratories.
        time_column: Column of numbers or dates (2024-05-31): the newest rows are the test split,
            the next newest the validation split.
        split_fractions: Fractions of the training, validation and test split.
        split_seed: Random seed of the split and the folds; independent of seed_everything, so that
            runs with different seeds share a split.
        folds: Number of cross-validation folds, random or by scaffold according to split; train.py
            crossvalidate trains on all of them.
        fold: Index of the fold that is the test split, starting with 0; a tenth of the rest is the
            validation split.
        member_folds: Number of folds for the members of an ensemble (--ensemble_by folds), over
            training and validation split together; by scaffold if the split is.
        member_fold: Index of the fold on which this member is validated, starting with 0; it is
            trained on the others.
        on_invalid: What to do with unusable rows: skip (and list them), or stop with an error at
            the first.
        label_transform: log: each target's labels y, which must be 0 or more, are learned as ln(y);
            a list of targets: only theirs; auto: those of skewed targets for which this lowers the
            out-of-fold mean error of kernel ridge regression. Predictions and intervals are in the
            unit of the labels. null: no transform.
        positive: Value of the target column that is class 1; all other values are class 0.
        standardize: Standardization of each molecule, in training and at prediction, a list:
            fragment (keep the largest, without salts and solvents), neutralize (charges that
            protons can remove).
        descriptor_columns: Numeric columns that are additional inputs to the readout, such as
            temperature or pH. Missing values are replaced by the mean; predict.py needs these
            columns too.
        molecules: File of unlabeled molecules for dataset pretraining: one SMILES per line, or a
            table with a SMILES column. The network learns their descriptors.
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
    label_transform: list[str] | str | None = None
    positive: str | None = None
    standardize: list[str] | None = None
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
            self.folds and split not in ("random", "scaffold", "group"),
            f"--data.folds {self.folds} assigns the molecules itself, and --data.split {split} "
            "decides where they go: remove one of them",
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
    """Return a list that may be given as text, with commas between; None where it is empty.

    Names that YAML takes for something else arrive so with brackets, as ``[720,721]`` or ``[on]``.
    """
    if option == "label_transform" and given in ("auto", "log", "none"):
        return None if given == "none" else given
    if isinstance(given, str):
        bare = given[1:-1] if given.startswith("[") and given.endswith("]") else given
        names = re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', bare)  # not within double quotes
        given = [re.sub(r"(?s)^(['\"])(.*)\1$", r"\2", name.strip()) for name in names]
    if not isinstance(given, Iterable | None):
        raise ConfigError(f"--data.{option} is {given!r}: give a list")
    return tuple(() if given is None else given) or None
