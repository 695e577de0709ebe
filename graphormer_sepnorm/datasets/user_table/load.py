"""A user's own table as a data set: molecules with labels from files.

Rows that cannot be used are left out and reported, never fatal unless asked. The table is read
once; graphs are made later, when the graph store is built.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
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
from graphormer_sepnorm.datasets.user_table.row_reader import ValidRow
from graphormer_sepnorm.datasets.user_table.rows import TableContents, read_rows
from graphormer_sepnorm.datasets.user_table.splits import split_rows
from graphormer_sepnorm.errors import ConfigError, DataError
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
            own = replace(options, weight_column=None)
        tables.append(read_rows(path, own, names, limit, 1.0 if tables else None))
    _check_rows(options, tables)

    one_of = ""
    if options.task == "multiclass":
        one_of = tables[0].columns.names[0]
        tables = by_classes(options.table, tables)
    if options.duplicates != "keep":
        tables = _together(options, tables)
    parts = split_rows(options, tables)
    labels = {
        name: np.array([row.labels for row in rows], dtype=np.float64)
        for name, rows in parts.items()
    }
    bounds = _bounds(parts, len(tables[0].columns.names))
    task = task_of(options, tables[0].columns.names, labels, bounds, one_of)
    if task.kind == "binary":
        ones = (options.positive,) * len(task.targets) if options.positive else _ones(tables)
        task = replace(task, ones=ones)
    if options.class_weight is not None:
        parts = _class_weights(options, parts, task)
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
                (
                    row.split if split == "group" else (row.scaffold or "") * (split == "scaffold"),
                    row.canonical,
                )
                for row in rows
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
    weighs = options.weight_column is not None or options.class_weight is not None
    weights = np.array([row.weight for row in rows]) if weighs else None
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
        "columns": [asdict(replace(table.columns, id=None)) for table in tables],
        "formats": [table.format for table in tables],
        "split": split,
        "fractions": None if split in ("column", "files") else options.split_fractions,
        "seed": options.split_seed if split in ("random", "group") else None,
    }
    if options.folds is not None:
        decisive |= {"folds": [options.folds, options.fold], "seed": options.split_seed}
    if options.descriptors is not None:
        decisive["descriptors"] = descriptor_names()
    for name in ("sheet", "header_row", "positive", "class_weight", "duplicates"):
        if getattr(options, name) not in (None, "keep"):
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


def _together(options: TableOptions, tables: Sequence[TableContents]) -> list[TableContents]:
    """Bring rows of one molecule to the first of them, with the mean or median of their labels.

    They agree in what is read beside the molecule, and in the column of the split.

    Raises:
        ConfigError: The labels are classes.
    """
    everything = [row.labels for table in tables for row in table.valid]
    if options.task != "regression" and np.isin(everything, (0, 1, math.nan)).all():
        raise ConfigError(
            f"--data.duplicates {options.duplicates} is for numbers, and the labels are classes: "
            "leave it out"
        )
    combine = np.nanmean if options.duplicates == "mean" else np.nanmedian
    changed = []
    for table in tables:
        same: dict[tuple[str, ...], list[ValidRow]] = defaultdict(list)
        for row in table.valid:
            same[row.canonical, row.split, repr(row.extra)].append(row)
        valid = []
        for rows in same.values():
            labels = np.array([row.labels for row in rows])
            known = ~np.isnan(labels).all(axis=0)
            combined = np.full(labels.shape[1], np.nan)
            combined[known] = combine(labels[:, known], axis=0)
            bounds = np.array(rows[0].bounds)
            bounds[np.resize(known, len(bounds))] = np.nan  # there is a label now
            weight = float(np.mean([row.weight for row in rows]))
            own = {"labels": tuple(combined.tolist()), "bounds": tuple(bounds.tolist())}
            valid.append(replace(rows[0], weight=weight, **own) if len(rows) > 1 else rows[0])
        note = f"{len(table.valid):,} rows, by the {options.duplicates} of molecules {len(valid):,}"
        changed.append(replace(table, valid=valid, notes=(*table.notes, note)))
    return changed


def _class_weights(
    options: TableOptions, parts: dict[str, list[ValidRow]], task: Task
) -> dict[str, list[ValidRow]]:
    """Give all classes the same weight in the loss.

    Raises:
        ConfigError: There are none, or several targets.
    """
    if task.kind != "binary" or (len(task.targets) > 1 and not task.one_of):
        raise ConfigError(
            "--data.class_weight balanced is for the classes of one target: leave it out"
        )
    classes = Counter(row.labels for name in SPLITS[:2] for row in parts[name])
    share = sum(classes.values()) / len(classes)
    return {
        name: [
            replace(row, weight=row.weight * share / classes.get(row.labels, share)) for row in rows
        ]
        for name, rows in parts.items()
    }


def _warnings(tables: Sequence[TableContents], options: TableOptions) -> Iterator[str]:
    """Say what in the tables should perhaps be treated in another way."""
    salts = sum("." in row.canonical for table in tables for row in table.valid)
    if salts and "fragment" not in options.standardise:
        yield (
            f"{salts:,} of the molecules are of several pieces, as salts are: to a duplicate and "
            "to a split each salt is a molecule of its own; --data.standardise '[fragment]' takes "
            "the largest piece"
        )
    if unsettled := sum(table.unsettled for table in tables):
        yield (
            f"{unsettled:,} of the molecules have more tautomers than RDKit goes through: each "
            "stays in the one that is written, and another one of it counts as another molecule"
        )
    left_out, used = (
        sum(len(rows) for rows in all_rows)
        for all_rows in zip(*((table.invalid, table.valid) for table in tables), strict=True)
    )
    if left_out > used:
        yield f"{left_out:,} of {left_out + used:,} rows are left out: are the rest a fair sample?"


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
        **dict.fromkeys(("column", "group", "time"), f"by column {options.column_of_split!r}"),
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
            name: SplitRows(
                [row.number for row in rows],
                [row.smiles for row in rows],
                [row.id for row in rows],
            )
            for name, rows in parts.items()
        },
        invalid=tuple(row for table in tables for row in table.invalid),
        targets=targets,
        duplicates=find_duplicates(parts, task.kind),
        leakage=find_leakage(parts),
        atoms=(min(atoms), sum(atoms) / len(atoms), max(atoms)),
        warnings=(
            *_warnings(tables, options),
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
        cells=tuple(cell for table in tables for cell in table.cells),
        id_name=tables[0].id_name,
        unread=tables[0].unread,
        notes=tuple(dict.fromkeys(note for table in tables for note in table.notes)),
    )
