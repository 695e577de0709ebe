"""Which graphs form which batch, and the loader that makes them.

The order of training is a pure function of (seed, epoch): nothing has to be saved to continue it,
and two runs that differ in the model only see the same batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, Sampler

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary

# Padded pairs of tokens that are evaluated at once: 16 MB for each float that a pair has.
_MAX_PAIRS = 4_000_000


class EpochBatches(Sampler[list[int]]):
    """Random batches of nearly equal size, sampled again each epoch, by (seed, epoch).

    Batches are not sorted by size: BatchNorm on the graph token must see the spread of sizes in
    training that it meets in evaluation. The last batch is not smaller than the others: n graphs
    make ceil(n / batch_size) batches whose sizes differ by one at most, so no statistic is taken
    over a small remainder, and none over a single graph (for which variance is undefined): rather
    than that, some batches hold one graph more than `batch_size`.

    Several processes share each batch: `batch_size` is that of all of them together, and the order
    does not depend on their number. Of the epoch in which a resumed run stopped (its `position`:
    epoch and batch) only the batches that are left are given; the length is that of whole epochs,
    as Lightning expects.

    Raises:
        DataError: If there are fewer than 2 graphs, `batch_size` is below 2, or a batch has fewer
            graphs than there are processes.
    """

    def __init__(
        self,
        indices: Sequence[int] | np.ndarray,
        batch_size: int,
        seed: int,
        position: tuple[int, int] = (0, 0),
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self.indices = np.asarray(indices, dtype=np.int64)
        if len(self.indices) < 2 or batch_size < 2:
            raise DataError(
                f"{len(self.indices)} training graphs in batches of {batch_size}: BatchNorm needs "
                "at least 2 graphs in a batch"
            )
        wanted = -(-len(self.indices) // batch_size)
        self._num_batches = min(wanted, len(self.indices) // 2)
        if len(self.indices) // len(self) < world_size:
            raise DataError(
                f"training batches of {len(self.indices) // len(self)} graphs cannot be shared by "
                f"{world_size} processes: give a larger --data.batch_size"
            )
        self.seed = seed
        self.position = position
        self._share = slice(rank, None, world_size)
        # Workers draw the order as soon as they start, before training says which epoch it is.
        self.epoch, self._chosen = position[0], False

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch that iterations give; unless it is, each gives the next one."""
        self.epoch, self._chosen = epoch, True

    def __len__(self) -> int:
        return self._num_batches

    @property
    def first_batch(self) -> int:
        """Batch that the epoch begins with; not 0 where a resumed run continues inside an epoch."""
        epoch, batch = self.position
        return batch if self.epoch == epoch else 0

    def _whole_epoch(self) -> list[np.ndarray]:
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.indices)
        return np.array_split(order, self._num_batches)

    def counts(self, of_graphs: np.ndarray) -> np.ndarray:
        """Sum a number per graph of the store ``[G]`` over each batch of the epoch, ``[batches]``.

        Those of all processes are counted together.
        """
        return np.array([of_graphs[numbers].sum() for numbers in self._whole_epoch()])

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self._whole_epoch()[self.first_batch :]:
            yield batch[self._share].tolist()
        self.epoch += not self._chosen


class GivenBatches(list[list[int]]):
    """Batches for evaluation; a list with attributes, which Lightning asks of a batch sampler."""


def bounded(
    order: Iterable[int], atoms: np.ndarray, batch_size: int, max_pairs: int
) -> Iterator[list[int]]:
    """Divide graphs into batches of a bounded number of padded pairs, and so of bounded memory.

    `order` are indices in `atoms` ``[n]``, and so are those given. A batch has at most `batch_size`
    graphs and `max_pairs` pairs of tokens, padding among them; a larger graph is a batch of its
    own.
    """
    batch: list[int] = []
    widest = 0
    for place in order:
        tokens = max(widest, int(atoms[place]) + 1)  # with the graph token
        if batch and (len(batch) == batch_size or (len(batch) + 1) * tokens**2 > max_pairs):
            yield batch
            batch, tokens = [], int(atoms[place]) + 1
        batch.append(place)
        widest = tokens
    if batch:
        yield batch


def in_order(
    store: GraphStore,
    indices: Sequence[int] | np.ndarray,
    batch_size: int,
    rank: int = 0,
    world_size: int = 1,
) -> list[list[int]]:
    """Return batches for evaluation: each graph once, in the order given.

    Batches with very large graphs are smaller. Several processes share the graphs, none of which is
    evaluated twice, and the `batch_size`.

    Raises:
        DataError: There are fewer graphs than processes.
    """
    if len(indices) < world_size:
        raise DataError(
            f"{len(indices)} graphs cannot be shared by {world_size} processes: use fewer devices"
        )
    numbers = np.asarray(indices, dtype=np.int64)[rank::world_size]
    batch_size = max(1, batch_size // world_size)
    atoms = store.num_atoms(numbers)
    return [
        numbers[places].tolist()
        for places in bounded(range(len(numbers)), atoms, batch_size, _MAX_PAIRS)
    ]


def make_loader(
    store: GraphStore,
    vocabulary: GraphVocabulary,
    batches: Sampler[list[int]] | Sequence[list[int]],
    *,
    num_workers: int = 0,
    pin_memory: bool = False,
    attention_blocks: int = 1,
) -> DataLoader:
    """Return a loader of `GraphBatch`.

    Args:
        store: The graphs.
        vocabulary: The codes that the model knows.
        batches: Indices of the graphs of each batch: `in_order`, `EpochBatches`.
        num_workers: Processes that make batches; 0 makes them in this one.
        pin_memory: Copy batches to page-locked memory, for a GPU.
        attention_blocks: See `Collator`.
    """
    graphs: Any = range(store.num_graphs)  # the collator finds them by number
    return DataLoader(
        graphs,
        batch_sampler=batches if isinstance(batches, Sampler) else GivenBatches(batches),
        collate_fn=Collator(store, vocabulary, attention_blocks),
        num_workers=num_workers,
        pin_memory=pin_memory,
        persistent_workers=num_workers > 0,
    )
