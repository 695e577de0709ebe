"""Which graphs form which batch, and the loader that makes them.

The order of training is a pure function of (seed, epoch): nothing has to be saved to continue it,
and two runs that differ in the model only see the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary


class EpochBatches(Sampler[list[int]]):
    """Random batches of nearly equal size, drawn anew each epoch.

    Batches are random draws, not sorted by size: BatchNorm on the graph token must see the spread
    of sizes in training that it meets in evaluation. The last batch is not smaller than the
    others: n graphs make ceil(n / batch_size) batches whose sizes differ by one at most, so no
    statistic is taken over a small remainder, and none over a single graph (for which variance is
    undefined): rather than that, some batches hold one graph more than `batch_size`.

    Args:
        indices: Numbers of the graphs to draw from.
        batch_size: Largest size of a batch, at least 2.
        seed: With the epoch it decides the order.

    Raises:
        DataError: If there are fewer than 2 graphs or `batch_size` is below 2.
    """

    def __init__(self, indices: Sequence[int] | np.ndarray, batch_size: int, seed: int) -> None:
        self.indices = np.asarray(indices, dtype=np.int64)
        if len(self.indices) < 2 or batch_size < 2:
            raise DataError(
                f"{len(self.indices)} training graphs in batches of {batch_size}: BatchNorm needs "
                "at least 2 graphs in a batch"
            )
        self.seed = seed
        self.epoch = 0
        wanted = -(-len(self.indices) // batch_size)
        self._num_batches = min(wanted, len(self.indices) // 2)

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that the next iteration gives."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self._num_batches

    def __iter__(self) -> Iterator[list[int]]:
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.indices)
        for batch in np.array_split(order, self._num_batches):
            yield batch.tolist()


class _Numbers(torch.utils.data.Dataset):
    """The data set of a loader whose collator finds the graphs by number."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, number: int) -> int:
        return number


def make_loader(
    store: GraphStore,
    indices: Sequence[int] | np.ndarray,
    vocabulary: GraphVocabulary,
    batch_size: int,
    *,
    seed: int | None,
    num_workers: int = 0,
    pin_memory: bool = False,
    attention_blocks: int = 1,
) -> DataLoader:
    """Return a loader of `GraphBatch`.

    Args:
        store: The graphs.
        indices: Numbers of the graphs to load.
        vocabulary: The codes that the model knows.
        batch_size: Graphs in a batch.
        seed: For training, decides the order (`EpochBatches`); None: in the given order, each
            graph once.
        num_workers: Processes that make batches; 0 makes them in this one.
        pin_memory: Copy batches to page-locked memory, for a GPU.
        attention_blocks: See `Collator`.
    """
    if seed is None:
        numbers = np.asarray(indices, dtype=np.int64)
        batches = [
            numbers[first : first + batch_size].tolist()
            for first in range(0, len(numbers), batch_size)
        ]
    else:
        batches = EpochBatches(indices, batch_size, seed)
    return DataLoader(
        _Numbers(store.num_graphs),
        batch_sampler=batches,
        collate_fn=Collator(store, vocabulary, attention_blocks),
        num_workers=num_workers,
        pin_memory=pin_memory,
        persistent_workers=num_workers > 0,
    )
