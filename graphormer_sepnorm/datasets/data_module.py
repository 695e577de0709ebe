"""The Lightning data module: a data set, its graph store, its vocabulary and its loaders."""

from __future__ import annotations

import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from graphormer_sepnorm.datasets.catalogue import canonical_name, load_dataset
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import CheckpointError, ConfigError, DataError
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.loading import make_loader
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary

SPLITS = ("train", "validation", "test")


class MoleculeDataModule(LightningDataModule):
    """Molecules in three splits, as batches for Graphormer.

    Args:
        dataset: zinc-subset, zinc, ogbg-molhiv or sample (bundled, nothing is downloaded).
        root: The data root: raw files are looked for and downloads and the graph store are kept
            here. A relative path is relative to where the command was started.
        batch_size: Graphs in a training batch, at least 2. Batches are random and nearly equal in
            size. Memory and time of a step grow linearly with it; BatchNorm in the model sees this
            many graphs at once (per process, and per micro-batch when gradients are accumulated).
        eval_batch_size: Graphs in a batch of validation and test; null takes batch_size. The
            results do not depend on it.
        max_path_length: Hops of a shortest path that enter the edge encoding. Set by
            model.max_path_length.
        seed: Decides the order of training. Set by seed_everything.
        num_workers: Processes that prepare batches. 0 prepares them in the training process, which
            is best on a few CPU cores; 2 to 4 hide the work behind a GPU.
        attention_blocks: Groups of similar size that a batch is split into for attention. More
            groups mean less padding but more, smaller operations; results are the same.
    """

    def __init__(
        self,
        dataset: str = "zinc-subset",
        root: str = "data",
        batch_size: int = 256,
        eval_batch_size: int | None = None,
        max_path_length: int = 20,
        seed: int = 0,
        num_workers: int = 0,
        attention_blocks: int = 1,
    ) -> None:
        super().__init__()
        if batch_size < 2:
            raise ConfigError(f"--data.batch_size is {batch_size}: training needs 2 graphs or more")
        if eval_batch_size is not None and eval_batch_size < 1:
            raise ConfigError(f"--data.eval_batch_size is {eval_batch_size}: it must be 1 or more")
        self.dataset = canonical_name(dataset)
        self.root = Path(root).expanduser().resolve()
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size or batch_size
        self.max_path_length = max_path_length
        self.seed = seed
        self.num_workers = num_workers
        self.attention_blocks = attention_blocks
        self._splits: DatasetSplits | None = None
        self._store: GraphStore | None = None

    @classmethod
    def from_splits(cls, splits: DatasetSplits, **options: Any) -> MoleculeDataModule:
        """Make a data module of your own PyG data sets.

        Args:
            splits: The graphs of the three splits and what their labels mean.
            options: Arguments of the class except `dataset`.
        """
        module = cls(dataset="sample", **options)
        module.dataset = splits.name
        module._splits = splits
        return module

    @property
    def splits(self) -> DatasetSplits:
        """The data set; loaded when it is first asked for."""
        if self._splits is None:
            self._splits = load_dataset(self.dataset, self.root)
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
            text = json.dumps([key, self.max_path_length], sort_keys=True)
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            self._store = GraphStore.open_or_build(
                self.root / "store" / f"{splits.name}-{digest}",
                key,
                lambda: itertools.chain(*splits.parts.values()),
                self.max_path_length,
            )
        return self._store

    def indices(self, split: str) -> np.ndarray:
        """Numbers of the graphs of a split in the store."""
        sizes = [len(part) for part in self.splits.parts.values()]
        position = SPLITS.index(split)
        return np.arange(sizes[position]) + sum(sizes[:position])

    def prepare_data(self) -> None:
        """Download and preprocess, in one process only."""
        _ = self.store

    def setup(self, stage: str) -> None:
        """Open the store, in every process."""
        _ = self.store

    def fit_vocabulary(self) -> GraphVocabulary:
        """Collect the codes that occur in the training split."""
        return GraphVocabulary.fit(self.store, self.indices("train"))

    def target_scaling(self) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of the training labels, per target.

        Missing labels are left out. Binary targets are not scaled: mean 0, deviation 1.

        Raises:
            DataError: A target has no label in the training split.
        """
        task = self.splits.task
        labels = np.asarray(self.store.targets[self.indices("train")], dtype=np.float64)
        if labels.shape[1] != len(task.targets):
            raise DataError(
                f"{self.splits.name}: graphs have {labels.shape[1]} labels, the task names "
                f"{len(task.targets)} targets ({', '.join(task.targets)})"
            )
        empty = np.isnan(labels).all(axis=0)
        if empty.any():
            names = [name for name, none in zip(task.targets, empty, strict=True) if none]
            raise DataError(f"{self.splits.name}: no training label for {', '.join(names)}")
        if task.kind == "binary":
            return [0.0] * len(task.targets), [1.0] * len(task.targets)
        deviation = np.nanstd(labels, axis=0)
        # A constant target cannot be scaled to deviation 1; it is only shifted.
        deviation = np.where(deviation > 0, deviation, 1.0)
        return np.nanmean(labels, axis=0).tolist(), deviation.tolist()

    def train_dataloader(self) -> DataLoader:
        """Training batches, in an order that depends on (seed, epoch) only."""
        loader = self._loader("train")
        if self.trainer is not None:
            loop = self.trainer.fit_loop
            # Workers draw the order as soon as they start, before Lightning tells the epoch.
            loader.batch_sampler.set_epoch(loop.epoch_progress.current.processed)  # type: ignore
        return loader

    def val_dataloader(self) -> DataLoader:
        """Validation graphs, each once."""
        return self._loader("validation")

    def test_dataloader(self) -> DataLoader:
        """Test graphs, each once."""
        return self._loader("test")

    def transfer_batch_to_device(
        self, batch: GraphBatch, device: torch.device, dataloader_idx: int
    ) -> GraphBatch:
        """Move a batch; pinned batches are copied while the device works."""
        return batch.to(device, non_blocking=True)

    def _loader(self, split: str) -> DataLoader:
        training = split == "train"
        on_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        return make_loader(
            self.store,
            self.indices(split),
            self._vocabulary(),
            self.batch_size if training else self.eval_batch_size,
            seed=self.seed if training else None,
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
