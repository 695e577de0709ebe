"""What is in a table before anything is trained on it: as data, as files, and as text."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import textwrap
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.user_table.rows import InvalidRow, TableContents, ValidRow
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import replacing, sha256_of
from graphormer_sepnorm.formatting import aligned, in_a_line, listed, shortened
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import Kind
from graphormer_sepnorm.tables.columns import free_name, parse_class

_COLUMNS = ("number", "row", "split", "smiles", "file", "line", "reason", "new_elements")
_EXAMPLES = 10  # of molecules in several rows, or splits
_SAME = 1e-6  # relative difference up to which two labels are the same
_SPLIT_WORDS = {"train": "training", "validation": "validation", "test": "test"}
# Of the text: columns, those of its labels; targets and warnings shown.
_WIDTH, _INDENT, _TARGETS, _WARNINGS = 80, 12, 12, 4


@dataclass(frozen=True)
class LabelSummary:
    """How many labels a target has in one split, how many are missing, and their statistics.

    These are None where there is no label, `positives` (how many are 1) where they are no classes.
    """

    labels: int
    missing: int
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    positives: int | None


@dataclass(frozen=True)
class TargetReport:
    """Name and unit of a target, and its labels in each split."""

    name: str
    unit: str
    splits: dict[str, LabelSummary]


@dataclass(frozen=True)
class SameMolecule:
    """A molecule in several rows: split and row of each, and its labels there (None = missing)."""

    smiles: str
    rows: tuple[tuple[str, int], ...]
    labels: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Duplicates:
    """How many molecules are in several rows, in how many, and for how many the labels differ.

    The examples begin with these.
    """

    molecules: int
    rows: int
    conflicting: int
    examples: tuple[SameMolecule, ...]


@dataclass(frozen=True)
class Leakage:
    """How many molecules, and scaffolds with rings, two splits have in common, with examples."""

    splits: tuple[str, str]
    molecules: int
    scaffolds: int
    examples: tuple[str, ...]


@dataclass(frozen=True)
class DataReport:
    """What is in a data set.

    Attributes:
        name: The data set's name.
        files: Paths of its files.
        sha256: Of the contents of each of them.
        kind: ``regression`` or ``binary``.
        one_of: As `Task.one_of`.
        split: How it was split, in words.
        splits: The rows of each split.
        invalid: Rows that cannot be used.
        targets: The labels.
        duplicates: Molecules in more than one row.
        leakage: What each pair of splits has in common.
        atoms: Smallest, mean and largest number of atoms of a molecule.
        warnings: What may spoil training or its evaluation, one line each.
        words: Of the targets whose classes are written in words, these words.
        bounds: Of the targets that have bounds in place of labels, how many of them say at least
            (``>``), and how many at most (``<``).
        cells: Labels that cannot be used, of rows that are used for their other labels.
        id_name: The column that names the rows; empty if there is none.
        unread: Columns that are not read.
        notes: What was done to the rows, one line each.
    """

    name: str
    files: tuple[str, ...]
    sha256: tuple[str, ...]
    kind: Kind
    one_of: str
    split: str
    splits: dict[str, Sequence[ValidRow]]
    invalid: tuple[InvalidRow, ...]
    targets: tuple[TargetReport, ...]
    duplicates: Duplicates
    leakage: tuple[Leakage, ...]
    atoms: tuple[int, float, int]
    warnings: tuple[str, ...]
    words: dict[str, tuple[str, ...]]
    bounds: dict[str, tuple[int, int]]
    cells: tuple[InvalidRow, ...]
    id_name: str
    unread: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def valid(self) -> int:
        """Number of rows that can be used."""
        return sum(map(len, self.splits.values()))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.valid + len(self.invalid)

    @property
    def reasons(self) -> dict[str, int]:
        """How many rows cannot be used for each kind of reason, most frequent first."""
        return dict(Counter(row.kind for row in self.invalid).most_common())

    @property
    def _id_column(self) -> tuple[str, ...]:
        return (free_name(self.id_name, _COLUMNS),) if self.id_name else ()

    def ids(self, split: str) -> dict[str, list[str]]:
        """Return the column of identifiers of a split under its name; nothing if there is none."""
        return {name: [row.id for row in self.splits[split]] for name in self._id_column}

    def to_plain(self) -> dict[str, Any]:
        """Return the report as dicts, tuples, numbers and strings, for JSON.

        Splits have their sizes here; `write_splits` has their rows.
        """
        plain = dataclasses.asdict(dataclasses.replace(self, splits={}))
        sizes = {name: len(part) for name, part in self.splits.items()}
        own = {"rows": self.rows, "valid": self.valid, "reasons": self.reasons, "splits": sizes}
        return plain | own

    def write_invalid(self, path: str | Path) -> None:
        """Write the rows that cannot be used, or of which only a label cannot, as CSV."""
        used = {id(one): "; the other labels of the row are used" for one in self.cells}
        rows = [
            (one.file, one.row, one.line or "", one.smiles, one.reason + used.get(id(one), ""))
            + (one.id,) * bool(self.id_name)
            for one in sorted(
                [*self.invalid, *self.cells], key=lambda one: (self.files.index(one.file), one.row)
            )
        ]
        _write_csv(path, ("file", "row", "line", "smiles", "reason", *self._id_column), rows)

    def write_splits(self, path: str | Path) -> None:
        """Write the rows that are used as CSV: row, split, smiles and identifiers.

        They stand in the order of the file; of separate files one after the other.
        """
        rows = [
            (row.number, name, row.smiles, *[row.id] * bool(self.id_name))
            for name, part in self.splits.items()
            for row in part
        ]
        if len(self.files) == 1:
            rows.sort()
        _write_csv(path, ("row", "split", "smiles", *self._id_column), rows)


def _write_csv(path: str | Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    try:
        # Bytes of the table that are no UTF-8 go back as they were.
        with (
            replacing(Path(path)) as partial,
            partial.open("w", encoding="utf-8", errors="surrogateescape", newline="") as handle,
        ):
            csv.writer(handle, lineterminator="\n").writerows([header, *rows])
    except OSError as error:
        raise DataError(f"{path} cannot be written ({error.strerror or error})") from error


@dataclass(frozen=True)
class LoadedTable:
    """A table that is read and split.

    Attributes:
        config: What the user says about it.
        files: What stands in its files, by split.
        parts: Its rows, by split.
        labels: Of each split, float64 ``[n, T]``; nan = missing.
        bounds: Of each split, as `PackedGraphs.bounds`.
        words: Of each target those that its classes are written in.
        task: What the labels are.
    """

    config: DataConfig
    files: Mapping[str, TableContents]
    parts: Mapping[str, Sequence[ValidRow]]
    labels: Mapping[str, np.ndarray]
    bounds: Mapping[str, np.ndarray]
    words: Mapping[str, Collection[str]]
    task: Task


def report_on(name: str, table: LoadedTable, warnings: Iterable[str]) -> DataReport:
    """Report on a table, with these warnings."""
    config, task, parts, files = table.config, table.task, table.parts, table.files.values()
    targets = tuple(
        TargetReport(
            target, unit, {one: summarize(of[:, at], task.kind) for one, of in table.labels.items()}
        )
        for at, (target, unit) in enumerate(zip(task.targets, task.units, strict=True))
    )
    kind = config.resolved_split
    split = {
        "random": f"random, seed {config.split_seed}",
        "scaffold": "by scaffold",
        "files": "separate files",
    }.get(kind, f"by column {config.column_of_split!r}")
    if config.fold is not None:
        split = f"fold {config.fold} of {config.folds} ({kind}, seed {config.split_seed})"
    atoms = [row.atoms for row in itertools.chain(*parts.values())]
    sides = ~np.isnan(np.concatenate(list(table.bounds.values())))
    low_high = sides.sum(axis=0).reshape(2, -1).T.tolist()
    return DataReport(
        name=name,
        files=tuple(map(str, config.files.values())),
        sha256=tuple(map(sha256_of, config.files.values())),
        kind=task.kind,
        one_of=task.one_of,
        split=split,
        splits=dict(parts),
        invalid=tuple(row for file in files for row in file.invalid),
        targets=targets,
        duplicates=find_duplicates(parts, task.kind),
        leakage=find_leakage(parts),
        atoms=(min(atoms), sum(atoms) / len(atoms), max(atoms)),
        warnings=tuple(warnings),
        words={target: tuple(sorted(found)) for target, found in table.words.items() if found},
        bounds={
            target: (low, high)
            for target, (low, high) in zip(task.targets, low_high, strict=False)
            if low or high
        },
        cells=tuple(cell for file in files for cell in file.cells),
        id_name=table.files["train"].id_name,
        unread=table.files["train"].unread,
        notes=tuple(dict.fromkeys(note for file in files for note in file.notes)),
    )


def summarize(values: np.ndarray, kind: Kind) -> LabelSummary:
    """Summarize the labels of a target in a split, ``[n]``; nan = missing."""
    known = values[~np.isnan(values)]
    mean, std, low, high = (
        float(of(known)) if len(known) else None for of in (np.mean, np.std, np.min, np.max)
    )
    positives = int(known.sum()) if kind == "binary" else None
    return LabelSummary(len(known), len(values) - len(known), mean, std, low, high, positives)


def find_duplicates(parts: Mapping[str, Sequence[ValidRow]], kind: Kind) -> Duplicates:
    """Find molecules that stand in more than one row, and those whose labels contradict."""
    places: dict[str, list[tuple[str, ValidRow]]] = defaultdict(list)
    for split, rows in parts.items():
        for row in rows:
            places[row.canonical].append((split, row))
    repeated = [found for found in places.values() if len(found) > 1]
    agreeing = [not _differ([row for _, row in found], kind) for found in repeated]
    first = [found for _, found in sorted(zip(agreeing, repeated, strict=True), key=lambda x: x[0])]
    examples = tuple(
        SameMolecule(
            found[0][1].canonical,
            tuple((split, row.number) for split, row in found),
            tuple(
                tuple(None if math.isnan(label) else label for label in row.labels)
                for _, row in found
            ),
        )
        for found in first[:_EXAMPLES]
    )
    conflicting = len(agreeing) - sum(agreeing)
    return Duplicates(len(repeated), sum(map(len, repeated)), conflicting, examples)


def _differ(rows: Sequence[ValidRow], kind: Kind) -> bool:
    """Whether no value of a target can be what all rows of a molecule say, labels and bounds."""
    labels = np.array([row.labels for row in rows])
    unknown = (math.nan,) * (2 * labels.shape[1])
    low, high = np.hsplit(np.array([row.bounds or unknown for row in rows]), 2)
    least, most = np.fmax.reduce([*labels, *low]), np.fmin.reduce([*labels, *high])
    tolerance = _SAME if kind == "regression" else 0.0
    return bool(np.any(least - most > tolerance * np.maximum(np.abs(least), np.abs(most))))


def find_leakage(parts: Mapping[str, Sequence[ValidRow]]) -> tuple[Leakage, ...]:
    """Find what each pair of splits has in common."""
    found = []
    for pair in itertools.combinations(parts, 2):
        one, other = ({row.canonical for row in parts[split]} for split in pair)
        both = sorted(one & other)
        ours, theirs = ({row.scaffold for row in parts[split]} for split in pair)
        # Without a ring there is no scaffold to share.
        shared = len((ours & theirs) - {""})
        found.append(Leakage(pair, len(both), shared, tuple(both[:_EXAMPLES])))
    return tuple(found)


def report_text(report: DataReport) -> str:
    """Return the report for people: at most about 30 lines of 80 columns."""
    lines = [
        line
        for label, text in _entries(report)
        for line in textwrap.wrap(
            in_a_line(text),
            _WIDTH,
            initial_indent=f"{label:<{_INDENT}}",
            subsequent_indent=" " * _INDENT,
            break_on_hyphens=False,
        )
    ]
    return "\n".join([*lines, "", *_targets(report)])


def _entries(report: DataReport) -> Iterator[tuple[str, str]]:
    """Give what the report has above its table of labels: what it is about, and the text."""

    def first(row: InvalidRow) -> str:
        file = f"{Path(row.file).name}, " if len(report.files) > 1 else ""
        return f"the first: {file}{row.place}: {shortened(row.reason, 160)}"

    files = ", ".join(Path(file).name for file in report.files)
    how_many = f"{report.valid:,} of" if report.invalid else "all"
    yield "data", f"{files}: {how_many} {report.rows:,} rows can be used"
    if report.invalid:
        reasons = ", ".join(f"{count:,} {kind}" for kind, count in report.reasons.items())
        yield "left out", f"{reasons}; {first(report.invalid[0])}"
    yield from (("read", note) for note in report.notes)
    if report.unread:
        yield "not read", listed(report.unread)
    sizes = ", ".join(f"{len(part):,} {_SPLIT_WORDS[name]}" for name, part in report.splits.items())
    yield "split", f"{report.split}: {sizes}"
    low, mean, high = report.atoms
    yield "atoms", f"{low} to {high} in a molecule, {mean:.1f} on average"
    if report.cells:
        counts = Counter(cell.column for cell in report.cells).most_common()
        of = listed([f"{count:,} of {name!r}" for name, count in counts], most=6)
        used = "in rows that are used for their other labels"
        yield "unusable", f"{of}, {used}; {first(report.cells[0])}"
    if report.words and report.kind == "binary":
        words = sorted(set().union(*report.words.values()), key=parse_class)
        yield "classes", ", ".join(f"{word} is {parse_class(word):.0f}" for word in words)
    if report.bounds:
        bounds = [
            f"{name} {above:,} at least (>) and {below:,} at most (<)"
            for name, (above, below) in report.bounds.items()
        ]
        of = listed(bounds, most=2)
        yield "bounds", f"{of}: learned from one side, left out of all metrics, missing below"
    yield "duplicates", _duplicates(report)
    leaks, shared = (
        ", ".join(
            f"{getattr(leak, what):,} in {' and '.join(map(_SPLIT_WORDS.__getitem__, leak.splits))}"
            for leak in report.leakage
            if getattr(leak, what)
        )
        for what in ("molecules", "scaffolds")
    )
    text = "no molecule is in two splits"
    if leaks:
        text = f"molecules in two splits, which makes the test look too good: {leaks}"
    yield "leakage", text + (f"; ring scaffolds in two splits: {shared}" if shared else "")
    yield from (("warning", warning) for warning in report.warnings[:_WARNINGS])
    if len(report.warnings) > _WARNINGS:
        yield "", f"and {len(report.warnings) - _WARNINGS} more warnings"


def _duplicates(report: DataReport) -> str:
    found = report.duplicates
    if not found.molecules:
        return "none"
    text = f"{found.molecules:,} molecule{'s'[: found.molecules - 1]} in {found.rows:,} rows"
    if not found.conflicting:
        return f"{text}, their labels agree"
    same = found.examples[0]
    several = len(report.files) > 1
    rows = ", ".join(f"{row}" + f" of {split}" * several for split, row in same.rows[:3])
    example = f"{shortened(same.smiles)} (rows {rows})"
    return f"{text}; the labels of {found.conflicting:,} differ, for example of {example}"


def _targets(report: DataReport) -> Iterator[str]:
    """One line for each split of the only target; of several, for the training labels of each."""

    def title(target: TargetReport) -> str:
        return in_a_line(target.name) + (f" [{target.unit}]" if target.unit else "")

    alone = report.targets[0] if len(report.targets) == 1 else None
    shown = report.targets[:_TARGETS]
    rows = [(title(target), target.splits["train"]) for target in shown]
    if alone:
        rows = [(f"  {_SPLIT_WORDS[split]}", summary) for split, summary in alone.splits.items()]
    statistics = names = ("mean", "std", "min", "max") if alone else ("mean", "min", "max")
    if report.kind == "binary":
        statistics, names = ("positives", "mean"), ("class 1", "share")
    table = [[title(alone) if alone else "training", "labels", "missing", *names]]
    for name, summary in rows:
        values = (getattr(summary, which) for which in statistics)
        row = ["-" if v is None else f"{v:,}" if isinstance(v, int) else f"{v:.4g}" for v in values]
        table.append([name, f"{summary.labels:,}", f"{summary.missing:,}", *row])
    yield aligned([[shortened(name, 24), *cells] for name, *cells in table], numbers_from=1)
    if len(report.targets) > len(shown):
        yield f"and {len(report.targets) - len(shown)} more targets"
