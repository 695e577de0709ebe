"""A data set, its graph store and what is known of its training split."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.catalog import PRETRAINING, TABLE, dataset_of, load_dataset
from graphormer_sepnorm.datasets.logarithms import AUTO, with_logarithms
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.datasets.training_graphs import (
    GraphIndices,
    MemberFolds,
    check_labels,
    digest_of,
    scaling,
)
from graphormer_sepnorm.errors import ConfigError, DataError
from graphormer_sepnorm.files import plain
from graphormer_sepnorm.graphs.extra_inputs import standardization
from graphormer_sepnorm.graphs.store import STRUCTURE_VERSION, GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.tables.reader import Layout

_SPREAD = {"mean": np.mean, "std": np.std, "min": np.min, "max": np.max}


class MoleculeData:
    """Molecules in three splits: their graphs, labels and vocabulary; Lightning is not needed.

    Args:
        config: What they are and how they are batched; None: the defaults.
        max_path_length: Hops of a shortest path that enter the edge encoding.
        seed: Decides the order of training.
        splits: See `from_splits`.
        **options: Options of `DataConfig` by name, in place of those of `config`.
    """

    def __init__(
        self,
        config: DataConfig | None = None,
        *,
        max_path_length: int = 20,
        seed: int = 0,
        splits: DatasetSplits | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.config = config = replace(config or DataConfig(), **options)
        self.dataset = dataset_of(config)
        self.table_options = config.of_table() if self.dataset == TABLE else None
        self.root = Path(config.root).expanduser().resolve()
        self.batch_size = config.batch_size
        self.eval_batch_size = config.eval_batch_size or config.batch_size
        self.max_path_length = plain(max_path_length)
        self.seed = plain(seed)
        self.member_folds: MemberFolds | None = None
        self._splits, self._given = splits, splits is not None
        if splits is not None:
            self.dataset = splits.name
        if config.member_folds is not None:
            self.assign_members(MemberFolds(config.member_folds, config.member_fold))

    @classmethod
    def from_splits(
        cls, splits: DatasetSplits, config: DataConfig | None = None, **options: Any
    ) -> Self:
        """Make it of your own PyG data sets.

        Their graph store is found again by the graphs, all of which are read at each start; where
        all splits have `packed`, as those of `load_dataset`, by their fingerprint alone.

        Args:
            splits: The graphs of the three splits and what their labels mean.
            config: How they are batched, with dataset sample; None: see `options`.
            options: Arguments of the class except `dataset`.
        """
        if config is None:
            options = {"dataset": "sample", **options}
        return cls(config, splits=splits, **options)

    def assign_members(self, folds: MemberFolds) -> None:
        """Have an ensemble's members, or this one of them, train and validate on folds.

        Raises:
            ConfigError: The data set is no table.
        """
        if self.table_options is None and not (self._given and self.splits.groups):
            raise ConfigError(
                f"folds of an ensemble are for a table of your own, and {self.dataset} has its own "
                "validation split: give --ensemble_by seeds"
            )
        self.member_folds = folds
        vars(self).pop("numbers", None)

    def _load(self) -> DatasetSplits:
        if self.dataset == PRETRAINING:
            from graphormer_sepnorm.datasets.pretraining import load_pretraining

            config = self.config
            layout = Layout(config.sheet, config.header_row, config.smiles_column, "--data.")
            return load_pretraining(Path(str(config.molecules)).expanduser(), self.root, layout)
        if self.table_options is None:
            return load_dataset(self.dataset, self.root)
        from graphormer_sepnorm.datasets.user_table.load import load_table

        return load_table(self.config)

    @property
    def splits(self) -> DatasetSplits:
        """The data set; loaded when it is first asked for."""
        if self._splits is None:
            self._splits = self._load()
            if not len(self._splits.train):
                raise DataError(f"{self.dataset}: the train split holds no molecules")
        names = self.config.label_transform
        if names not in (None, AUTO) and not self._splits.task.shifts:
            self._splits = with_logarithms(self._splits, names)
        return self._splits

    def learn_logarithms(self, names: Sequence[str]) -> None:
        """Let ``label_transform`` auto stand for some targets; what was made of labels goes."""
        for made in ("store", "numbers"):
            vars(self).pop(made, None)
        self.config = replace(self.config, label_transform=list(names))
        if self.table_options is not None:
            self.table_options = self.config.of_table()

    @cached_property
    def store(self) -> GraphStore:
        """The structure of all graphs: training, validation, test, one after the other."""
        splits = self.splits
        parts = splits.parts.values()
        key: dict[str, str | int] = {
            "dataset": splits.name,
            "fingerprint": splits.fingerprint,
            "feature_version": splits.feature_version,
            "graphs": sum(map(len, parts)),
        }
        # Somebody else may not have thought of all that graphs and labels depend on.
        own = all(hasattr(part, "packed") for part in parts)
        if not own:
            key["labels"] = digest_of(parts)
        # Releases that store the structure in other ways can use the same root.
        text = json.dumps([key, self.max_path_length, STRUCTURE_VERSION], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        store = GraphStore.open_or_build(
            self.root / "store" / f"{splits.name}-{digest}",
            key,
            # Many graphs at once where a split knows how to.
            lambda: itertools.chain(*(getattr(one, "packed", one.__iter__)() for one in parts)),
            self.max_path_length,
        )
        if self._given or not own:
            check_labels(store.targets, splits)
        return store.learned(splits.task) if splits.task.shifts else store

    @cached_property
    def numbers(self) -> GraphIndices:
        """Which graphs of the store belong to what."""
        return GraphIndices(self.splits, lambda: self.store.weights, self.member_folds)

    def indices(self, split: str) -> np.ndarray:
        """Numbers of the graphs of a split in the store; a member's, where it has its own."""
        return self.numbers.of(split)

    def fit_vocabulary(self) -> GraphVocabulary:
        """Collect the codes that occur in what is trained on."""
        self._require("train", self.numbers.described)
        return GraphVocabulary.fit(self.store, self.numbers.described)

    def target_scaling(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of the training labels, per target, see `scaling`."""
        train = self.numbers.described
        labels, weights = self.labels(train), self.row_weights(train)
        return scaling(labels, weights, self.splits.task, self.splits.name)

    def row_weights(self, indices: np.ndarray) -> np.ndarray | None:
        """Return the weights of graphs, float64 ``[n]``; None if all weigh the same."""
        weights = np.asarray(self.store.weights[indices], np.float64)
        return None if (weights == weights[:1]).all() else weights

    def extra_scaling(self) -> tuple[np.ndarray, np.ndarray]:
        """By what the extra inputs are standardized, see `standardization`."""
        return standardization(self.store.extra[self.numbers.weighed(self.numbers.described)])

    def own_columns(self, split: str) -> np.ndarray:
        """Return `descriptor_columns` of a split, float32 ``[n, C]``; nan = missing."""
        return np.asarray(self.store.extra[self.indices(split)])

    def weight_scale(self) -> float:
        """The factor that brings the weights of the training graphs to a mean of 1.

        Raises:
            DataError: All weights are 0.
        """
        mean = float(np.asarray(self.store.weights[self.numbers.described], np.float64).mean())
        if mean == 0:
            raise DataError(f"{self.splits.name}: the weights of all training graphs are 0")
        return 1 / mean

    def training_summary(self) -> dict[str, Any]:
        """What the training split covers: atoms, elements, labels, whether all are connected.

        Elements are codes of the features' first column.
        """
        train = self.numbers.described
        atoms = self.store.num_atoms(train)
        low, mean, high = int(atoms.min()), float(atoms.mean()), int(atoms.max())
        in_units = self.splits.task.in_units(self.labels(train))
        return {
            "atoms": {"min": low, "mean": mean, "max": high},
            "elements": np.unique(self.store.atom_codes_of(train)[:, 0]).tolist(),
            "connected": self.store.are_connected(train),
            "targets": [
                {"labels": len(known)} | {name: float(of(known)) for name, of in _SPREAD.items()}
                for known in (column[~np.isnan(column)] for column in in_units.T)
            ],
        }

    def labels(self, indices: np.ndarray) -> np.ndarray:
        """Return the labels of graphs of the store, float64 ``[n, T]``; nan: missing."""
        return np.asarray(self.store.targets[indices], np.float64)

    def sides(self, indices: np.ndarray) -> np.ndarray:
        """Return what missing labels of graphs of the store are at least, and at most.

        float64 ``[n, T, 2]``; nan where there is a label, or nothing is known.
        """
        known = np.asarray(self.store.bounds[indices], np.float64)
        if not known.shape[1]:
            return np.full((*self.store.targets[indices].shape, 2), np.nan)
        return np.stack(np.split(known, 2, axis=1), axis=2)

    @cached_property
    def labels_per_graph(self) -> np.ndarray:
        """How many labels each graph of the store has, bounds too, int64 ``[G]``."""
        known = np.hstack([self.store.targets, self.store.bounds])
        return np.asarray((~np.isnan(known)).sum(axis=1))

    def _require(self, split: str, indices: np.ndarray) -> np.ndarray:
        if not len(indices):
            raise DataError(f"{self.splits.name}: the {split} split holds no graphs: give it some")
        return indices
