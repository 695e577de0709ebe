"""What the labels of a table are, and whether anything can be learned from them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.user_table.report import TargetReport
from graphormer_sepnorm.datasets.user_table.rows import NOT_A_CLASS, TableContents
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.formatting import listed, shortened
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import Kind, metrics_of
from graphormer_sepnorm.tables.columns import readable

# More different values are no classes, but numbers or names.
_MOST_CLASSES = 100


def check_rows(config: DataConfig, path: Path, table: TableContents) -> None:
    """Refuse a file without usable rows or labels, and unusable ones that are to be an error.

    Raises:
        DataError: There are such; it says why the first of them cannot be used.
    """
    unusable = sorted([*table.invalid, *table.cells], key=lambda one: one.row)
    if not unusable and not table.valid:
        raise DataError(f"{path} has no rows: nothing can be learned from it")
    if not unusable:
        return
    first = unusable[0]
    if config.on_invalid == "error":
        more = f"; {len(unusable) - 1:,} more cannot be used either" if len(unusable) > 1 else ""
        raise DataError(
            f"{first.file}, {first.place}: {first.reason}{more}: mend them, or leave them out with "
            "--data.on_invalid skip"
        )
    for column in ("", *table.columns.names):  # of whole rows, and of single labels
        others = [one for one in unusable if (one.kind, one.column) == (NOT_A_CLASS, column)]
        known = len(table.valid)
        if column and others:
            place = table.columns.names.index(column)
            known = sum(row.labels[place] == row.labels[place] for row in table.valid)
        if len(others) > known:
            raise DataError(
                f"{path}: {len(others):,} labels are not 0 or 1, the first in {others[0].place}: "
                f"{others[0].reason}; these are for a regression: -c table_regression, or "
                "--data.task regression"
            )
    if not table.valid:
        raise DataError(
            f"{path}: none of its {len(unusable):,} rows can be used; {first.place}: {first.reason}"
        )
    count = len(table.columns.names)
    for place, name in enumerate(table.columns.names):
        cells = [cell for cell in table.cells if cell.column == name]
        known = (
            number == number
            for row in table.valid
            for number in (row.labels[place], *row.bounds[place::count])
        )
        if cells and not any(known):
            raise DataError(
                f"{path}: none of the {len(cells):,} labels of {readable(name)} can be used; "
                f"{cells[0].place}: {cells[0].reason}"
            )


def by_classes(path: str | None, tables: Mapping[str, TableContents]) -> dict[str, TableContents]:
    """Turn the only target, whose values are classes, into a target of 0 and 1 for each class.

    Classes are ordered as numbers where they are numbers, else as text.

    Raises:
        DataError: There are fewer than two, or too many for classes, or some that differ in
            capitals only.
    """
    column = tables["train"].columns.names[0]
    found = dict.fromkeys(name for table in tables.values() for name in table.classes)
    alike: dict[str, list[str]] = defaultdict(list)
    for name in found:
        alike[name.casefold()].append(repr(shortened(readable(name), 20)))
    for names in alike.values():
        if len(names) > 1:
            raise DataError(
                f"{path}: classes {', '.join(names)} of column {readable(column)!r} differ in "
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
    changed = {}
    for split, table in tables.items():
        ones = np.eye(len(classes))[[classes.index(name) for name in table.classes]].tolist()
        names = tuple(f"{column}_{name}" for name in classes)
        valid = [replace(row, labels=tuple(ones[int(row.labels[0])])) for row in table.valid]
        changed[split] = replace(table, columns=replace(table.columns, names=names), valid=valid)
    return changed


def _in_order(name: str) -> tuple[bool, float, str]:
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name


def task_of(
    config: DataConfig,
    names: Sequence[str],
    labels: Mapping[str, np.ndarray],
    bounds: Mapping[str, np.ndarray],
    one_of: str = "",
) -> Task:
    """Return what the labels ``[n, targets]`` of each split, and bounds of some, mean.

    Raises:
        ConfigError: There are not as many units as targets.
    """
    if config.units and len(config.units) != len(names):
        raise ConfigError(
            f"--data.units has {len(config.units)} units for {len(names)} target columns "
            f"({', '.join(map(readable, names))}): give one for each, '' where there is none"
        )
    units = tuple(config.units or ("",) * len(names))
    kind: Kind = "regression" if config.task == "regression" else "binary"
    if config.task == "auto":
        present = [values[~np.isnan(values)] for values in labels.values()]
        binary = all(bool(np.isin(values, (0, 1)).all()) for values in present)
        binary &= not any(values.shape[1] for values in bounds.values())
        kind = "binary" if binary else "regression"
    shown = tuple(readable(name) for name in names)
    return Task(kind, shown, units, metrics_of(kind)[0].name, readable(one_of))


def check_labels(
    config: DataConfig,
    table: TableContents,
    labels: Mapping[str, np.ndarray],
    bounds: np.ndarray,
    task: Task,
    targets: Sequence[TargetReport],
) -> None:
    """Refuse labels from which nothing can be learned.

    Args:
        config: What the user says about the table.
        table: The table to train on.
        labels: Those of each split, float64 ``[n, targets]``; nan = missing.
        bounds: Of the missing ones of training, float64 ``[n, 2 targets]`` or ``[n, 0]``.
        task: What they are.
        targets: Their summaries.

    Raises:
        DataError: A target has no label or one class only in the training split.
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
    if config.task == "regression" and len(words) == len(task.targets):
        said = " and ".join(sorted(set.union(*(table.words[name] for name in words)), reverse=True))
        raise ConfigError(
            f"{config.table}: {listed(words)} {'is' if len(words) == 1 else 'are'} {said}, which "
            "is a classification and no regression: give -c table_classification, or --data.task "
            "binary"
        )
    for number, target in enumerate(targets):
        summary = target.splits["train"]
        if task.one_of and not summary.positives:
            raise DataError(
                f"{config.table}: no training molecule is "
                f"{target.name.removeprefix(f'{task.one_of}_')}, one of the classes of "
                f"{task.one_of}: choose another split, or leave its rows out"
            )
        if not summary.labels and not np.isnan(bounds[:, number :: len(targets)]).all():
            raise DataError(
                f"{config.table}: all training labels of {target.name} are bounds, and what is "
                "learned is scaled by the others: give some, or choose another split"
            )
        if not summary.labels:
            raise DataError(
                f"{config.table}: {target.name} has no label in the training split: leave it out "
                "of --data.target_columns, or choose another split"
            )
        if task.kind == "binary" and summary.positives in (0, summary.labels):
            raise DataError(
                f"{config.table}: all {summary.labels:,} training labels of {target.name} are "
                f"{1 if summary.positives else 0}: classification needs both classes; leave it "
                "out of --data.target_columns, or choose another split"
            )
