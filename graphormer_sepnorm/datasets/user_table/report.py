"""What is in a table before anything is trained on it: as data, as files, and as text."""

from __future__ import annotations

import dataclasses
import itertools
import math
import textwrap
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.user_table.rows import InvalidRow, TableContents, ValidRow
from graphormer_sepnorm.files import sha256_of, write_columns
from graphormer_sepnorm.formatting import aligned, count, in_a_line, listed, shortened
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import Kind
from graphormer_sepnorm.tables.columns import free_name, parse_class

_COLUMNS = ("number", "row", "split", "smiles", "file", "line", "reason")
_EXAMPLES = 10  # of molecules in several rows, or splits
_SAME = 1e-6  # relative difference up to which two labels are the same
_SPLIT_WORDS = {"train": "training", "validation": "validation", "test": "test"}
# Of the text: columns, those of its labels; targets and warnings shown.
_WIDTH, _INDENT, _TARGETS, _WARNINGS = 80, 12, 12, 4


@dataclass(frozen=True)
class DataReport:
    """A table that is read and split, and what is in it.

    Attributes:
        name: The data set's name.
        config: What the user says about it.
        tables: What stands in its files, by split.
        splits: The rows that are used, by split.
        labels: Of each split, float64 ``[n, T]``; nan = missing.
        bounds: Of each split, as `PackedGraphs.bounds`.
        words: Of each target those that its classes are written in.
        task: What the labels are.
        warnings: What may spoil training or its evaluation, one line each.
    """

    name: str
    config: DataConfig
    tables: Mapping[str, TableContents]
    splits: Mapping[str, Sequence[ValidRow]]
    labels: Mapping[str, np.ndarray]
    bounds: Mapping[str, np.ndarray]
    words: Mapping[str, Collection[str]]
    task: Task
    warnings: tuple[str, ...] = ()

    @property
    def split(self) -> str:
        """How it was split, in words."""
        config, kind = self.config, self.config.resolved_split
        if config.fold is not None:
            return f"fold {config.fold} of {config.folds} ({kind}, seed {config.split_seed})"
        return {
            "random": f"random, seed {config.split_seed}",
            "scaffold": "by scaffold",
            "files": "separate files",
        }.get(kind, f"by column {config.column_of_split!r}")

    @property
    def invalid(self) -> list[InvalidRow]:
        """Rows that cannot be used."""
        return [row for table in self.tables.values() for row in table.invalid]

    @property
    def cells(self) -> list[InvalidRow]:
        """Labels that cannot be used, of rows that are used for their other labels."""
        return [cell for table in self.tables.values() for cell in table.cells]

    @property
    def _id_column(self) -> tuple[str, ...]:
        name = self.tables["train"].id_name
        return (free_name(name, _COLUMNS),) if name else ()

    def rows_of(self, indices: np.ndarray) -> dict[str, list[Any]]:
        """Return ``row``, the row in the table, of molecules whose indices go through the splits.

        And their identifiers, under the name of that column, if there is one.
        """
        rows = [row for part in self.splits.values() for row in part]
        chosen = [rows[int(index)] for index in indices]
        columns: dict[str, list[Any]] = {"row": [row.number for row in chosen]}
        return columns | {name: [row.id for row in chosen] for name in self._id_column}

    def to_plain(self) -> dict[str, Any]:
        """Return the report as dicts, lists, numbers and strings, for JSON.

        Splits have their sizes here; `write_splits` has their rows. Of each target are told
        ``labels``, ``missing``, ``mean``, ``std``, ``min``, ``max`` and ``positives`` (of class 1;
        None where there are none) in each split. ``bounds`` has, of targets with bounds, how many
        say at least (``>``), and how many at most (``<``).
        """
        files, task = [*self.config.files.values()], self.task
        valid = [row for part in self.splits.values() for row in part]
        atoms = [row.atoms for row in valid]
        known = ~np.isnan(np.concatenate(list(self.bounds.values())))
        # There may be no bounds at all.
        sides = zip(task.targets, known.sum(axis=0).reshape(2, -1).T.tolist(), strict=False)
        return {
            "name": self.name,
            "files": [*map(str, files)],
            "sha256": [*map(sha256_of, files)],
            "kind": task.kind,
            "one_of": task.one_of,
            "split": self.split,
            "splits": {name: len(part) for name, part in self.splits.items()},
            "rows": len(valid) + len(self.invalid),
            "valid": len(valid),
            "reasons": dict(Counter(row.kind for row in self.invalid).most_common()),
            "invalid": [*map(dataclasses.asdict, self.invalid)],
            "cells": [*map(dataclasses.asdict, self.cells)],
            "targets": [
                {
                    "name": name,
                    "unit": unit,
                    "splits": {
                        split: _summarized(of[:, at], task.kind)
                        for split, of in self.labels.items()
                    },
                }
                for at, (name, unit) in enumerate(zip(task.targets, task.units, strict=True))
            ],
            "words": {target: sorted(found) for target, found in self.words.items() if found},
            "bounds": {target: (low, high) for target, (low, high) in sides if low or high},
            "duplicates": find_duplicates(self.splits, task.kind),
            "leakage": find_leakage(self.splits),
            "atoms": (min(atoms), sum(atoms) / len(atoms), max(atoms)),
            "warnings": self.warnings,
            "id_name": self.tables["train"].id_name,
            "unread": self.tables["train"].unread,
            "notes": [*dict.fromkeys(note for one in self.tables.values() for note in one.notes)],
        }

    def write_invalid(self, path: str | Path) -> None:
        """Write the rows that cannot be used, or of which only a label cannot, as CSV."""
        found: list[InvalidRow] = []
        for table in self.tables.values():
            used = "; the other labels of the row are used"
            cells = [dataclasses.replace(one, reason=one.reason + used) for one in table.cells]
            found += sorted([*table.invalid, *cells], key=lambda one: one.row)
        names = ("file", "row", "line", "smiles", "reason")
        columns = {name: [getattr(one, name) or "" for one in found] for name in names}
        columns |= {name: [one.id for one in found] for name in self._id_column}
        write_columns(Path(path), columns)

    def write_splits(self, path: str | Path) -> None:
        """Write the rows that are used as CSV: row, split, smiles and identifiers.

        They stand in the order of the file; of separate files one after the other.
        """
        rows = [(row, name) for name, part in self.splits.items() for row in part]
        if len(self.tables) == 1:
            rows.sort(key=lambda pair: pair[0].number)
        columns = {
            "row": [row.number for row, _ in rows],
            "split": [name for _, name in rows],
            "smiles": [row.smiles for row, _ in rows],
        }
        columns |= {name: [row.id for row, _ in rows] for name in self._id_column}
        write_columns(Path(path), columns)


def _summarized(values: np.ndarray, kind: Kind) -> dict[str, Any]:
    """Summarize the labels of a target in a split, ``[n]``, nan = missing; see `to_plain`."""
    known = values[~np.isnan(values)]
    statistics = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}
    return {
        "labels": len(known),
        "missing": len(values) - len(known),
        **{name: float(of(known)) if len(known) else None for name, of in statistics.items()},
        "positives": int(known.sum()) if kind == "binary" else None,
    }


def find_duplicates(parts: Mapping[str, Sequence[ValidRow]], kind: Kind) -> dict[str, Any]:
    """Find molecules that stand in more than one row, and those whose labels contradict.

    Returns:
        How many ``molecules`` these are, in how many ``rows``, how many are ``conflicting``, and
        ``examples``, these first: the ``smiles``, split and number of its ``rows``, ``labels``.
    """
    places: dict[str, list[tuple[str, ValidRow]]] = defaultdict(list)
    for split, rows in parts.items():
        for row in rows:
            places[row.canonical].append((split, row))
    repeated = [
        (not _differ([row for _, row in found], kind), molecule, found)
        for molecule, found in places.items()
        if len(found) > 1
    ]
    repeated.sort(key=lambda one: one[0])
    return {
        "molecules": len(repeated),
        "rows": sum(len(found) for _, _, found in repeated),
        "conflicting": sum(not agree for agree, _, _ in repeated),
        "examples": [
            {
                "smiles": molecule,
                "rows": [(split, row.number) for split, row in found],
                "labels": [row.labels for _, row in found],
            }
            for _, molecule, found in repeated[:_EXAMPLES]
        ],
    }


def _differ(rows: Sequence[ValidRow], kind: Kind) -> bool:
    """Whether no value of a target can be what all rows of a molecule say, labels and bounds."""
    labels = np.array([row.labels for row in rows])
    unknown = (math.nan,) * (2 * labels.shape[1])
    low, high = np.hsplit(np.array([row.bounds or unknown for row in rows]), 2)
    least, most = np.fmax.reduce([*labels, *low]), np.fmin.reduce([*labels, *high])
    tolerance = _SAME if kind == "regression" else 0.0
    return bool(np.any(least - most > tolerance * np.maximum(np.abs(least), np.abs(most))))


def find_leakage(parts: Mapping[str, Sequence[ValidRow]]) -> list[dict[str, Any]]:
    """Find how many ``molecules``, and ``scaffolds`` with rings, each pair of splits shares."""
    found = []
    for pair in itertools.combinations(parts, 2):
        molecules, scaffolds = (
            set.intersection(*({getattr(row, of) for row in parts[split]} for split in pair))
            for of in ("canonical", "scaffold")
        )
        found.append(
            {
                "splits": pair,
                "molecules": len(molecules),
                "scaffolds": len(scaffolds - {""}),  # without a ring there is none to share
                "examples": sorted(molecules)[:_EXAMPLES],
            }
        )
    return found


def report_text(report: DataReport) -> str:
    """Return the report for people: at most about 30 lines of 80 columns."""
    found = report.to_plain()
    lines = [
        line
        for label, text in _entries(report, found)
        for line in textwrap.wrap(
            in_a_line(text),
            _WIDTH,
            initial_indent=f"{label:<{_INDENT}}",
            subsequent_indent=" " * _INDENT,
            break_on_hyphens=False,
        )
    ]
    return "\n".join([*lines, "", *_targets(report.task, found["targets"])])


def _entries(report: DataReport, found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give what the report has above its table of labels: what it is about, and the text."""
    invalid, cells, several = report.invalid, report.cells, len(report.tables) > 1

    def first(row: InvalidRow) -> str:
        file = f"{Path(row.file).name}, " if several else ""
        return f"the first: {file}{row.place}: {shortened(row.reason, 160)}"

    files = ", ".join(path.name for path in report.config.files.values())
    how_many = f"{found['valid']:,} of" if invalid else "all"
    yield "data", f"{files}: {how_many} {found['rows']:,} rows can be used"
    if invalid:
        reasons = ", ".join(f"{rows:,} {kind}" for kind, rows in found["reasons"].items())
        yield "left out", f"{reasons}; {first(invalid[0])}"
    yield from (("read", note) for note in found["notes"])
    if found["unread"]:
        yield "not read", listed(found["unread"])
    sizes = ", ".join(f"{size:,} {_SPLIT_WORDS[name]}" for name, size in found["splits"].items())
    yield "split", f"{report.split}: {sizes}"
    low, mean, high = found["atoms"]
    yield "atoms", f"{low} to {high} in a molecule, {mean:.1f} on average"
    if cells:
        counts = Counter(cell.column for cell in cells).most_common()
        of = listed([f"{labels:,} of {name!r}" for name, labels in counts], most=6)
        yield "unusable", f"{of}, in rows that are used for their other labels; {first(cells[0])}"
    words = sorted(set().union(*report.words.values()), key=parse_class)
    if words and report.task.kind == "binary":
        yield "classes", ", ".join(f"{word} is {parse_class(word):.0f}" for word in words)
    if found["bounds"]:
        bounds = [
            f"{name} {low:,} at least (>) and {high:,} at most (<)"
            for name, (low, high) in found["bounds"].items()
        ]
        of = listed(bounds, most=2)
        yield "bounds", f"{of}: learned from one side, left out of all metrics, missing below"
    yield "duplicates", _duplicates(found["duplicates"], several)
    leaks, shared = (
        ", ".join(
            f"{leak[what]:,} in {' and '.join(map(_SPLIT_WORDS.__getitem__, leak['splits']))}"
            for leak in found["leakage"]
            if leak[what]
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


def _duplicates(found: dict[str, Any], several: bool) -> str:
    if not found["molecules"]:
        return "none"
    text = f"{count(found['molecules'], 'molecule')} in {found['rows']:,} rows"
    if not found["conflicting"]:
        return f"{text}, their labels agree"
    same = found["examples"][0]
    rows = ", ".join(f"{row}" + f" of {split}" * several for split, row in same["rows"][:3])
    example = f"{shortened(same['smiles'])} (rows {rows})"
    return f"{text}; the labels of {found['conflicting']:,} differ, for example of {example}"


def _targets(task: Task, targets: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One line for each split of the only target; of several, for each.

    Of several the labels of each split are counted; statistics are of those of training.
    """
    titles, found = task.titles, [target["splits"] for target in targets]
    alone, binary = len(found) == 1, task.kind == "binary"
    names = ("mean", "std", "min", "max") if alone else ("mean", "min", "max")
    statistics, names = (("positives", "mean"), ("class 1", "share")) if binary else (names, names)
    if alone:
        header = [shortened(titles[0], 24), "labels", "missing", *names]
        rows = [
            (f"  {_SPLIT_WORDS[split]}", one["labels"], one["missing"], *map(one.get, statistics))
            for split, one in found[0].items()
        ]
    else:
        header = ["labels", "train", "valid", "test", *names]
        rows = [
            (title, *(one["labels"] for one in of.values()), *map(of["train"].get, statistics))
            for title, of in zip(titles, found, strict=True)
        ]
    table = [header]
    for name, *values in rows[:_TARGETS]:
        row = ["-" if v is None else f"{v:,}" if isinstance(v, int) else f"{v:.4g}" for v in values]
        table.append([shortened(name, 24), *row])
    yield aligned(table, numbers_from=1)
    if len(rows) > _TARGETS:
        yield f"and {len(rows) - _TARGETS} more targets"
