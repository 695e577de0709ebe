"""A user's own table as a data set: molecules with labels from files.

Rows that cannot be used are left out and reported, never fatal unless asked. The table is read
once; graphs are made later, when the graph store is built.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from graphormer_sepnorm.chem.descriptors import descriptor_names
from graphormer_sepnorm.chem.features import OF_SMILES, get_featuriser
from graphormer_sepnorm.chem.molecules import RDKIT_VERSION, parse_molblock, parse_smiles
from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.lazy_graphs import LazyGraphs
from graphormer_sepnorm.datasets.splits import SPLITS, DatasetSplits
from graphormer_sepnorm.datasets.splitting import split_rows
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
    NOT_A_CLASS,
    TableContents,
    ValidRow,
    read_rows,
)
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.files import sha256_of
from graphormer_sepnorm.formatting import listed, shortened
from graphormer_sepnorm.graphs.extra_inputs import ExtraInputs
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.metrics import metrics_of
from graphormer_sepnorm.tables.columns import parse_class, readable

# Changes whenever the same file and options come to other molecules, labels or splits than before.
_VERSION = "table-2"
# Where the split does not need scaffolds they are computed for the report only, as long as that is
# a matter of a second or two.
_REPORTED_SCAFFOLDS = 10_000
_MOST_CLASSES = 100  # more different values are no classes, but numbers or names


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
    tables: dict[str, TableContents] = {}
    for name, path in config.files.items():
        if path.is_fifo():
            raise DataError(
                f"{path} is a pipe, and training reads a table more than once: save it as a file"
            )
        targets = tables["train"].columns.names if tables else config.target_columns or ()
        limit = None if config.resolved_split == "scaffold" else _REPORTED_SCAFFOLDS
        tables[name] = read_rows(path, config, name, targets, limit)
        _check_rows(config, path, tables[name])
    names, one_of = tables["train"].columns.names, ""
    if config.task == "multiclass":
        one_of, names = names[0], _by_classes(config, tables)
    if config.duplicates != "keep":
        for table in tables.values():
            _combine_duplicates(config, table)
    parts = split_rows(config, tables)
    if config.class_weight is not None:
        parts = _with_class_weights(parts)
    return _Loaded(config, tables, parts, names, one_of).splits()


class _Loaded:
    """The rows of a table in their splits, as arrays, and what their labels are.

    Attributes:
        labels: Of each split, float64 ``[n, targets]``; nan = missing.
        bounds: What missing labels are at least, then at most, ``[n, 2 targets]``, nan = unknown;
            ``[n, 0]`` if nothing is known of any.
        words: Of the targets whose labels are written in words, these words.
    """

    def __init__(
        self,
        config: DataConfig,
        tables: Mapping[str, TableContents],
        parts: Mapping[str, list[ValidRow]],
        names: tuple[str, ...],
        one_of: str,
    ) -> None:
        self.config, self.tables, self.parts = config, tables, parts
        self.name = config.files["train"].name.removesuffix(".gz")
        self.name = Path(self.name).stem or self.name
        self.labels = {
            name: np.array([row.labels for row in rows], np.float64).reshape(-1, len(names))
            for name, rows in parts.items()
        }
        width = 2 * len(names) * any(row.bounds for rows in parts.values() for row in rows)
        self.bounds = {
            name: np.array([row.bounds or (math.nan,) * width for row in rows]).reshape(-1, width)
            for name, rows in parts.items()
        }
        self.words: dict[str, set[str]] = defaultdict(set)
        for table in tables.values():
            for name, found in table.words.items():
                self.words[name] |= found
        everything = np.concatenate([*self.labels.values()])
        # Whether each target has no other labels than 0 and 1.
        self.classes = (np.isin(everything, (0, 1)) | np.isnan(everything)).all(axis=0)
        self.task = self._task(names, one_of)
        self.targets = tuple(
            TargetReport(
                name,
                unit,
                {one: summarise(of[:, at], self.task.kind) for one, of in self.labels.items()},
            )
            for at, (name, unit) in enumerate(zip(self.task.targets, self.task.units, strict=True))
        )
        self._check_targets()
        self.sha256 = tuple(map(sha256_of, config.files.values()))

    def _task(self, names: tuple[str, ...], one_of: str) -> Task:
        config, units = self.config, self.config.units
        if units and len(units) != len(names):
            raise ConfigError(
                f"--data.units has {len(units)} units for {len(names)} target columns "
                f"({', '.join(map(readable, names))}): give one for each, '' where there is none"
            )
        numbers = self.bounds["train"].size or not self.classes.all()
        regression = config.task == "regression" or (config.task == "auto" and numbers)
        kind = "regression" if regression else "binary"
        ones = (config.positive or "",) * len(names)
        if config.positive is None:
            words = (sorted(self.words.get(name, ())) for name in names)
            ones = tuple(" or ".join(filter(parse_class, of)) for of in words)
        return Task(
            kind,
            tuple(map(readable, names)),
            tuple(units or ("",) * len(names)),
            metrics_of(kind)[0].name,
            one_of,
            ones if kind == "binary" and any(ones) else (),
        )

    def _check_targets(self) -> None:
        """Refuse labels, and extra inputs, from which nothing can be learned."""
        config, task = self.config, self.task
        worded = self.classes.all() and all(map(self.words.get, task.targets))
        if config.task == "regression" and worded:
            raise ConfigError(
                f"{config.table}: {listed(task.targets)} {'is' if len(task.targets) == 1 else 'are'} "
                f"{' and '.join(sorted(set().union(*self.words.values()), reverse=True))}, which is "
                "a classification and no regression: give -c table_classification, or --data.task "
                "binary"
            )
        for at, target in enumerate(self.targets):
            summary, why = target.splits["train"], ""
            bounds = self.bounds["train"][:, at :: len(self.targets)]
            if task.one_of and not summary.positives:
                why = f"no training molecule is {task.classes[at]}, one of the classes of "
                why += task.one_of
            elif not summary.labels and not np.isnan(bounds).all():
                why = f"all training labels of {target.name} are bounds, and what is learned is "
                why += "scaled by the others"
            elif not summary.labels:
                why = f"{target.name} has no label in the training split"
            elif task.kind == "binary" and summary.positives in (0, summary.labels):
                why = f"all {summary.labels:,} training labels of {target.name} are "
                why += f"{min(summary.positives, 1)}: classification needs both classes"
            if why:
                raise DataError(
                    f"{config.table}: {why}: leave it out of --data.target_columns, give more "
                    "labels, or choose another split"
                )
        for at, name in enumerate(self.tables["train"].columns.extra_names):
            if all(math.isnan(row.extra[at]) for row in self.parts["train"]):
                raise DataError(
                    f"{config.table}: {name} has no value in the training split: leave it out of "
                    "--data.descriptor_columns, or choose another split"
                )

    def splits(self) -> DatasetSplits:
        """Return the data set; its graphs are made when they are asked for."""
        config, split = self.config, self.config.resolved_split
        descriptors = () if config.descriptors is None else descriptor_names()

        def group(row: ValidRow) -> str:
            return {"group": row.split, "scaffold": row.scaffold or ""}.get(split, "")

        return DatasetSplits(
            self.name,
            *(self._graphs(name, descriptors) for name in SPLITS),
            task=self.task,
            fingerprint=self._fingerprint(),
            feature_version=OF_SMILES,
            featuriser=OF_SMILES,
            smiles={name: [row.smiles for row in rows] for name, rows in self.parts.items()},
            groups={
                name: [(group(row), row.canonical) for row in rows]
                for name, rows in self.parts.items()
            },
            extra_inputs=ExtraInputs(descriptors, self.tables["train"].columns.extra_names),
            standardise=tuple(config.standardise or ()),
            report=self._report(),
        )

    def _graphs(self, name: str, descriptors: tuple[str, ...]) -> LazyGraphs:
        config, rows = self.config, self.parts[name]
        in_records = self.tables.get(name, self.tables["train"]).columns.smiles is None
        weighted = config.weight_column is not None or config.class_weight is not None
        return LazyGraphs(
            [row.text for row in rows],
            self.labels[name],
            get_featuriser(OF_SMILES),
            np.array([row.weight for row in rows]) if weighted else None,
            parse_molblock if in_records and not config.standardise else parse_smiles,
            descriptors,
            np.array([row.extra for row in rows], np.float32) if rows else None,
            self.bounds[name],
        )

    def _fingerprint(self) -> str:
        """Hash the files' contents and what decides about graphs, labels and splits.

        Neither where a file lies nor whether a column was named or found makes a difference.
        """
        config, tables, split = self.config, self.tables, self.config.resolved_split
        decisive = {
            "version": _VERSION,
            "rdkit": RDKIT_VERSION,
            "featuriser": OF_SMILES,
            "kind": self.task.kind,
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
        for one in self.sha256:
            digest.update(bytes.fromhex(one))
        return digest.hexdigest()

    def _warnings(self) -> Iterator[str]:
        """Say what in the tables should perhaps be treated in another way."""
        tables = self.tables.values()
        salts = sum("." in row.canonical for table in tables for row in table.valid)
        if salts and "fragment" not in (self.config.standardise or ()):
            yield (
                f"{salts:,} of the molecules are of several pieces, as salts are: to a duplicate "
                "and to a split each salt is a molecule of its own; --data.standardise "
                "'[fragment]' takes the largest piece"
            )
        if unsettled := sum(table.unsettled for table in tables):
            yield (
                f"{unsettled:,} of the molecules have more tautomers than RDKit goes through: each "
                "stays in the one that is written, and another one of it counts as another molecule"
            )
        left_out, used = (
            sum(len(getattr(of, one)) for of in tables) for one in ("invalid", "valid")
        )
        if left_out > used:
            rows = f"{left_out:,} of {left_out + used:,} rows"
            yield f"{rows} are left out: are the rest a fair sample?"

    def _report(self) -> DataReport:
        config, task, targets, kind = (
            self.config,
            self.task,
            self.targets,
            self.config.resolved_split,
        )
        tables = self.tables.values()
        sides = np.concatenate(list(self.bounds.values()))
        low_high = np.count_nonzero(~np.isnan(sides), axis=0).reshape(2, -1).T.tolist()
        split = {
            "random": f"random, seed {config.split_seed}",
            "scaffold": "by scaffold",
            "files": "separate files",
        }.get(kind, f"by column {config.column_of_split!r}")
        if config.fold is not None:
            split = f"fold {config.fold} of {config.folds} ({kind}, seed {config.split_seed})"
        own_files = len(tables) > 1
        places = [
            (f"row {row.number}" + f" of the {name} file" * own_files, row.atoms)
            for name, rows in self.parts.items()
            for row in rows
        ]
        atoms = [size for _, size in places]
        return DataReport(
            name=self.name,
            files=tuple(map(str, config.files.values())),
            sha256=self.sha256,
            kind=task.kind,
            split=split,
            splits={
                name: SplitRows(
                    [row.number for row in rows],
                    [row.smiles for row in rows],
                    [row.id for row in rows],
                )
                for name, rows in self.parts.items()
            },
            invalid=tuple(row for table in tables for row in table.invalid),
            targets=targets,
            duplicates=find_duplicates(self.parts, task.kind),
            leakage=find_leakage(self.parts),
            atoms=(min(atoms), sum(atoms) / len(atoms), max(atoms)),
            warnings=(
                *self._warnings(),
                *find_warnings(targets, self.labels, self.bounds, task.kind, places),
            ),
            words={name: tuple(sorted(found)) for name, found in self.words.items()},
            bounds={
                target.name: (low, high)
                for target, (low, high) in zip(targets, low_high, strict=False)
                if low or high
            },
            one_of=task.one_of,
            cells=tuple(cell for table in tables for cell in table.cells),
            id_name=self.tables["train"].id_name,
            unread=self.tables["train"].unread,
            notes=tuple(dict.fromkeys(note for table in tables for note in table.notes)),
        )


def _check_rows(config: DataConfig, path: Path, table: TableContents) -> None:
    """Refuse a file without usable rows or labels, and unusable ones that are to be an error.

    Raises:
        DataError: There are such; it says why the first of them cannot be used.
    """
    unusable = sorted([*table.invalid, *table.cells], key=lambda one: one.row)
    if not unusable and not table.valid:
        raise DataError(f"{path} has no rows: nothing can be learned from it")
    if unusable and config.on_invalid == "error":
        more = f"; {len(unusable) - 1:,} more cannot be used either" if len(unusable) > 1 else ""
        raise DataError(
            f"{path}, {unusable[0].place}: {unusable[0].reason}{more}: mend them, or leave them "
            "out with --data.on_invalid skip"
        )
    count = len(table.columns.names)
    for at, name in enumerate(table.columns.names):
        own = [one for one in unusable if one.column == name]
        known = sum(
            not all(map(math.isnan, (*row.labels[at : at + 1], *row.bounds[at::count])))
            for row in table.valid
        )
        if sum(one.kind == NOT_A_CLASS for one in own) > known:
            raise DataError(
                f"{path}: {len(own):,} labels of {name} are not 0 or 1, the first in "
                f"{own[0].place}: {own[0].reason}; these are for a regression: -c "
                "table_regression, or --data.task regression"
            )
        if own and table.valid and not known:
            raise DataError(
                f"{path}: none of the {len(own):,} labels of {name} can be used; {own[0].place}: "
                f"{own[0].reason}"
            )
    if not table.valid:
        raise DataError(
            f"{path}: none of its {len(unusable):,} rows can be used; {unusable[0].place}: "
            f"{unusable[0].reason}"
        )


def _by_classes(config: DataConfig, tables: Mapping[str, TableContents]) -> tuple[str, ...]:
    """Give the rows a label of 0 or 1 for each class, and return the names of these targets.

    Classes are ordered as numbers where they are numbers, else as text.

    Raises:
        DataError: There are fewer than two, or too many for classes, or some that differ in
            capitals only.
    """
    column = tables["train"].columns.names[0]
    found = dict.fromkeys(row.class_name for table in tables.values() for row in table.valid)
    alike: dict[str, list[str]] = defaultdict(list)
    for name in found:
        alike[name.casefold()].append(repr(shortened(readable(name), 20)))
    for names in alike.values():
        if len(names) > 1:
            raise DataError(
                f"{config.table}: classes {', '.join(names)} of column {column!r} differ in "
                "capitals only: write them alike"
            )

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


def _combine_duplicates(config: DataConfig, table: TableContents) -> None:
    """Bring rows of one molecule to the first of them, with the mean or median of their labels.

    They agree in the extra inputs, and in the column of the split.

    Raises:
        ConfigError: The labels are classes.
    """
    everything = [row.labels for row in table.valid]
    if config.task != "regression" and np.isin(everything, (0, 1, math.nan)).all():
        raise ConfigError(
            f"--data.duplicates {config.duplicates} is for numbers, and the labels are classes: "
            "leave it out"
        )
    combine = np.nanmean if config.duplicates == "mean" else np.nanmedian
    same: dict[tuple[str, ...], list[ValidRow]] = defaultdict(list)
    for row in table.valid:
        same[row.canonical, row.split, repr(row.extra)].append(row)
    before, table.valid = len(table.valid), []
    for rows in same.values():
        labels = np.array([row.labels for row in rows])
        known = ~np.isnan(labels).all(axis=0)
        combined = np.full(labels.shape[1], np.nan)
        combined[known] = combine(labels[:, known], axis=0)
        bounds = np.array(rows[0].bounds)
        bounds[np.resize(known, len(bounds))] = np.nan  # there is a label now
        own = {"labels": tuple(combined.tolist()), "bounds": tuple(bounds.tolist())}
        weight = float(np.mean([row.weight for row in rows]))
        table.valid.append(replace(rows[0], weight=weight, **own) if len(rows) > 1 else rows[0])
    note = f"{before:,} rows, by the {config.duplicates} of molecules {len(table.valid):,}"
    table.notes += (note,)


def _with_class_weights(parts: Mapping[str, list[ValidRow]]) -> dict[str, list[ValidRow]]:
    """Give all classes the same weight in the loss.

    Raises:
        ConfigError: There are none, or several targets.
    """
    everything = [row for name in SPLITS for row in parts[name]]
    classes = Counter(row.labels for name in SPLITS[:2] for row in parts[name])
    several = len(everything[0].labels) > 1 and not everything[0].class_name
    if several or not np.isin([row.labels for row in everything], (0, 1)).all():
        raise ConfigError(
            "--data.class_weight balanced is for the classes of one target: leave it out"
        )
    share = sum(classes.values()) / len(classes)
    return {
        name: [
            replace(row, weight=row.weight * share / classes.get(row.labels, share)) for row in rows
        ]
        for name, rows in parts.items()
    }
