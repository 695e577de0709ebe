"""Whether anything can be learned from the labels of a table, before anything is tried."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphormer_sepnorm.datasets.user_table.checks import TargetReport
from graphormer_sepnorm.datasets.user_table.options import TableOptions
from graphormer_sepnorm.datasets.user_table.row_reader import NOT_A_CLASS, ValidRow
from graphormer_sepnorm.datasets.user_table.rows import InvalidRow, TableContents
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.formatting import listed, shortened
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import Kind, metrics_of
from graphormer_sepnorm.tables.columns import readable

# More different values are no classes, but numbers or names.
_MOST_CLASSES = 100
_SMALLEST = float(np.finfo(np.float32).tiny)


def check_classes(path: Path, table: TableContents) -> None:
    """Refuse a classification of labels most of which are other numbers than 0 and 1.

    Raises:
        DataError: More than half of them are.
    """
    rows = [row for row in table.invalid if row.kind == NOT_A_CLASS]
    # Where a row has a good label of another target, its number is a cell that cannot be used.
    counted: list[tuple[Sequence[InvalidRow], int]] = [(rows, len(table.valid))]
    for place, name in enumerate(table.columns.names):
        cells = [one for one in table.cells if (one.kind, one.column) == (NOT_A_CLASS, name)]
        known = sum(row.labels[place] == row.labels[place] for row in table.valid) if cells else 0
        counted.append((cells, known))
    for others, good in counted:
        labelled = len(others) + good
        if 2 * len(others) <= labelled:
            continue
        first = others[0]
        raise DataError(
            f"{path}: {len(others):,} of {labelled:,} labels are not 0 or 1, the first in "
            f"{first.place}: {first.reason}; these are for a regression: -c table_regression, or "
            "--data.task regression"
        )


def check_cells(path: Path, table: TableContents) -> None:
    """Refuse a target of which other rows have labels, and none that can be used.

    Raises:
        DataError: There is one; it says why the first of them cannot be used.
    """
    count = len(table.columns.names)
    for place, name in enumerate(table.columns.names):
        cells = [cell for cell in table.cells if cell.column == name]
        if cells and not any(
            number == number
            for row in table.valid
            for number in (row.labels[place], *row.bounds[place::count])
        ):
            raise DataError(
                f"{path}: none of the {len(cells):,} labels of {readable(name)} can be used; "
                f"{cells[0].place}: {cells[0].reason}"
            )


def by_classes(path: Path, tables: Sequence[TableContents]) -> list[TableContents]:
    """Turn the only target, whose values are classes, into a target of 0 and 1 for each class.

    Classes are ordered as numbers where they are numbers, else as text.

    Raises:
        DataError: There are fewer than two, or too many for classes, or some that differ in
            capitals only.
    """
    column = tables[0].columns.names[0]
    found = dict.fromkeys(name for table in tables for name in table.classes)
    alike: dict[str, list[str]] = defaultdict(list)
    for name in found:
        alike[name.casefold()].append(name)
    for names in alike.values():
        if len(names) > 1:
            *others, last = (repr(shortened(readable(name), 20)) for name in names)
            raise DataError(
                f"{path}: classes {', '.join(others)}"
                f"{',' if others[1:] else ' and'} {last} of column {readable(column)!r} differ in "
                "capitals only: write them alike"
            )
    classes = sorted(found, key=_in_order)
    if not 2 <= len(classes) <= _MOST_CLASSES:
        values = [shortened(readable(one)) for one in classes]
        raise DataError(
            f"{path}: {readable(column)} has {len(classes):,} different values "
            f"({listed(values, most=3)}), and classes are 2 to "
            f"{_MOST_CLASSES}: name another column, or give --data.task regression"
        )
    changed = []
    for table in tables:
        ones = np.eye(len(classes))[[classes.index(name) for name in table.classes]].tolist()
        names = tuple(f"{column}_{name}" for name in classes)
        changed.append(
            replace(
                table,
                columns=replace(table.columns, names=names),
                valid=[replace(row, labels=tuple(ones[int(row.labels[0])])) for row in table.valid],
            )
        )
    return changed


def _in_order(name: str) -> tuple[bool, float, str]:
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name


def task_of(
    options: TableOptions,
    names: Sequence[str],
    labels: Mapping[str, np.ndarray],
    bounds: Mapping[str, np.ndarray],
    one_of: str = "",
) -> Task:
    """Return what the labels ``[n, targets]`` of each split, and bounds of some, mean.

    Raises:
        ConfigError: There are not as many units as targets.
    """
    if options.units and len(options.units) != len(names):
        raise ConfigError(
            f"--data.units has {len(options.units)} units for {len(names)} target columns "
            f"({', '.join(map(readable, names))}): give one for each, '' where there is none"
        )
    units = options.units or ("",) * len(names)
    kind: Kind
    if one_of:
        kind = "binary"
    elif options.task == "auto":
        present = [values[~np.isnan(values)] for values in labels.values()]
        binary = all(bool(np.isin(values, (0, 1)).all()) for values in present)
        binary &= not any(values.shape[1] for values in bounds.values())
        kind = "binary" if binary else "regression"
    else:
        assert options.task != "multiclass"
        kind = options.task
    shown = tuple(readable(name) for name in names)
    return Task(kind, shown, units, metrics_of(kind)[0].name, readable(one_of))


def check_labels(
    options: TableOptions,
    table: TableContents,
    parts: Mapping[str, Sequence[ValidRow]],
    labels: Mapping[str, np.ndarray],
    bounds: Mapping[str, np.ndarray],
    task: Task,
    targets: Sequence[TargetReport],
) -> None:
    """Refuse labels from which nothing can be learned.

    Args:
        options: What the user says about the table.
        table: The table to train on.
        parts: The rows of each split.
        labels: Their labels, float64 ``[n, targets]``; nan = missing.
        bounds: Of the missing ones, float64 ``[n, 2 targets]`` or ``[n, 0]``.
        task: What they are.
        targets: Their summaries.

    Raises:
        DataError: A target has no label or one class only in the training split, or labels that
            32-bit numbers cannot hold once they are standardised.
        ConfigError: Labels in words are to be learned as numbers.
    """
    everything = np.concatenate([*labels.values()])
    known = np.isin(everything, (0, 1)) | np.isnan(everything)
    classes = np.asarray(known.all(axis=0)).tolist()
    words = [
        name
        for name, only in zip(table.columns.names, classes, strict=True)
        if only and name in table.words
    ]
    if options.task == "regression" and len(words) == len(task.targets):
        said = " and ".join(sorted(set.union(*(table.words[name] for name in words)), reverse=True))
        raise ConfigError(
            f"{options.table}: {' and '.join(words)} {'is' if len(words) == 1 else 'are'} {said}, "
            "which is a classification and no regression: give -c table_classification, or "
            "--data.task binary"
        )
    for number, target in enumerate(targets):
        sides = bounds["train"][:, number :: len(targets)]
        _check_training_labels(options.table, target, task, not np.isnan(sides).all())
    if task.kind == "regression":
        for number, target in enumerate(task.targets):
            columns = {name: values[:, number] for name, values in labels.items()}
            _check_scale(options, target, columns["train"], columns, parts)
            for side in range(number, bounds["train"].shape[1], len(task.targets)):
                sides = {name: values[:, side] for name, values in bounds.items()}
                _check_scale(options, target, columns["train"], sides, parts)


def _check_training_labels(path: Path, target: TargetReport, task: Task, bounded: bool) -> None:
    summary = target.splits["train"]
    if task.one_of and not summary.positives:
        raise DataError(
            f"{path}: no training molecule is {target.name.removeprefix(f'{task.one_of}_')}, one "
            f"of the classes of {task.one_of}: choose another split, or leave its rows out"
        )
    if not summary.labels and bounded:
        raise DataError(
            f"{path}: all training labels of {target.name} are bounds, and what is learned is "
            "scaled by the others: give some, or choose another split"
        )
    if not summary.labels:
        raise DataError(
            f"{path}: {target.name} has no label in the training split: leave it out of "
            "--data.target_columns, or choose another split"
        )
    if task.kind == "binary" and summary.positives in (0, summary.labels):
        raise DataError(
            f"{path}: all {summary.labels:,} training labels of {target.name} are "
            f"{1 if summary.positives else 0}: classification needs both classes; leave it out "
            "of --data.target_columns, or choose another split"
        )


def _check_scale(
    options: TableOptions,
    target: str,
    train: np.ndarray,
    labels: Mapping[str, np.ndarray],
    parts: Mapping[str, Sequence[ValidRow]],
) -> None:
    """Standardise labels as training does, in float32, and see that all of them survive it."""
    known = train[~np.isnan(train)]
    low, high, mean, deviation = known.min(), known.max(), known.mean(), known.std()
    if low == high:
        return  # a constant is only shifted
    step = np.spacing(np.float32(max(abs(low), abs(high))))  # of neighbouring 32-bit numbers
    if deviation < max(float(step), _SMALLEST):
        raise DataError(
            f"{options.table}: the training labels of {target}, {low:.9g} to {high:.9g}, lie too "
            "close together for 32-bit numbers: give them in another unit, or less a constant"
        )
    for (name, values), at in zip(labels.items(), range(len(labels)), strict=True):
        with np.errstate(over="ignore"):
            scaled = (np.float32(values) - np.float32(mean)) / np.float32(deviation)
        beyond = np.flatnonzero(np.isinf(scaled))
        if len(beyond):
            row = int(beyond[0])
            path = options.paths[at % len(options.paths)]
            raise DataError(
                f"{path}, row {parts[name][row].number}: {target} is {values[row]:.6g}, too far "
                f"from the training labels ({mean:.3g} with a deviation of {deviation:.3g}) for "
                "32-bit numbers: mend it, or give the labels in another unit"
            )
