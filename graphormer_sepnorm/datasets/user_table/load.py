"""A user's own table as a data set: molecules with labels from files.

Rows that cannot be used are left out and reported, never fatal unless asked. The table is read
once; graphs are made later, when the graph store is built.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from graphormer_sepnorm.chem.descriptors import descriptor_names
from graphormer_sepnorm.chem.features import OF_SMILES, get_featuriser
from graphormer_sepnorm.chem.molecules import RDKIT_VERSION, parse_molblock, parse_smiles
from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import SPLITS, DatasetSplits
from graphormer_sepnorm.datasets.user_table.checks import (
    TargetReport,
    find_duplicates,
    find_leakage,
    find_warnings,
    report_target,
)
from graphormer_sepnorm.datasets.user_table.labels import (
    by_classes,
    check_cells,
    check_classes,
    check_labels,
    task_of,
)
from graphormer_sepnorm.datasets.user_table.options import TableOptions
from graphormer_sepnorm.datasets.user_table.report import DataReport, SplitRows
from graphormer_sepnorm.datasets.user_table.row_reader import CellCounts, ValidRow
from graphormer_sepnorm.datasets.user_table.rows import TableContents, read_rows
from graphormer_sepnorm.datasets.user_table.splits import split_rows
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import sha256_of
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import Kind
from graphormer_sepnorm.tables.columns import parse_class, readable
from graphormer_sepnorm.tables.opening import open_table

# Changes whenever the same file and options come to other molecules, labels or splits than before.
_VERSION = "table-2"
# Where the split does not need scaffolds they are computed for the report only, as long as that is
# a matter of a second or two.
_REPORTED_SCAFFOLDS = 10_000


def load_table(options: TableOptions) -> DatasetSplits:
    """Load a table, split it, and report what is in it.

    Args:
        options: Files, columns, split.

    Returns:
        The data set under the name of its file, with a `DataReport`. Its fingerprint is that of the
        files' contents and of all options that decide about graphs, labels and splits.

    Raises:
        DataError: A file cannot be read, columns are missing or cannot be told, rows cannot be
            used and that is to be an error, a split is empty, or nothing can be learned from a
            target (no label, or one class only, in the training split; or labels that cannot be
            standardised).
        ConfigError: The units do not fit the targets, or the task does not fit the labels.
    """
    for path in options.paths:
        if path.is_fifo():
            raise DataError(
                f"{path} is a pipe, and training reads a table more than once: save it as a file"
            )
    split = options.resolved_split
    limit = None if split == "scaffold" else _REPORTED_SCAFFOLDS
    tables: list[TableContents] = []
    for path in options.paths:
        names = tables[0].columns.names if tables else options.target_columns
        own = options
        if tables and not _has_weights(path, options):
            own = dataclasses.replace(options, weight_column=None)
        tables.append(read_rows(path, own, names, limit, 1.0 if tables else None))
    _check_rows(options, tables)

    one_of = ""
    if options.task == "multiclass":
        one_of = tables[0].columns.names[0]
        tables = by_classes(options.table, tables)
    parts = split_rows(options, tables)
    labels = {
        name: np.array([row.labels for row in rows], dtype=np.float64)
        for name, rows in parts.items()
    }
    bounds = _bounds(parts, len(tables[0].columns.names))
    task = task_of(options, tables[0].columns.names, labels, bounds, one_of)
    if task.kind == "binary":
        task = dataclasses.replace(task, ones=_ones(tables))
    targets = tuple(
        report_target(
            name, unit, {part: values[:, n] for part, values in labels.items()}, task.kind
        )
        for n, (name, unit) in enumerate(zip(task.targets, task.units, strict=True))
    )
    check_labels(options, tables[0], parts, labels, bounds, task, targets)
    sha256 = tuple(map(sha256_of, options.paths))
    return DatasetSplits(
        _stem(options.table),
        *(
            _graphs(parts[name], labels[name], bounds[name], options, tables[at % len(tables)])
            for at, name in enumerate(SPLITS)
        ),
        task=task,
        fingerprint=_fingerprint(options, tables, task.kind, sha256),
        feature_version=OF_SMILES,
        featuriser=OF_SMILES,
        smiles={name: [row.smiles for row in rows] for name, rows in parts.items()},
        groups={
            name: [
                ((row.scaffold or "") if split == "scaffold" else "", row.canonical) for row in rows
            ]
            for name, rows in parts.items()
        },
        extra_inputs=_extra_inputs(options, tables[0], parts["train"]),
        standardise=options.standardise,
        report=_report(options, sha256, tables, parts, labels, bounds, task, targets),
    )


def _has_weights(path: Path, options: TableOptions) -> bool:
    """Whether a file beside that of the training split has weights.

    They act in training only, so it needs none, and a row without one weighs 1; but of an ensemble
    by folds the members, and trees, are trained on the validation split too.
    """
    if options.weight_column is None or path == options.test_table:
        return False
    with open_table(path, layout=options.layout) as reader:
        return options.weight_column.lower() in [readable(name).lower() for name in reader.columns]


def _stem(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    return Path(name).stem or name


def _check_rows(options: TableOptions, tables: Sequence[TableContents]) -> None:
    """Refuse files without usable rows, and unusable rows where they are to be an error."""
    for path, table in zip(options.paths, tables, strict=True):
        check_classes(path, table)
    invalid = [
        row
        for table in tables
        for row in sorted([*table.invalid, *table.cells], key=lambda one: one.row)
    ]
    if invalid and options.on_invalid == "error":
        first, others = invalid[0], len(invalid) - 1
        more = f"; {others:,} more cannot be used either" if others else ""
        raise DataError(
            f"{first.file}, {first.place}: {first.reason}{more}: mend them, or leave them out with "
            "--data.on_invalid skip"
        )
    for path, table in zip(options.paths, tables, strict=True):
        if table.valid:
            check_cells(path, table)
            continue
        if not table.invalid:
            raise DataError(f"{path} has no rows: nothing can be learned from it")
        first = table.invalid[0]
        raise DataError(
            f"{path}: none of its {len(table.invalid):,} rows can be used; {first.place}: "
            f"{first.reason}"
        )


def _bounds(parts: dict[str, list[ValidRow]], targets: int) -> dict[str, np.ndarray]:
    """Return `ValidRow.bounds` of each split, ``[n, 2 T]``, or ``[n, 0]`` if no row has any."""
    width = 2 * targets * any(row.bounds for rows in parts.values() for row in rows)
    unknown = (math.nan,) * width
    return {
        name: np.array([row.bounds or unknown for row in rows], np.float64).reshape(
            len(rows), width
        )
        for name, rows in parts.items()
    }


def _graphs(
    rows: list[ValidRow],
    labels: np.ndarray,
    bounds: np.ndarray,
    options: TableOptions,
    table: TableContents,
) -> LazyGraphs:
    weights = None if options.weight_column is None else np.array([row.weight for row in rows])
    return LazyGraphs(
        [row.text for row in rows],
        labels,
        get_featuriser(OF_SMILES),
        weights,
        parse_molblock if table.from_records and not options.standardise else parse_smiles,
        _descriptors(options),
        np.array([row.extra for row in rows], np.float32),
        bounds,
    )


def _descriptors(options: TableOptions) -> tuple[str, ...]:
    return () if options.descriptors is None else descriptor_names()


def _extra_inputs(
    options: TableOptions, table: TableContents, train: Sequence[ValidRow]
) -> ExtraInputs:
    """Return what is read beside the graphs; each column must have a value in training."""
    for place, name in enumerate(table.columns.extra_names):
        if all(math.isnan(row.extra[place]) for row in train):
            raise DataError(
                f"{options.table}: {name} has no value in the training split: leave it out of "
                "--data.descriptor_columns, or choose another split"
            )
    return ExtraInputs(_descriptors(options), table.columns.extra_names)


def _fingerprint(
    options: TableOptions, tables: Sequence[TableContents], kind: Kind, sha256: Sequence[str]
) -> str:
    """Hash the files' contents and what decides about graphs, labels and splits.

    Neither where a file lies nor whether a column was named or found makes a difference.
    """
    split = options.resolved_split
    decisive = {
        "version": _VERSION,
        "rdkit": RDKIT_VERSION,
        "featuriser": OF_SMILES,
        "kind": kind,
        "columns": [dataclasses.asdict(table.columns) for table in tables],
        "formats": [table.format for table in tables],
        "split": split,
        "fractions": options.split_fractions if split in ("random", "scaffold") else None,
        "seed": options.split_seed if split == "random" else None,
    }
    if options.folds is not None:
        decisive |= {"folds": [options.folds, options.fold], "seed": options.split_seed}
    if options.descriptors is not None:
        decisive["descriptors"] = descriptor_names()
    for name in ("sheet", "header_row"):
        if getattr(options, name) is not None:
            decisive[name] = getattr(options, name)
    if options.standardise:
        decisive["standardise"] = sorted(options.standardise)
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode())
    for one in sha256:
        digest.update(bytes.fromhex(one))
    return digest.hexdigest()


def _ones(tables: Sequence[TableContents]) -> tuple[str, ...]:
    """Return the words that labels of class 1 are written as, of each target; mostly none."""
    words = (
        set().union(*(table.words.get(name, ()) for table in tables))
        for name in tables[0].columns.names
    )
    ones = tuple(" or ".join(sorted(filter(parse_class, of_target))) for of_target in words)
    return ones if any(ones) else ()


def _place(row: ValidRow, split: str, files: int) -> str:
    """Where a row stands, for warnings."""
    return f"row {row.number}" + (f" of the {split} file" if files > 1 else "")


def _unread(tables: Sequence[TableContents], options: TableOptions, kind: Kind) -> Iterator[str]:
    """Say what in the tables should perhaps have been read in another way."""
    numbers = kind == "regression"
    # A class has no bound: it is the right one, or its row has to go.
    mend = "write a bound as >10 into the label's cell" if numbers else "see that the class is sure"
    for name in dict.fromkeys(name for table in tables for name in table.relations):
        yield (
            f"column {name!r} says that some values are bounds (> or <) and is not read: labels "
            f"are learned as they stand; {mend}, or take those rows out"
        )
    yield from _units(tables) if numbers else ()
    for name in tables[0].split_columns if options.split == "auto" and len(tables) == 1 else ():
        yield (
            f"column {name!r} has a split, which is not taken: --data.split column "
            f"--data.split_column {shlex.quote(name)} takes it"
        )
    for table in tables:
        if table.decimal_comma and table.grouped:
            yield (
                f"labels have a decimal comma, as {table.decimal_comma}, or a point, as "
                f"{table.grouped}, which is read as a decimal point: where it stands between "
                "thousands it has to go"
            )
    salts = sum("." in row.canonical for table in tables for row in table.valid)
    if salts and "fragment" not in options.standardise:
        have = "molecule is" if salts == 1 else "molecules are"
        yield (
            f"{salts:,} {have} of several pieces, as salts are: to a duplicate and to a split each "
            "salt is a molecule of its own; --data.standardise '[fragment]' takes the largest piece"
        )
    left_out, used = (
        sum(len(rows) for rows in all_rows)
        for all_rows in zip(*((table.invalid, table.valid) for table in tables), strict=True)
    )
    if left_out > used:
        yield f"{left_out:,} of {left_out + used:,} rows are left out: are the rest a fair sample?"


def _units(tables: Sequence[TableContents]) -> Iterator[str]:
    """Say which columns name several units of what may be the labels."""
    for name in dict.fromkeys(name for table in tables for name in table.units):
        found = sum((table.units.get(name, Counter()) for table in tables), Counter[str]())
        if len(found) > 1:
            *others, last = (f"{unit} ({count:,})" for unit, count in found.most_common())
            yield (
                f"column {name!r} holds {', '.join(others)} and {last}, and is not read: bring the "
                "labels to one unit"
            )


def _added(counts: Iterable[CellCounts]) -> dict[str, tuple[int, str]]:
    """Return counts over all tables."""
    total = CellCounts()
    for table in counts:
        for name, (count, first) in table.items():
            total.add(name, first, count)
    return dict(total)


def _report(
    options: TableOptions,
    sha256: tuple[str, ...],
    tables: Sequence[TableContents],
    parts: dict[str, list[ValidRow]],
    labels: dict[str, np.ndarray],
    bounds: dict[str, np.ndarray],
    task: Task,
    targets: tuple[TargetReport, ...],
) -> DataReport:
    atoms = [row.atoms for rows in parts.values() for row in rows]
    places = [_place(row, name, len(tables)) for name, rows in parts.items() for row in rows]
    bounded = np.sum(~np.isnan(np.concatenate(list(bounds.values()))), axis=0).tolist()
    words = {
        "random": f"random, seed {options.split_seed}",
        "scaffold": "by scaffold",
        "column": f"by column {options.split_column!r}",
        "files": "separate files",
    }
    split = words[options.resolved_split]
    if options.fold is not None:
        kind = options.resolved_split
        split = f"fold {options.fold} of {options.folds} ({kind}, seed {options.split_seed})"
    return DataReport(
        name=_stem(options.table),
        files=tuple(str(path) for path in options.paths),
        sha256=sha256,
        kind=task.kind,
        split=split,
        splits={
            name: SplitRows([row.number for row in rows], [row.smiles for row in rows])
            for name, rows in parts.items()
        },
        invalid=tuple(row for table in tables for row in table.invalid),
        targets=targets,
        duplicates=find_duplicates(parts, task.kind),
        leakage=find_leakage(parts),
        atoms=(min(atoms), sum(atoms) / len(atoms), max(atoms)),
        warnings=(
            *_unread(tables, options, task.kind),
            *find_warnings(targets, labels, task.kind, places, atoms),
        ),
        words={
            name: tuple(sorted(words))
            for name in tables[0].columns.names
            if (words := set().union(*(table.words.get(name, ()) for table in tables)))
        },
        bounds={
            target.name: (low, high)
            # Without any bound there are no columns of them.
            for target, low, high in zip(
                targets, bounded[: len(targets)], bounded[len(targets) :], strict=False
            )
            if low or high
        },
        one_of=task.one_of,
        decimal_comma=next((one.decimal_comma for one in tables if one.decimal_comma), ""),
        cells=tuple(cell for table in tables for cell in table.cells),
        no_value=_added(table.no_value for table in tables),
        percent=_added(table.percent for table in tables),
        not_taken=tables[0].not_taken,
        notes=tuple(dict.fromkeys(note for table in tables for note in table.notes)),
    )
