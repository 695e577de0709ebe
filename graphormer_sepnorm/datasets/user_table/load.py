"""A user's own table as a data set: molecules with labels from files.

Rows that cannot be used are left out and reported, never fatal unless asked. The table is read
once; graphs are made later, when the graph store is built.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from graphormer_sepnorm.chem.features import OF_SMILES, get_featurizer
from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs, fingerprint_of
from graphormer_sepnorm.datasets.splits import SPLITS, DatasetSplits
from graphormer_sepnorm.datasets.splitting import split_rows
from graphormer_sepnorm.datasets.user_table.report import DataReport
from graphormer_sepnorm.datasets.user_table.rows import (
    InvalidRow,
    TableContents,
    ValidRow,
    read_rows,
)
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.formatting import listed, shortened
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import metrics_of
from graphormer_sepnorm.tables.columns import parse_class, readable

_MOST_CLASSES = 100  # more different values are no classes, but numbers or names

Parts = Mapping[str, Sequence[ValidRow]]


def load_table(config: DataConfig) -> DatasetSplits:
    """Load a table, split it, and report what is in it, under the name of its file.

    Raises:
        DataError: A file cannot be read, columns are missing or cannot be told, rows cannot be
            used and that is to be an error, a split is empty that must not be, or nothing can be
            learned from a target (no label, or one class only, in the training split).
        ConfigError: The units do not fit the targets.
    """
    tables: dict[str, TableContents] = {}
    for name, path in config.files.items():
        if path.is_fifo():
            raise DataError(
                f"{path} is a pipe, and training reads a table more than once: save it as a file"
            )
        targets = tuple(tables["train"].columns.targets) if tables else config.target_columns or ()
        tables[name] = read_rows(path, config, name, targets)
        _check_rows(config, path, tables[name])
    columns, one_of = tables["train"].columns, ""
    names = tuple(columns.targets)
    if config.task == "multiclass":
        one_of, names = names[0], _by_classes(config, tables)
    parts: Parts = split_rows(config, tables)
    labels, bounds = _labels_of(parts, len(names))
    words = {
        name: set().union(*(table.words.get(name, ()) for table in tables.values()))
        for name in names
    }
    task = _task(config, words, labels, bounds, one_of)
    file = config.files["train"].name.removesuffix(".gz")
    name = Path(file).stem or file
    report = DataReport(name, config, tables, parts, labels, bounds, words, task)
    _check_targets(report)
    report = replace(report, warnings=tuple(_warnings(report)))

    def graphs(name: str) -> LazyGraphs:
        rows = parts[name]
        return LazyGraphs(
            [row.text for row in rows],
            labels[name],
            get_featurizer(OF_SMILES),
            np.array([row.weight for row in rows]),
            np.array([row.extra for row in rows], np.float32) if rows else None,
            bounds[name],
        )

    # Under a split by time folds are by scaffold: molecules to come have new ones.
    by = {"group": "split", "scaffold": "scaffold", "time": "scaffold"}.get(config.resolved_split)
    made = [graphs(split) for split in SPLITS]
    return DatasetSplits(
        name,
        *made,
        task=task,
        fingerprint=fingerprint_of(made, OF_SMILES, task),
        feature_version=OF_SMILES,
        featurizer=OF_SMILES,
        smiles={name: [row.smiles for row in rows] for name, rows in parts.items()},
        groups={
            name: [(getattr(row, by) if by else "", row.canonical) for row in rows]
            for name, rows in parts.items()
        },
        extra_inputs=tuple(columns.extra),
        standardize=tuple(config.standardize or ()),
        report=report,
    )


def _check_rows(config: DataConfig, path: Path, table: TableContents) -> None:
    """Refuse a file without usable rows or labels, and unusable ones that are to be an error."""
    unusable = sorted([*table.invalid, *table.cells], key=lambda one: one.row)
    if not unusable and not table.valid:
        raise DataError(f"{path} has no rows: nothing can be learned from it")

    def refuse(what: str, bad: Sequence[InvalidRow], advice: str) -> None:
        first = f"the first is {bad[0].place}: {bad[0].reason}"
        raise DataError(f"{path}: {what} cannot be used, {first}: {advice}")

    if unusable and config.on_invalid == "error":
        advice = "correct them, or leave them out with --data.on_invalid skip"
        refuse(f"{len(unusable):,} rows or labels", unusable, advice)
    count = len(table.columns.targets)
    for at, name in enumerate(table.columns.targets):
        own = [one for one in unusable if one.column == name]
        usable = sum(
            not all(map(math.isnan, (*row.labels[at : at + 1], *row.bounds[at::count])))
            for row in table.valid
        )
        if len(own) > usable:
            what = f"{len(own):,} of {len(own) + usable:,} labels of {name}"
            advice = "correct them or name another column; for classes in words give "
            refuse(what, own, f"{advice}--data.positive, or --data.task multiclass")
    if not table.valid:
        refuse(f"all {len(unusable):,} rows", unusable, "correct them")


def _by_classes(config: DataConfig, tables: Mapping[str, TableContents]) -> tuple[str, ...]:
    """Give the rows a label of 0 or 1 for each class, and return the names of these targets.

    Classes are ordered as numbers where they are numbers, else as text.
    """
    (column,) = tables["train"].columns.targets
    found = dict.fromkeys(row.class_name for table in tables.values() for row in table.valid)

    def order(name: str) -> tuple[bool, float, str]:
        try:
            return False, float(name), name
        except ValueError:
            return True, 0.0, name

    classes = sorted(found, key=order)
    if not 2 <= len(classes) <= _MOST_CLASSES:
        values = [shortened(readable(one)) for one in classes]
        raise DataError(
            f"{config.table}: {column} has {len(classes):,} different values "
            f"({listed(values, most=3)}), and classes are 2 to "
            f"{_MOST_CLASSES}: name another column, or give --data.task regression"
        )
    for table in tables.values():
        table.valid = [
            replace(row, labels=tuple(float(row.class_name == name) for name in classes))
            for row in table.valid
        ]
    return tuple(f"{column}_{name}" for name in classes)


def _labels_of(parts: Parts, targets: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the labels of each split, float64 ``[n, targets]``, and their bounds.

    These are as `PackedGraphs.bounds`.
    """
    width = 2 * targets * any(row.bounds for rows in parts.values() for row in rows)
    unknown = (math.nan,) * width
    labels = {
        name: np.array([row.labels for row in rows], np.float64).reshape(len(rows), targets)
        for name, rows in parts.items()
    }
    bounds = {
        name: np.array([row.bounds or unknown for row in rows]).reshape(len(rows), width)
        for name, rows in parts.items()
    }
    return labels, bounds


def _task(
    config: DataConfig,
    words: Mapping[str, set[str]],
    labels: Mapping[str, np.ndarray],
    bounds: Mapping[str, np.ndarray],
    one_of: str,
) -> Task:
    names, units = tuple(words), config.units
    if units and len(units) != len(names):
        raise ConfigError(
            f"--data.units has {len(units)} units for {len(names)} target columns "
            f"({', '.join(map(readable, names))}): give one for each, '' where there is none"
        )
    kind = "regression" if config.task == "regression" else "binary"
    if config.task == "auto":
        everything = np.concatenate([*labels.values()])
        classes = np.isin(everything[~np.isnan(everything)], (0, 1)).all()
        kind = "binary" if classes and not bounds["train"].shape[1] else "regression"
    ones = (config.positive or "",) * len(names)
    if config.positive is None:
        ones = tuple(" or ".join(sorted(filter(parse_class, words[name]))) for name in names)
    return Task(
        kind,
        tuple(map(readable, names)),
        tuple(units or ("",) * len(names)),
        metrics_of(kind)[0].name,
        one_of,
        ones if kind == "binary" and any(ones) else (),
    )


def _check_targets(report: DataReport) -> None:
    """Refuse labels, and extra inputs, from which nothing can be learned."""
    config, task, bounds = report.config, report.task, report.bounds["train"]
    for at, name in enumerate(task.targets):
        column = report.labels["train"][:, at]
        known = column[~np.isnan(column)]
        why = ""
        if task.one_of and not known.any():
            why = f"no training molecule is {task.classes[at]}, one of the classes of {task.one_of}"
        elif not len(known):
            bounded = not np.isnan(bounds[:, at :: len(task.targets)]).all()
            why = f"{name} has no label in the training split" + " but bounds" * bounded
        elif task.kind == "binary" and len({*known.tolist()}) == 1:
            why = f"all {len(known):,} training labels of {name} are {known[0]:.0f}: "
            why += "classification needs both classes"
        if why:
            raise DataError(
                f"{config.table}: {why}: leave it out of --data.target_columns, give more labels, "
                "or choose another split"
            )
    for at, name in enumerate(report.tables["train"].columns.extra):
        if all(math.isnan(row.extra[at]) for row in report.splits["train"]):
            raise DataError(
                f"{config.table}: {name} has no value in the training split: leave it out of "
                "--data.descriptor_columns, or choose another split"
            )


def _warnings(report: DataReport) -> Iterator[str]:
    """Say what should perhaps be treated in another way, and what cannot be evaluated."""
    parts = report.splits
    salts = sum("." in row.canonical for part in parts.values() for row in part)
    if salts and "fragment" not in (report.config.standardize or ()):
        yield (
            f"{salts:,} of the molecules are of several pieces, as salts are: to a duplicate "
            "and to a split each salt is a molecule of its own; --data.standardize "
            "'[fragment]' takes the largest piece"
        )
    if not parts["validation"]:
        yield "no validation split: but for folds of an ensemble, nothing is calibrated"
    if not parts["test"]:
        yield "no test split: nothing is tested"
    for at, name in enumerate(report.task.targets):
        known = np.unique(report.labels["train"][:, at])
        bounded = report.bounds["train"].shape[1] > 0
        if np.isfinite(known).sum() == 1 and report.task.kind == "regression" and not bounded:
            yield f"all training labels of {name} are {known[0]:g}: there is nothing to learn"
        for split in SPLITS[1:]:
            if parts[split] and np.isnan(report.labels[split][:, at]).all():
                yield f"{name} has no label in the {split} split"
