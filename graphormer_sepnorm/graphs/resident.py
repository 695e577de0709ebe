"""The graphs of a store in the memory of a device, and batches of fixed shape cut there by index.

A CUDA graph replays the same kernels on the same addresses, so every batch must have the same
shape: rows of atoms and tokens of attention blocks are padded to a `BatchShape` computed from the
sizes of the training graphs. A batch is cut by tensor operations alone: no loop over graphs, no
copy from the host, and nothing the host would have to wait for.

The pair types of a batch are all types of the store, so that no batch has to find out which ones
it needs, which of ZINC would cost as much as reading all of them.

    B graphs · M rows of atoms · b graphs of a block · T tokens · P pair types · D hops ·
    k kinds of bond · E directed bonds, or pairs in one ring · K numbers of a pair
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphormer_sepnorm.graphs.batch import (
    FIRST_ATOM_PAIR,
    OF_GRAPHS,
    PADDING_PAIR,
    TOKEN_PAIR,
    AttentionBlock,
    GraphBatch,
    bond_rows,
    count_neighbors,
    find_bonds,
    kinds_of_types,
    paths_of_types,
    ring_kinds,
)
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary

# Random batches that a planned shape is made to hold: about one in a thousand does not fit it.
_DRAWN = 1000
# A second attention block costs about 20 kernels a layer more; it must save at least half.
_WORTH_A_BLOCK = 0.5
# Pairs of tokens, padding too, whose ways are found at a time: 88 MB of numbers for 21 lengths.
_PAIRS_AT_A_TIME = 2**20


@dataclass(frozen=True)
class BatchShape:
    """The room that a batch has.

    Attributes:
        atoms: M, rows of atoms; those that are left over only fill up.
        blocks: Graphs b and tokens T of each attention block, small graphs in the first.
    """

    atoms: int
    blocks: tuple[tuple[int, int], ...]

    @property
    def graphs(self) -> int:
        """B, which is not padded: BatchNorm on the graph token counts every row."""
        return sum(graphs for graphs, _ in self.blocks)

    @property
    def pairs(self) -> int:
        """Pairs of tokens in all blocks, padding too: what attention costs."""
        return sum(graphs * tokens**2 for graphs, tokens in self.blocks)

    def holds(self, sizes: np.ndarray) -> bool:
        """Whether graphs of these numbers of atoms ``[B]`` fit."""
        if len(sizes) != self.graphs or sizes.sum() > self.atoms:
            return False
        last = np.cumsum([graphs for graphs, _ in self.blocks]) - 1
        largest = np.sort(sizes)[last]
        return bool((largest < [tokens for _, tokens in self.blocks]).all())

    @classmethod
    def of(cls, sizes: np.ndarray) -> BatchShape:
        """The smallest shape, of a single block, for graphs of these numbers of atoms ``[B]``."""
        return cls(int(sizes.sum()), ((len(sizes), int(sizes.max()) + 1),))


def plan_shape(sizes: np.ndarray, graphs: int) -> BatchShape:
    """Choose the shape for random batches of `graphs` of these numbers of atoms.

    It holds a thousand batches sampled at random; a batch that does not fit needs another way.
    Sizes have long tails, so no formula of mean and deviation does this well. Attention has one
    block, as large as the largest graph, or a second one of few large graphs if that leaves less
    than half of the pairs.
    """
    drawn = np.random.default_rng(0).choice(sizes, (_DRAWN, graphs))
    atoms = int(drawn.sum(axis=1).max())
    atoms += -(graphs + atoms) % 8  # packed rows in multiples that matrix units like
    tokens = int(sizes.max()) + 1
    # Tokens of a first block that ends with the j-th smallest graph of a batch.
    first = np.sort(drawn).max(axis=0) + 1
    whole = BatchShape(atoms, ((graphs, tokens),))
    divided = [
        BatchShape(atoms, ((small, int(first[small - 1])), (graphs - small, tokens)))
        for small in range(1, graphs)
    ]
    best = min([whole, *divided], key=lambda shape: shape.pairs)
    return best if best.pairs < _WORTH_A_BLOCK * whole.pairs else whole


class ResidentGraphs:
    """All graphs of a store as tensors on a device.

    Args:
        store: The graphs.
        vocabulary: The codes that the model knows.
        device: Where they are kept; see `needed_bytes`.
        ways: For an encoding whose sizes depend on the batch: what it says of each pair of tokens,
            ``[K, b, T, T]``, given which of them are bonded, ``[b, T, T]``, and their block. It is
            asked once for all graphs, batches have the answers.
        ring_pairs: Whether batches have `GraphBatch.ring_pairs`.
    """

    def __init__(
        self,
        store: GraphStore,
        vocabulary: GraphVocabulary,
        device: torch.device | str,
        ways: Callable[[Tensor, AttentionBlock], Tensor] | None = None,
        ring_pairs: bool = False,
    ) -> None:
        def keep(values: np.ndarray, dtype: torch.dtype) -> Tensor:
            return torch.tensor(np.asarray(values), dtype=dtype, device=device)

        self._num_atoms = keep(np.diff(store.first_atom), torch.int64)
        self._first_atom = keep(store.first_atom, torch.int64)
        self._first_pair = keep(store.first_pair, torch.int64)
        # Kept narrow, widened after the cut: these are the large ones.
        of_atoms = {"atom_rows": vocabulary.atoms.rows(store.atom_codes)}
        of_atoms |= {n: getattr(store, n) for n in ("in_degree", "out_degree", "ring_sizes")}
        self._of_atoms = {name: keep(values, torch.int32) for name, values in of_atoms.items()}
        self._pair_type = keep(store.pair_type.astype(np.int32, copy=False), torch.int32)
        self._of_graphs = {name: keep(getattr(store, name), torch.float32) for name in OF_GRAPHS}
        self._type_distance = keep(store.type_distance, torch.int64)
        self._type_ring = keep(store.type_ring, torch.int64)
        types = np.arange(len(store.type_distance))
        self._type_path = paths_of_types(store, types).to(device)
        self._bond_rows = bond_rows(store, vocabulary).to(device)
        self._vocabulary = vocabulary.digest

        self._bonds = _ListedPairs(store, kinds_of_types(store, types), device)
        self._ring_pairs = None
        if ring_pairs:
            kinds = ring_kinds(self._type_ring, self._type_distance).cpu().numpy()
            self._ring_pairs = _ListedPairs(store, kinds, device)
        self._way_number = self._way_rows = None
        if ways is not None:
            self._way_number, self._way_rows = self._numbered(ways)

    @staticmethod
    def needed_bytes(store: GraphStore, ways: bool = False, ring_pairs: bool = False) -> int:
        """Memory of the device that a store takes, with ways and pairs in rings or without."""
        kinds = max(1, len(store.bond_kinds))
        paths = len(store.type_distance) * store.max_path_length * kinds
        pairs = int(np.sum(store.in_degree, dtype=np.int64))
        if ring_pairs:
            in_ring = np.asarray(store.type_ring > 0)
            pairs += int(np.count_nonzero(in_ring[np.asarray(store.pair_type)]))
        atoms = store.atom_codes.size + store.ring_sizes.size
        numbers = len(store.pair_type) * (2 if ways else 1) + atoms + paths + 3 * pairs
        numbers += store.targets.size + store.extra.size + store.bounds.size
        return 4 * numbers + 96 * store.num_graphs

    def batch(self, graphs: Tensor, shape: BatchShape) -> GraphBatch:
        """Cut a batch: the `Collator`'s, padded, with all pair types of the store.

        `graphs` are indices, int64 ``[B]``, on the device. The shape must hold them; nothing here
        looks at whether it does.
        """
        device = graphs.device
        count = shape.graphs
        sizes = self._num_atoms[graphs]
        ends = sizes.cumsum(0)
        row = torch.arange(shape.atoms, device=device)
        real = row < ends[-1]
        owner = torch.searchsorted(ends, row, right=True).clamp(max=count - 1)
        within = row - (ends - sizes)[owner]
        atom = torch.where(real, self._first_atom[graphs][owner] + within, 0)
        # Without blocks to choose from, graphs keep their order.
        order = (
            sizes.argsort(stable=True)
            if len(shape.blocks) > 1
            else torch.arange(count, device=device)
        )
        first_atom_row = count + ends - sizes
        blocks = []
        slot = torch.zeros_like(sizes)  # where the tokens of each graph begin, in flattened blocks
        flat = 0
        for members, (_, tokens) in zip(
            order.split([number for number, _ in shape.blocks]), shape.blocks, strict=True
        ):
            blocks.append(self._block(graphs[members], members, first_atom_row[members], tokens))
            places = flat + tokens * torch.arange(len(members), device=device)
            slot = slot.scatter(0, members, places)
            flat += tokens * len(members)
        ring_pairs = ring_neighbors = None
        if self._ring_pairs is not None:
            ring_pairs = self._ring_pairs.cut(graphs, first_atom_row, shape)
            ring_neighbors = count_neighbors(ring_pairs, count + shape.atoms)
        return GraphBatch(
            **{
                name: torch.where(
                    real if values.dim() == 1 else real[:, None], values[atom], 0
                ).long()
                for name, values in self._of_atoms.items()
            },
            graph_of_atom=torch.where(real, owner, 0),
            real_atoms=real,
            type_distance=self._type_distance,
            type_ring=self._type_ring,
            type_path=self._type_path,
            bond_rows=self._bond_rows,
            bonds=self._bonds.cut(graphs, first_atom_row, shape),
            blocks=tuple(blocks),
            unpad=torch.cat([slot, torch.where(real, slot[owner] + 1 + within, 0)]),
            **{name: values[graphs] for name, values in self._of_graphs.items()},
            graph_ids=graphs,
            ring_pairs=ring_pairs,
            ring_neighbors=ring_neighbors,
            vocabulary=self._vocabulary,
        )

    def _block(
        self, graphs: Tensor, members: Tensor, first_row: Tensor, tokens: int
    ) -> AttentionBlock:
        """Pad graphs to T tokens.

        Of each, ``[b]``: number in the store, number in the batch, which is the packed row of its
        token, and packed row of its first atom.
        """
        token = torch.arange(tokens, device=graphs.device)
        size = self._num_atoms[graphs][:, None]
        rows = torch.where(token == 0, members[:, None], first_row[:, None] + token - 1)
        is_token = token <= size  # [b, T]
        is_atom = is_token & (token > 0)
        atoms = is_atom[:, :, None] & is_atom[:, None, :]
        pair = (token[:, None] - 1) * size[..., None] + token - 1  # within its graph
        pair = torch.where(atoms, self._first_pair[graphs][:, None, None] + pair, 0)
        others = torch.where(is_token[:, None, :], TOKEN_PAIR, PADDING_PAIR)
        types = self._pair_type[pair].long() + FIRST_ATOM_PAIR
        ways = None
        if self._way_number is not None and self._way_rows is not None:
            number = torch.where(atoms, self._way_number[pair], len(self._way_rows) - 1)
            ways = self._way_rows[number]
        pair_type = torch.where(atoms, types, others)
        return AttentionBlock(torch.where(is_token, rows, 0), pair_type, ways)

    def _numbered(self, ways: Callable[[Tensor, AttentionBlock], Tensor]) -> tuple[Tensor, Tensor]:
        """Ask for the ways of all graphs, and number those that differ: there are few."""
        device = self._pair_type.device
        distance = torch.cat([self._type_distance.new_zeros(FIRST_ATOM_PAIR), self._type_distance])
        numbers, rows, known = [], [], 0
        at_a_time = max(1, _PAIRS_AT_A_TIME // (int(self._num_atoms.max()) + 1) ** 2)
        for graphs in torch.arange(len(self._num_atoms), device=device).split(at_a_time):
            nowhere = torch.zeros_like(graphs)
            block = self._block(graphs, nowhere, nowhere, int(self._num_atoms[graphs].max()) + 1)
            found = ways((distance[block.pair_type] == 1).float(), block)
            found = found.permute(1, 2, 3, 0)[block.pair_type >= FIRST_ATOM_PAIR]
            different, number = found.unique(dim=0, return_inverse=True)
            numbers.append(number + known)
            rows.append(different)
            known += len(different)
        different, number = torch.cat(rows).unique(dim=0, return_inverse=True)
        nothing = different.new_zeros(1, different.shape[1])
        return number[torch.cat(numbers)].int(), torch.cat([different, nothing])


class _ListedPairs:
    """Some ordered pairs of atoms of each graph: those whose pair type has a kind, not -1."""

    def __init__(self, store: GraphStore, kinds: np.ndarray, device: torch.device | str) -> None:
        sizes = np.diff(store.first_atom)
        graph, *parts = find_bonds(np.asarray(store.pair_type), sizes, kinds)
        number = np.bincount(graph, minlength=len(sizes))
        # One more, so that there is something to take where no graph has any.
        ends = np.stack([np.append(part, 0) for part in parts]).astype(np.int32)
        self.pairs = torch.from_numpy(ends).to(device)
        self.number = torch.from_numpy(number).to(device)
        self.first = torch.from_numpy(np.cumsum(number) - number).to(device)
        self.per_atom = float((number / sizes).max())

    def cut(self, graphs: Tensor, first_row: Tensor, shape: BatchShape) -> Tensor:
        """Return those of graphs whose atoms begin at these packed rows, ``[3, E]``.

        E is the most that so many atoms of any graphs of the store can have.
        """
        number = self.number[graphs]
        ends = number.cumsum(0)
        slot = torch.arange(int(self.per_atom * shape.atoms) + 1, device=graphs.device)
        real = slot < ends[-1]
        owner = torch.searchsorted(ends, slot, right=True).clamp(max=len(graphs) - 1)
        place = self.first[graphs][owner] + slot - (ends - number)[owner]
        source, target, kind = self.pairs[:, torch.where(real, place, 0)].long()
        rows = first_row[owner]
        nowhere = len(graphs) + shape.atoms
        return torch.stack(
            [
                torch.where(real, rows + source, 0),
                torch.where(real, rows + target, nowhere),
                torch.where(real, kind, 0),
            ]
        )
