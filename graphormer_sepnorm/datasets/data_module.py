"""The Lightning data module: the loaders of a data set."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader

from graphormer_sepnorm.datasets.molecule_data import MoleculeData
from graphormer_sepnorm.errors import CheckpointError, ConfigError
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.loading import EpochBatches, in_order, make_loader
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary


class MoleculeDataModule(MoleculeData, LightningDataModule):
    """Molecules in three splits, as batches for Graphormer; arguments as `MoleculeData`."""

    # Training batches are indices of graphs, where the graphs themselves are on the device.
    numbers_only = False
    _position = (0, 0)  # of a resumed run: epoch, and batch in it

    def setup(self, stage: str) -> None:
        """Open the store, in every process; the first one builds it, and the others wait."""
        _ = self.store
        if stage == "fit":  # after which Lightning restores what a checkpoint has
            self._position = (0, 0)

    def train_dataloader(self) -> DataLoader:
        """Training batches, in an order that depends on (seed, epoch) only.

        Of the epoch in which a resumed run stopped, the batches that are left.
        """
        options = self.batch_size, self.seed, self._position, *self._processes()
        order = EpochBatches(self.indices("train"), *options)
        if not self.numbers_only:
            return self._loader(order)
        graphs: Any = range(self.store.num_graphs)
        return DataLoader(graphs, batch_sampler=order, collate_fn=np.asarray)

    def _processes(self) -> tuple[int, int]:
        """Number of this process, and how many there are."""
        trainer = self.trainer
        return (trainer.global_rank, trainer.world_size) if trainer else (0, 1)

    def statistics_batches(self, graphs: int) -> Iterable[GraphBatch]:
        """Give random training graphs on which BatchNorm's statistics can be measured.

        The same ones each time; several processes share each batch.

        Args:
            graphs: How many; all training graphs if there are fewer.
        """
        train = self.indices("train")
        chosen = np.random.default_rng([self.seed, len(train)]).permutation(train)[:graphs]
        options = min(self.batch_size, len(chosen)), self.seed, (0, 0), *self._processes()
        order = EpochBatches(chosen, *options)
        return make_loader(
            self.store, self._vocabulary(), order, attention_blocks=self.config.attention_blocks
        )

    def state_dict(self) -> dict[str, int]:
        """Where training stands, for a checkpoint: epoch, next batch in it, and their size."""
        if self.trainer is None or self.trainer.state.fn != "fit":
            return {}
        loop = self.trainer.fit_loop
        epochs: Any = loop.epoch_progress.current
        batch: int = loop.epoch_loop.batch_progress.current.processed  # type: ignore[attr-defined]
        epoch = epochs.processed
        if batch and batch >= loop.max_batches:
            # The epoch is over, though Lightning may count it as processed a moment later; the
            # next one may be counted as ready already.
            epoch, batch = epochs.started, 0
        # What a step is, without which a place in the epoch says nothing.
        step = {"accumulate_grad_batches": int(self.trainer.accumulate_grad_batches)}
        return {"epoch": epoch, "batch": batch, "batch_size": self.batch_size, **step}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue where a checkpoint was written."""
        self._position = (state_dict.get("epoch", 0), state_dict.get("batch", 0))

    def val_dataloader(self) -> DataLoader:
        """Validation graphs, each once."""
        return self._evaluated("validation")

    def test_dataloader(self) -> DataLoader:
        """Test graphs, each once."""
        return self._evaluated("test")

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

    def _evaluated(self, split: str) -> DataLoader:
        indices = self._require(split, self.indices(split))
        options = self.eval_batch_size, *self._processes()
        return self._loader(in_order(self.store, indices, *options))

    def transfer_batch_to_device(
        self, batch: GraphBatch | np.ndarray, device: torch.device, dataloader_idx: int
    ) -> GraphBatch | np.ndarray:
        """Move a batch; pinned batches are copied while the device works."""
        if isinstance(batch, np.ndarray):  # indices, of which captured steps make a batch
            return batch
        return batch.to(device, non_blocking=True)

    def _loader(self, batches: EpochBatches | list[list[int]]) -> DataLoader:
        on_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        return make_loader(
            self.store,
            self._vocabulary(),
            batches,
            num_workers=self.config.num_workers,
            pin_memory=on_gpu,
            attention_blocks=self.config.attention_blocks,
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
