"""The Lightning data module: a data set, its graph store, its vocabulary and its loaders."""

from __future__ import annotations

import hashlib
import itertools
import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from graphormer_sepnorm.datasets.catalogue import PRETRAINING, canonical_name, load_dataset
from graphormer_sepnorm.datasets.data_options import (
    check_files,
    check_numbers,
    names_of,
    table_options,
)
from graphormer_sepnorm.datasets.graph_numbers import GraphNumbers, MemberFolds
from graphormer_sepnorm.datasets.splits import DatasetSplits, Graphs
from graphormer_sepnorm.datasets.training_labels import (
    check_labels,
    labels_digest,
    scaling,
    summaries,
)
from graphormer_sepnorm.errors import CheckpointError, ConfigError, DataError
from graphormer_sepnorm.files import plain
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.extra_inputs import standardisation
from graphormer_sepnorm.graphs.loading import (
    EpochBatches,
    TrainingOrder,
    in_order,
    make_loader,
    make_number_loader,
)
from graphormer_sepnorm.graphs.store import STRUCTURE_VERSION, GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.tables.reader import Layout


class MoleculeDataModule(LightningDataModule):
    """Molecules in three splits, as batches for Graphormer.

    Args:
        dataset: zinc-subset, zinc, ogbg-molhiv, sample (bundled, nothing is downloaded) or table
            (a file of your own). null takes table if one is given, else zinc-subset.
        root: The data root: raw files are looked for and downloads and the graph store are kept
            here. A relative path is relative to where the command was started.
        batch_size: Graphs in a training batch, at least 2; several processes share them. Batches
            are random and nearly equal in size. Memory and time of a step grow linearly with it.
            With accumulated gradients this is the micro-batch, and BatchNorm in the model sees
            the micro-batch.
        eval_batch_size: Graphs in a batch of validation and test; null takes batch_size. The
            results do not depend on it.
        max_path_length: Hops of a shortest path that enter the edge encoding. Set by
            model.max_path_length.
        seed: Decides the order of training. Set by seed_everything.
        num_workers: Processes that prepare batches. 0 prepares them in the training process, which
            is best on a few CPU cores; 2 to 4 hide the work behind a GPU.
        attention_blocks: Groups of similar size that a batch is split into for attention. More
            groups mean less padding but more, smaller operations; results are the same.
        table: Your own molecules with labels: CSV, TSV or SDF (gzipped too), Parquet or
            Excel.
        validation_table: A file of its own for the validation split (then test_table too).
        test_table: A file of its own for the test split (then validation_table too).
        smiles_column: Column of the SMILES of a table, or of molecules for pretraining; null finds
            it by its name.
        sheet: Of Excel files, the sheet's name or its number from 1; null takes the only one with a
            column of SMILES.
        header_row: The row (line) of Excel, CSV and TSV files that names the columns, from 1; null
            finds it.
        target_columns: Columns of the labels; null takes the only column with numbers, all every
            one. Missing labels are left out of the loss and the metrics.
        weight_column: Column of weights in the training loss, 0 or more; null weighs all rows the
            same. Metrics are not weighted; but by folds of an ensemble rows of 0 are not
            validated on.
        task: regression, binary (labels 0 and 1), multiclass (each different value of the only
            target column is a class), or auto: binary if there are no other labels than 0 and 1.
        units: Unit of each target, for messages.
        split: random, scaffold (molecules with the same ring systems stay together), column or
            files; auto takes files or a column if they are given, else scaffold.
        split_column: Column that says train, validation or test.
        split_fractions: Shares of training, validation and test split.
        split_seed: Decides the random split, and the folds; not tied to seed_everything, so that
            runs with different seeds share their split.
        folds: Number of folds of a cross-validation, dealt out by chance or by scaffold as split
            says; train.py crossvalidate trains on all of them.
        fold: The fold that is the test split, from 0; a tenth of the others is the validation
            split.
        member_folds: For the members of an ensemble (--ensemble_by folds): training and validation
            split together are dealt into so many folds, by scaffold where the split is.
        member_fold: The fold that this member validates on, from 0; it trains on the others.
        on_invalid: What to do with rows that cannot be used: skip lists them and goes on, error
            stops at the first.
        standardise: What is done to each molecule of a table first, and again at prediction: some
            of fragment (the largest one, without salts and solvents), neutralise (charges that
            protons can remove), tautomer (RDKit's canonical one).
        descriptors: rdkit lets predictions be read from RDKit's descriptors too, beside what the
            network makes of the graph; for a table. Costs 4 to 10 ms a molecule, once.
        descriptor_columns: Columns of numbers that predictions are read from too, such as a
            temperature or a pH. A missing value stands for the mean; predict.py needs them too.
        molecules: Molecules without labels for dataset pretraining: SMILES, one on each line, or a
            table with a column of them. Their descriptors are what is learned.
    """

    def __init__(
        self,
        dataset: str | None = None,
        root: str = "data",
        batch_size: int = 256,
        eval_batch_size: int | None = None,
        max_path_length: int = 20,
        seed: int = 0,
        num_workers: int = 0,
        attention_blocks: int = 1,
        table: str | None = None,
        validation_table: str | None = None,
        test_table: str | None = None,
        smiles_column: str | None = None,
        sheet: str | None = None,
        header_row: int | None = None,
        target_columns: list[str] | str | None = None,
        weight_column: str | None = None,
        task: Literal["auto", "regression", "binary", "multiclass"] = "auto",
        units: list[str] | str | None = None,
        split: Literal["auto", "random", "scaffold", "column", "files"] = "auto",
        split_column: str | None = None,
        split_fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
        split_seed: int = 0,
        folds: int | None = None,
        fold: int | None = None,
        member_folds: int | None = None,
        member_fold: int | None = None,
        on_invalid: Literal["skip", "error"] = "skip",
        standardise: list[str] | None = None,
        descriptors: str | None = None,
        descriptor_columns: list[str] | str | None = None,
        molecules: str | None = None,
    ) -> None:
        super().__init__()
        batch_size, eval_batch_size, max_path_length, seed, num_workers, attention_blocks = plain(
            (batch_size, eval_batch_size, max_path_length, seed, num_workers, attention_blocks)
        )
        check_numbers(
            batch_size=(batch_size, 2),
            eval_batch_size=(batch_size if eval_batch_size is None else eval_batch_size, 1),
            max_path_length=(max_path_length, 1),
            attention_blocks=(attention_blocks, 1),
            num_workers=(num_workers, 0),
            seed=(seed, 0),
        )
        check_files(
            table=table,
            validation_table=validation_table,
            test_table=test_table,
            molecules=molecules,
        )
        self.dataset = canonical_name(dataset or ("table" if table else "zinc-subset"))
        options = plain(
            {
                "table": table,
                "validation_table": validation_table,
                "test_table": test_table,
                "smiles_column": smiles_column,
                "sheet": sheet,
                "header_row": header_row,
                "target_columns": names_of("target_columns", target_columns),
                "weight_column": weight_column,
                "task": task,
                "units": units,
                "split": split,
                "split_column": split_column,
                "split_fractions": split_fractions,
                "split_seed": split_seed,
                "folds": folds,
                "fold": fold,
                "on_invalid": on_invalid,
                "standardise": standardise,
                "descriptors": descriptors,
                "descriptor_columns": names_of("descriptor_columns", descriptor_columns),
            }
        )
        self.table_options = table_options(self.dataset, options)
        if self.dataset == PRETRAINING and molecules is None:
            raise ConfigError("which molecules? Give a file of SMILES: --data.molecules FILE")
        if self.dataset != PRETRAINING and molecules is not None:
            raise ConfigError(
                f"--data.molecules {molecules} is for train.py pretrain, and this is "
                f"{self.dataset}: pre-train on them first, then --model.from_pretrained"
            )
        self.molecules = molecules
        self._layout = Layout(sheet, header_row, smiles_column, "--data.")
        self.root = Path(root).expanduser().resolve()
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.max_path_length = max_path_length
        self.seed = seed
        self.num_workers = num_workers
        self.attention_blocks = attention_blocks
        self.member_folds: MemberFolds | None = None
        self._splits: DatasetSplits | None = None
        self._given = False
        self._store: GraphStore | None = None
        self._numbers: GraphNumbers | None = None
        self._labels: np.ndarray | None = None
        self._position = (0, 0)
        # Training batches are numbers of graphs, where the graphs themselves are on the device.
        self.numbers_only = False
        if (own := MemberFolds.of_options(member_folds, member_fold)) is not None:
            self.deal_members(own)

    @classmethod
    def from_splits(cls, splits: DatasetSplits, **options: Any) -> MoleculeDataModule:
        """Make a data module of your own PyG data sets.

        Their graph store is found again by what `splits` say of the graphs (`fingerprint`,
        `feature_version`) and by the labels, which are read from all graphs at each start.

        Args:
            splits: The graphs of the three splits and what their labels mean.
            options: Arguments of the class except `dataset`.
        """
        module = cls(dataset="sample", **options)
        module.dataset = splits.name
        module._splits, module._given = splits, True
        return module

    def deal_members(self, folds: MemberFolds) -> None:
        """Have an ensemble's members, or this one of them, train and validate on folds.

        Raises:
            ConfigError: The data set is no table.
        """
        if self.table_options is None:
            raise ConfigError(
                f"folds of an ensemble are for a table of your own, and {self.dataset} has its own "
                "validation split: give --ensemble_by seeds"
            )
        self.member_folds, self._numbers = folds, None

    def _load(self) -> DatasetSplits:
        if self.dataset == PRETRAINING:
            from graphormer_sepnorm.datasets.pretraining import load_pretraining

            path = Path(str(self.molecules)).expanduser()
            return load_pretraining(path, self.root, self._layout)
        if self.table_options is None:
            return load_dataset(self.dataset, self.root)
        from graphormer_sepnorm.datasets.user_table.load import load_table

        return load_table(self.table_options)

    @property
    def splits(self) -> DatasetSplits:
        """The data set; loaded when it is first asked for."""
        if self._splits is None:
            self._splits = self._load()
            for name, part in self._splits.parts.items():
                if len(part) == 0:
                    raise DataError(f"{self.dataset}: the {name} split holds no molecules")
        return self._splits

    @property
    def store(self) -> GraphStore:
        """The structure of all graphs: training, validation, test, one after the other."""
        if self._store is None:
            splits = self.splits
            key: dict[str, str | int] = {
                "dataset": splits.name,
                "fingerprint": splits.fingerprint,
                "feature_version": splits.feature_version,
                "graphs": sum(len(part) for part in splits.parts.values()),
            }
            if not self._vouched_for:
                key["labels"] = labels_digest(splits)
            # Releases that store the structure in other ways can use the same root.
            text = json.dumps([key, self.max_path_length, STRUCTURE_VERSION], sort_keys=True)
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            store = GraphStore.open_or_build(
                self.root / "store" / f"{splits.name}-{digest}",
                key,
                lambda: itertools.chain(*map(_packed_or_single, splits.parts.values())),
                self.max_path_length,
            )
            if not self._vouched_for:
                check_labels(store.targets, splits)
            self._store = store
        return self._store

    @property
    def _vouched_for(self) -> bool:
        """Whether the data were loaded by this package, whose fingerprints follow the labels."""
        own = all(hasattr(part, "packed") for part in self.splits.parts.values())
        return own and not self._given

    @property
    def numbers(self) -> GraphNumbers:
        """Which graphs of the store belong to what."""
        if self._numbers is None:
            self._numbers = GraphNumbers(self.splits, lambda: self.store.weights, self.member_folds)
        return self._numbers

    def indices(self, split: str) -> np.ndarray:
        """Numbers of the graphs of a split in the store; a member's, where it has its own."""
        return self.numbers.of(split)

    def prepare_data(self) -> None:
        """Download and preprocess, in one process only."""
        _ = self.store

    def setup(self, stage: str) -> None:
        """Open the store, in every process."""
        _ = self.store

    def fit_vocabulary(self) -> GraphVocabulary:
        """Collect the codes that occur in what is trained on."""
        self._require("train", self.numbers.described)
        return GraphVocabulary.fit(self.store, self.numbers.described)

    def target_scaling(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of the training labels, per target, see `scaling`."""
        numbers = self.numbers.described
        labels, weights = self.labels(numbers), self.row_weights(numbers)
        return scaling(labels, weights, self.splits.task, self.splits.name)

    def row_weights(self, numbers: np.ndarray) -> np.ndarray | None:
        """Return the weights of graphs, float64 ``[n]``; None if all weigh the same."""
        weights = np.asarray(self.store.weights[numbers], np.float64)
        return None if (weights == weights[:1]).all() else weights

    def extra_scaling(self) -> tuple[np.ndarray, np.ndarray]:
        """By what the numbers beside the graphs are standardised, see `standardisation`."""
        return standardisation(self.store.extra[self.numbers.weighed(self.numbers.described)])

    def own_columns(self, split: str) -> np.ndarray:
        """Return `descriptor_columns` of a split, float32 ``[n, C]``; nan = missing."""
        first = len(self.splits.extra_inputs.descriptors)
        return np.asarray(self.store.extra[self.indices(split)][:, first:])

    def missing_inputs(self) -> list[str]:
        """Say which numbers beside the graphs are missing, and which say nothing."""
        inputs = self.splits.extra_inputs
        _, factors = self.extra_scaling()
        return inputs.in_report(np.asarray(self.store.extra), factors)

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
        return {
            "atoms": {
                "min": int(atoms.min()),
                "mean": float(atoms.mean()),
                "max": int(atoms.max()),
            },
            "elements": np.unique(self.store.atom_codes_of(train)[:, 0]).tolist(),
            "connected": self.store.are_connected(train),
            "targets": summaries(self.labels(train)),
        }

    def train_dataloader(self) -> DataLoader:
        """Training batches, in an order that depends on (seed, epoch) only.

        Of the epoch in which a resumed run stopped, the batches that are left.
        """
        batches = EpochBatches(self.indices("train"), self.batch_size, self.seed)
        order = TrainingOrder(batches, self._position, *self._processes())
        return make_number_loader(self.store, order) if self.numbers_only else self._loader(order)

    def _processes(self) -> tuple[int, int]:
        """Number of this process, and how many there are."""
        trainer = self.trainer
        return (trainer.global_rank, trainer.world_size) if trainer else (0, 1)

    def labels(self, numbers: np.ndarray) -> np.ndarray:
        """Return the labels of graphs of the store, float64 ``[n, T]``; nan: missing."""
        return np.asarray(self.store.targets[numbers], np.float64)

    def bounds(self, split: str) -> np.ndarray:
        """Return of missing labels of a split the values that they lie beyond, ``[n, T]``.

        nan where there is a label, or nothing is known.
        """
        return np.fmax(*np.moveaxis(self.sides(self.indices(split)), 2, 0))

    def sides(self, numbers: np.ndarray) -> np.ndarray:
        """Return what missing labels of graphs of the store are at least, and at most.

        float64 ``[n, T, 2]``; nan where there is a label, or nothing is known.
        """
        known = np.asarray(self.store.bounds[numbers], np.float64)
        if not known.shape[1]:
            return np.full((*self.store.targets[numbers].shape, 2), np.nan)
        return np.stack(np.split(known, 2, axis=1), axis=2)

    def labels_per_graph(self) -> np.ndarray:
        """How many labels each graph of the store has, bounds too, int64 ``[G]``."""
        if self._labels is None:
            known = np.hstack([self.store.targets, self.store.bounds])
            self._labels = np.asarray((~np.isnan(known)).sum(axis=1))
        return self._labels

    def statistics_batches(self, graphs: int) -> Iterable[GraphBatch]:
        """Give random training graphs on which BatchNorm's statistics can be measured.

        The same ones each time; several processes share each batch.

        Args:
            graphs: How many; all training graphs if there are fewer.
        """
        train = self.indices("train")
        chosen = np.random.default_rng([self.seed, len(train)]).permutation(train)[:graphs]
        batches = EpochBatches(chosen, min(self.batch_size, len(chosen)), self.seed)
        order = TrainingOrder(batches, (0, 0), *self._processes())
        return make_loader(
            self.store, self._vocabulary(), order, attention_blocks=self.attention_blocks
        )

    def state_dict(self) -> dict[str, int]:
        """Where training stands, for a checkpoint: epoch, next batch in it, and their size."""
        if self.trainer is None or self.trainer.state.fn != "fit":
            return {}
        loop = self.trainer.fit_loop
        epochs: Any = loop.epoch_progress.current
        batch: int = loop.epoch_loop.batch_progress.current.processed  # type: ignore[attr-defined]
        if batch and batch >= loop.max_batches:
            # The epoch is over, though Lightning may count it as processed a moment later; the
            # next one may be counted as ready already.
            return {"epoch": epochs.started, "batch": 0, **self._step()}
        return {"epoch": epochs.processed, "batch": batch, **self._step()}

    def _step(self) -> dict[str, int]:
        """What a step is, without which a place in the epoch says nothing."""
        accumulated = self.trainer.accumulate_grad_batches if self.trainer is not None else 1
        return {"batch_size": self.batch_size, "accumulate_grad_batches": int(accumulated)}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue where a checkpoint was written."""
        self._position = (state_dict.get("epoch", 0), state_dict.get("batch", 0))

    def val_dataloader(self) -> DataLoader:
        """Validation graphs, each once."""
        return self._loader(self._evaluation_batches("validation"))

    def test_dataloader(self) -> DataLoader:
        """Test graphs, each once."""
        return self._loader(self._evaluation_batches("test"))

    def predict_dataloader(self) -> DataLoader:
        """The test graphs, for ``trainer.predict(model, data)``; their labels are not used.

        Raises:
            ConfigError: There are several processes, of which each would return some of them.
        """
        if self._processes()[1] > 1:
            raise ConfigError("each of several processes would predict a part: use one device")
        # That they may leave some out: they are listed, each once.
        warnings.filterwarnings("ignore", ".*custom batch sampler `GivenBatches` for prediction")
        return self.test_dataloader()

    def _evaluation_batches(self, split: str) -> list[list[int]]:
        numbers = self._require(split, self.indices(split))
        return in_order(self.store, numbers, self.eval_batch_size, *self._processes())

    def _require(self, split: str, numbers: np.ndarray) -> np.ndarray:
        if not len(numbers):
            raise DataError(f"{self.splits.name}: the {split} split holds no graphs: give it some")
        return numbers

    def transfer_batch_to_device(
        self, batch: GraphBatch, device: torch.device, dataloader_idx: int
    ) -> GraphBatch:
        """Move a batch; pinned batches are copied while the device works."""
        return batch.to(device, non_blocking=True)

    def _loader(self, batches: TrainingOrder | list[list[int]]) -> DataLoader:
        on_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        return make_loader(
            self.store,
            self._vocabulary(),
            batches,
            num_workers=self.num_workers,
            pin_memory=on_gpu,
            attention_blocks=self.attention_blocks,
        )

    def _vocabulary(self) -> GraphVocabulary:
        """The vocabulary of the model that the batches are for, a checkpoint's when it has one."""
        facts = getattr(getattr(self.trainer, "lightning_module", None), "facts", None)
        if not facts:
            return self.fit_vocabulary()
        if facts["feature_version"] != self.splits.feature_version:
            raise CheckpointError(
                f"the checkpoint was trained on features '{facts['feature_version']}', "
                f"{self.splits.name} has '{self.splits.feature_version}': choose a data set with "
                "the same features"
            )
        return GraphVocabulary.from_plain(facts["vocabulary"])


def _packed_or_single(graphs: Graphs) -> Iterable[Any]:
    """Give the graphs of a split, many at once if it knows how to."""
    packed = getattr(graphs, "packed", None)
    return packed() if packed else graphs
