"""A user's own table as a data set: molecules with labels from files.

Rows that cannot be used are left out and reported, never fatal unless asked. The table is read
once; graphs are made later, when the graph store is built.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from graphormer_sepnorm.chem.descriptors import descriptor_names
from graphormer_sepnorm.chem.features import OF_SMILES, get_featuriser
from graphormer_sepnorm.chem.molecules import RDKIT_VERSION, parse_molblock, parse_smiles
from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import SPLITS, DatasetSplits
from graphormer_sepnorm.datasets.user_table.labels import (
    by_classes,
    check_labels,
    check_rows,
    task_of,
)
from graphormer_sepnorm.datasets.user_table.report import (
    DataReport,
    SplitRows,
    TargetReport,
    find_duplicates,
    find_leakage,
    find_warnings,
    summarise,
)
from graphormer_sepnorm.datasets.user_table.rows import (
    TableContents,
    ValidRow,
    layout_of,
    read_rows,
)
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


def load_table(config: DataConfig) -> DatasetSplits:
    """Load a table, split it, and report what is in it.

    Args:
        config: Files, columns, split.

    Returns:
        The data set under the name of its file, with a `DataReport`. Its fingerprint is that of the
        files' contents and of all options that decide about graphs, labels and splits.

    Raises:
        DataError: A file cannot be read, columns are missing or cannot be told, rows cannot be
            used and that is to be an error, a split is empty that must not be, or nothing can be
            learned from a target (no label, or one class only, in the training split).
        ConfigError: The units do not fit the targets, or the task does not fit the labels.
    """
    split = config.resolved_split
    limit = None if split == "scaffold" else _REPORTED_SCAFFOLDS
    tables: dict[str, TableContents] = {}
    for name, path in config.files.items():
        if path.is_fifo():
            raise DataError(
                f"{path} is a pipe, and training reads a table more than once: save it as a file"
            )
        own, targets = config, config.target_columns or ()
        if name != "train":
            targets = tables["train"].columns.names
            if not _has_weights(config, name, path):
                own = replace(config, weight_column=None)
        tables[name] = read_rows(path, own, targets, limit, None if name == "train" else 1.0)
        check_rows(config, path, tables[name])

    one_of = tables["train"].columns.names[0] if config.task == "multiclass" else ""
    if one_of:
        tables = by_classes(config.table, tables)
    if config.duplicates != "keep":
        tables = _together(config, tables)
    columns = tables["train"].columns
    parts = split_rows(config, tables)
    labels = {
        name: np.array([row.labels for row in rows], np.float64).reshape(-1, len(columns.names))
        for name, rows in parts.items()
    }
    bounds = _bounds(parts, len(columns.names))
    task = task_of(config, columns.names, labels, bounds, one_of)
    words = _words(tables)
    if task.kind == "binary":
        ones = (config.positive or "",) * len(task.targets)
        if config.positive is None:
            ones = tuple(" or ".join(filter(parse_class, words[name])) for name in columns.names)
        task = replace(task, ones=ones if any(ones) else ())
    if config.class_weight is not None:
        parts = _class_weights(parts, task)
    targets = tuple(
        TargetReport(
            name,
            unit,
            {part: summarise(values[:, n], task.kind) for part, values in labels.items()},
        )
        for n, (name, unit) in enumerate(zip(task.targets, task.units, strict=True))
    )
    check_labels(config, tables["train"], labels, bounds["train"], task, targets)
    for place, name in enumerate(columns.extra_names):
        if all(math.isnan(row.extra[place]) for row in parts["train"]):
            raise DataError(
                f"{config.table}: {name} has no value in the training split: leave it out of "
                "--data.descriptor_columns, or choose another split"
            )
    sha256 = tuple(map(sha256_of, config.files.values()))
    descriptors = () if config.descriptors is None else descriptor_names()
    weighs = config.weight_column is not None or config.class_weight is not None
    graphs = (
        LazyGraphs(
            [row.text for row in rows],
            labels[name],
            get_featuriser(OF_SMILES),
            np.array([row.weight for row in rows]) if weighs else None,
            parse_molblock
            if tables.get(name, tables["train"]).columns.smiles is None and not config.standardise
            else parse_smiles,
            descriptors,
            np.array([row.extra for row in rows], np.float32) if rows else None,
            bounds[name],
        )
        for name, rows in parts.items()
    )
    return DatasetSplits(
        _stem(config),
        *graphs,
        task=task,
        fingerprint=_fingerprint(config, tables, task.kind, sha256),
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
        extra_inputs=ExtraInputs(descriptors, columns.extra_names),
        standardise=tuple(config.standardise or ()),
        report=_report(config, sha256, tables, parts, labels, bounds, task, targets, words),
    )


def _has_weights(config: DataConfig, split: str, path: Path) -> bool:
    """Whether a file beside that of the training split has weights.

    They act in training only, so it needs none, and a row without one weighs 1; but of an ensemble
    by folds the members, and trees, are trained on the validation split too.
    """
    if config.weight_column is None or split == "test":
        return False
    with open_table(path, layout=layout_of(config)) as reader:
        return config.weight_column.lower() in [readable(name).lower() for name in reader.columns]


def _stem(config: DataConfig) -> str:
    name = config.files["train"].name.removesuffix(".gz")
    return Path(name).stem or name


def _bounds(parts: Mapping[str, list[ValidRow]], targets: int) -> dict[str, np.ndarray]:
    """Return `ValidRow.bounds` of each split, ``[n, 2 T]``, or ``[n, 0]`` if no row has any."""
    width = 2 * targets * any(row.bounds for rows in parts.values() for row in rows)
    unknown = (math.nan,) * width
    return {
        name: np.array([row.bounds or unknown for row in rows], np.float64).reshape(
            len(rows), width
        )
        for name, rows in parts.items()
    }


def _fingerprint(
    config: DataConfig, tables: Mapping[str, TableContents], kind: Kind, sha256: Collection[str]
) -> str:
    """Hash the files' contents and what decides about graphs, labels and splits.

    Neither where a file lies nor whether a column was named or found makes a difference.
    """
    split = config.resolved_split
    decisive = {
        "version": _VERSION,
        "rdkit": RDKIT_VERSION,
        "featuriser": OF_SMILES,
        "kind": kind,
        "columns": [asdict(replace(table.columns, id=None)) for table in tables.values()],
        "formats": [table.format for table in tables.values()],
        "split": split,
        "fractions": None if split in ("column", "files") else config.split_fractions,
        "seed": config.split_seed if split in ("random", "group") else None,
    }
    if "train" in tables and len(tables) == 2:
        decisive["files"] = [*tables]
    if config.folds is not None:
        decisive |= {"folds": [config.folds, config.fold], "seed": config.split_seed}
    if config.descriptors is not None:
        decisive["descriptors"] = descriptor_names()
    for name in ("sheet", "header_row", "positive", "class_weight", "duplicates"):
        if getattr(config, name) not in (None, "keep"):
            decisive[name] = getattr(config, name)
    if config.standardise:
        decisive["standardise"] = sorted(config.standardise)
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode())
    for one in sha256:
        digest.update(bytes.fromhex(one))
    return digest.hexdigest()


def _words(tables: Mapping[str, TableContents]) -> dict[str, tuple[str, ...]]:
    """Return the words that the labels of each target are written as; mostly none."""
    return {
        name: tuple(sorted(set().union(*(table.words.get(name, ()) for table in tables.values()))))
        for name in tables["train"].columns.names
    }


def _together(config: DataConfig, tables: Mapping[str, TableContents]) -> dict[str, TableContents]:
    """Bring rows of one molecule to the first of them, with the mean or median of their labels.

    They agree in what is read beside the molecule, and in the column of the split.

    Raises:
        ConfigError: The labels are classes.
    """
    everything = [row.labels for table in tables.values() for row in table.valid]
    if config.task != "regression" and np.isin(everything, (0, 1, math.nan)).all():
        raise ConfigError(
            f"--data.duplicates {config.duplicates} is for numbers, and the labels are classes: "
            "leave it out"
        )
    combine = np.nanmean if config.duplicates == "mean" else np.nanmedian
    changed = {}
    for name, table in tables.items():
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
        note = f"{len(table.valid):,} rows, by the {config.duplicates} of molecules {len(valid):,}"
        changed[name] = replace(table, valid=valid, notes=(*table.notes, note))
    return changed


def _class_weights(parts: Mapping[str, list[ValidRow]], task: Task) -> dict[str, list[ValidRow]]:
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


def _warnings(config: DataConfig, tables: Collection[TableContents]) -> Iterator[str]:
    """Say what in the tables should perhaps be treated in another way."""
    salts = sum("." in row.canonical for table in tables for row in table.valid)
    if salts and "fragment" not in (config.standardise or ()):
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
    left_out = sum(len(table.invalid) for table in tables)
    used = sum(len(table.valid) for table in tables)
    if left_out > used:
        yield f"{left_out:,} of {left_out + used:,} rows are left out: are the rest a fair sample?"


def _report(
    config: DataConfig,
    sha256: tuple[str, ...],
    tables: Mapping[str, TableContents],
    parts: Mapping[str, list[ValidRow]],
    labels: Mapping[str, np.ndarray],
    bounds: Mapping[str, np.ndarray],
    task: Task,
    targets: tuple[TargetReport, ...],
    words: Mapping[str, tuple[str, ...]],
) -> DataReport:
    atoms = [row.atoms for rows in parts.values() for row in rows]
    places = [
        f"row {row.number}" + (f" of the {name} file" if len(tables) > 1 else "")
        for name, rows in parts.items()
        for row in rows
    ]
    bounded = np.sum(~np.isnan(np.concatenate(list(bounds.values()))), axis=0).tolist()
    split = {
        "random": f"random, seed {config.split_seed}",
        "scaffold": "by scaffold",
        "files": "separate files",
    }.get(config.resolved_split, f"by column {config.column_of_split!r}")
    if config.fold is not None:
        kind = config.resolved_split
        split = f"fold {config.fold} of {config.folds} ({kind}, seed {config.split_seed})"
    first = tables["train"]
    return DataReport(
        name=_stem(config),
        files=tuple(map(str, config.files.values())),
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
        invalid=tuple(row for table in tables.values() for row in table.invalid),
        targets=targets,
        duplicates=find_duplicates(parts, task.kind),
        leakage=find_leakage(parts),
        atoms=(min(atoms), sum(atoms) / len(atoms), max(atoms)),
        warnings=(
            *_warnings(config, tables.values()),
            *find_warnings(targets, labels, bounds, task.kind, places, atoms),
        ),
        words={name: own for name, own in words.items() if own},
        bounds={
            target.name: (low, high)
            # Without any bound there are no columns of them.
            for target, low, high in zip(
                targets, bounded[: len(targets)], bounded[len(targets) :], strict=False
            )
            if low or high
        },
        one_of=task.one_of,
        cells=tuple(cell for table in tables.values() for cell in table.cells),
        id_name=first.id_name,
        unread=first.unread,
        notes=tuple(dict.fromkeys(note for table in tables.values() for note in table.notes)),
    )
