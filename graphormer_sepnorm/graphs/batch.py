"""A batch of graphs: packed rows for everything but attention, padded blocks for attention.

The atoms of all graphs of a batch stand one after the other in packed rows; before them stands
one row per graph for its graph token. Linear layers and norms see only these rows, so padding
costs and disturbs nothing there. Attention needs the tokens of one graph side by side: an
`AttentionBlock` says which packed rows go where in a padded ``[b, T]`` layout.

    B graphs · M atoms in all · R = B + M packed rows · F, K atom and bond feature columns
    b graphs of a block · N largest number of atoms in it · T = N + 1 tokens, the graph token first
    P pair types of the batch · D hops · k kinds of bond · E directed bonds · S pairs in one ring
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphormer_sepnorm.graphs.packed_graphs import ranges
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.structure import SHARE_UNIT
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary

# Meaning of the first numbers in `AttentionBlock.pair_type`; pair type t of the batch follows at
# t + FIRST_ATOM_PAIR.
PADDING_PAIR, TOKEN_PAIR, FIRST_ATOM_PAIR = 0, 1, 2
# Kinds of `GraphBatch.ring_pairs`; larger rings are taken as the largest.
_LARGEST_RING = 32
RING_KINDS = 2 * (_LARGEST_RING + 1)
# What a store and a batch have of each graph, in float32.
OF_GRAPHS = ("targets", "weights", "extra", "bounds")


class _TensorRecord:
    """Moves all tensors of a dataclass."""

    def _map(self, function: Any) -> Any:
        changed = {}
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Tensor):
                changed[field.name] = function(value)
            elif isinstance(value, tuple):
                changed[field.name] = tuple(part._map(function) for part in value)
        return replace(self, **changed)  # type: ignore[type-var]


@dataclass(eq=False)  # not frozen: Lightning changes the dtype of their numbers
class AttentionBlock(_TensorRecord):
    """Some graphs of a batch, padded to the largest of them.

    Attributes:
        rows: int64 ``[b, T]``, packed row of each token; 0 where there is padding.
        pair_type: int64 ``[b, T, T]``, query by key: `PADDING_PAIR` where the key is padding,
            `TOKEN_PAIR` where query or key is the graph token (and for real keys of padded
            queries, whose result is not used), otherwise the pair type + `FIRST_ATOM_PAIR`.
        ways: float32 ``[b, T, T, K]``, numbers of the ways between two tokens, for models whose
            encoding has them found beforehand (`ResidentGraphs`); usually None.
    """

    rows: Tensor
    pair_type: Tensor
    ways: Tensor | None = None


@dataclass(eq=False)
class GraphBatch(_TensorRecord):
    """A batch, ready for the model.

    Attributes:
        atom_rows: int64 ``[M, F]``, embedding rows of the atom features; 0 = unknown.
        in_degree: int64 ``[M]``.
        out_degree: int64 ``[M]``.
        ring_sizes: int64 ``[M, 2]``, smallest and largest ring of an atom; 0 = in none.
        graph_of_atom: int64 ``[M]``, 0 to B - 1.
        real_atoms: bool ``[M]``, False for rows that only fill up; None if all rows are atoms.
        type_distance: int64 ``[P]``, in bonds; -1 = unreachable.
        type_ring: int64 ``[P]``, atoms of the smallest ring that both atoms lie in; 0 = none.
        type_path: float32 ``[P, D, k]``, share of the shortest paths whose hop d is a bond of
            that kind; 0 beyond the end of the path.
        bond_rows: int64 ``[k, K]``, embedding rows of the features of each kind of bond.
        bonds: int64 ``[3, E]``: packed rows from and to which a bond leads, and its kind. Those
            that only fill up lead to row R, which does not exist.
        blocks: Attention blocks; each graph is in exactly one.
        unpad: int64 ``[R]``, where each packed row stands in the flattened blocks, one after the
            other.
        targets: float32 ``[B, targets]``; nan where a label is missing.
        weights: float32 ``[B]``, of each graph in the training loss; 1 where none was given.
        extra: float32 ``[B, D]``, further inputs of each graph as they are given;
            nan where one is missing.
        bounds: float32 ``[B, 2 targets]`` or ``[B, 0]``, what is known of missing labels, see
            `PackedGraphs`.
        graph_ids: int64 ``[B]``, number of each graph in its store.
        ring_pairs: Ordered pairs of atoms that share a ring, int64 ``[3, S]``, laid out as `bonds`.
            Their kind is 2 r for rings of r atoms, and one more if a bond joins the two. None if
            nobody has asked for them (`with_ring_pairs`).
        ring_neighbors: How many atoms share a ring with that of each packed row, int64 ``[R]``; or
            None.
        vocabulary: Digest of the `GraphVocabulary` whose rows `atom_rows` and `bond_rows` are.
    """

    atom_rows: Tensor
    in_degree: Tensor
    out_degree: Tensor
    ring_sizes: Tensor
    graph_of_atom: Tensor
    real_atoms: Tensor | None
    type_distance: Tensor
    type_ring: Tensor
    type_path: Tensor
    bond_rows: Tensor
    bonds: Tensor
    blocks: tuple[AttentionBlock, ...]
    unpad: Tensor
    targets: Tensor
    weights: Tensor
    extra: Tensor
    bounds: Tensor
    graph_ids: Tensor
    ring_pairs: Tensor | None = None
    ring_neighbors: Tensor | None = None
    vocabulary: str = ""

    @classmethod
    def from_data_list(
        cls, graphs: Sequence[Any], vocabulary: GraphVocabulary, max_path_length: int = 20
    ) -> GraphBatch:
        """Make a batch of PyG's graphs, in their order.

        Args:
            graphs: ``Data`` with integer ``x [n]`` or ``[n, F]``, ``edge_index [2, E]`` with both
                directions of every bond, and, where there are any, integer ``edge_attr [E]`` or
                ``[E, K]``, ``y`` and ``weight``.
            vocabulary: The codes that the model knows (`GraphVocabulary.from_data_list`).
            max_path_length: That of the model.

        Raises:
            DataError: A graph is not of this form; it is named.
        """
        store = GraphStore.from_graphs(graphs, max_path_length)
        return Collator(store, vocabulary)(range(len(graphs)))

    @property
    def num_graphs(self) -> int:
        """B."""
        return len(self.graph_ids)

    def with_ring_pairs(self) -> GraphBatch:
        """Return the batch with `ring_pairs` and `ring_neighbors`, which few models need."""
        if self.ring_pairs is not None:
            return self
        kinds = ring_kinds(self.type_ring, self.type_distance)
        kinds = torch.cat([kinds.new_full((FIRST_ATOM_PAIR,), -1), kinds])
        pairs = []
        for block in self.blocks:
            kind = kinds[block.pair_type]
            graph, source, target = (kind >= 0).nonzero(as_tuple=True)
            ends = block.rows[graph, source], block.rows[graph, target]
            pairs.append(torch.stack([*ends, kind[graph, source, target]]))
        listed = torch.cat(pairs, dim=1)
        number = count_neighbors(listed, len(self.unpad))
        return replace(self, ring_pairs=listed, ring_neighbors=number)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> GraphBatch:
        """Return the batch with all tensors on `device`."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> GraphBatch:
        """Return the batch with all tensors in page-locked memory, for quick copies to a GPU."""
        return self._map(lambda tensor: tensor.pin_memory())


class Collator:
    """Makes batches of the graphs of a store.

    A batch is divided into `attention_blocks` by size of the graphs. More blocks mean less padding
    and more, smaller matrix products; results and statistics are the same.
    """

    def __init__(
        self, store: GraphStore, vocabulary: GraphVocabulary, attention_blocks: int = 1
    ) -> None:
        self.store = store
        self.attention_blocks = attention_blocks
        self._atom_rows = vocabulary.atoms.rows(store.atom_codes).astype(np.int32)
        self._bond_rows = bond_rows(store, vocabulary)
        self._vocabulary = vocabulary.digest

    def __call__(self, indices: Sequence[int]) -> GraphBatch:
        """Collate the graphs with these numbers, in this order."""
        store = self.store
        graphs = np.asarray(indices, dtype=np.int64)
        sizes = store.num_atoms(graphs)
        atoms = ranges(store.first_atom[graphs], sizes)
        parts = min(self.attention_blocks, len(sizes))
        by_size = np.argsort(sizes, kind="stable") if parts > 1 else np.arange(len(sizes))
        groups = np.array_split(by_size, parts)
        order = np.concatenate(groups)
        pair_type = np.asarray(store.pair_type)  # slices of a memory map are slow
        starts, ends = (store.first_pair[graphs[order] + end].tolist() for end in (0, 1))
        pairs = np.concatenate([pair_type[i:j] for i, j in zip(starts, ends, strict=True)])
        # The types that occur, and their numbers in the batch.
        used = np.zeros(len(store.type_distance), dtype=bool)
        used[pairs] = True
        types = np.flatnonzero(used)
        kinds = kinds_of_types(store, types)
        pairs = (np.cumsum(used) - 1)[pairs]
        graph, source, target, kind = find_bonds(pairs, sizes[order], kinds)
        first_row = (len(sizes) + np.cumsum(sizes) - sizes)[order[graph]]
        bonds = np.stack([first_row + source, first_row + target, kind])
        blocks, unpad = _attention_blocks(groups, sizes, pairs + FIRST_ATOM_PAIR)
        return GraphBatch(
            atom_rows=_long(self._atom_rows[atoms]),
            in_degree=_long(store.in_degree[atoms]),
            out_degree=_long(store.out_degree[atoms]),
            ring_sizes=_long(store.ring_sizes[atoms]),
            graph_of_atom=_long(np.repeat(np.arange(len(graphs)), sizes)),
            real_atoms=None,
            type_distance=_long(store.type_distance[types]),
            type_ring=_long(store.type_ring[types]),
            type_path=paths_of_types(store, types),
            bond_rows=self._bond_rows,
            bonds=torch.from_numpy(bonds),
            blocks=blocks,
            unpad=unpad,
            **{name: torch.tensor(getattr(store, name)[graphs]) for name in OF_GRAPHS},
            graph_ids=torch.from_numpy(graphs),
            vocabulary=self._vocabulary,
        )


def _attention_blocks(
    groups: list[np.ndarray], sizes: np.ndarray, pairs: np.ndarray
) -> tuple[tuple[AttentionBlock, ...], Tensor]:
    """Lay out the tokens of each group of graphs, whose pairs of atoms stand group after group.

    Returns the blocks, and `GraphBatch.unpad`.
    """
    first_row = len(sizes) + np.cumsum(sizes) - sizes
    unpad = np.empty(len(sizes) + int(sizes.sum()), dtype=np.int64)
    blocks = []
    flat, first_pair = 0, 0
    for group in groups:
        own = sizes[group, None]
        tokens = int(own.max()) + 1
        real = np.arange(tokens) <= own
        rows = np.where(real, first_row[group, None] - 1 + np.arange(tokens), 0)
        rows[:, 0] = group
        unpad[rows[real]] = flat + np.flatnonzero(real)

        pair_type = np.empty((len(group), tokens, tokens), dtype=np.int64)
        pair_type[:] = np.where(real, TOKEN_PAIR, PADDING_PAIR)[:, None]
        of_atoms = real[:, 1:, None] & real[:, None, 1:]
        last_pair = first_pair + int((own**2).sum())
        pair_type[:, 1:, 1:][of_atoms] = pairs[first_pair:last_pair]
        blocks.append(AttentionBlock(torch.from_numpy(rows), torch.from_numpy(pair_type)))
        flat, first_pair = flat + real.size, last_pair
    return tuple(blocks), torch.from_numpy(unpad)


def count_neighbors(pairs: Tensor, rows: int) -> Tensor:
    """Return how many of the `pairs [3, S]` lead to each of R rows, int64 ``[R]``."""
    number = pairs.new_zeros(rows + 1)  # one row more for those that only fill up
    return number.index_add(0, pairs[1], torch.ones_like(pairs[1]))[:-1]


def ring_kinds(ring: Tensor, distance: Tensor) -> Tensor:
    """Return the kind of `GraphBatch.ring_pairs` of each pair type ``[P]``; -1 = of no ring."""
    return torch.where(ring > 0, 2 * ring.clamp(max=_LARGEST_RING) + (distance == 1), -1)


def bond_rows(store: GraphStore, vocabulary: GraphVocabulary) -> Tensor:
    """Return `GraphBatch.bond_rows` of a store; one row where it has no bonds at all."""
    if not len(store.bond_kinds):
        return torch.zeros(1, len(vocabulary.bonds.seen), dtype=torch.int64, device="cpu")
    return torch.from_numpy(vocabulary.bonds.rows(store.bond_kinds))


def paths_of_types(store: GraphStore, types: np.ndarray) -> Tensor:
    """Return `GraphBatch.type_path` of some pair types of a store."""
    start = store.type_start[types]
    length = store.type_start[types + 1] - start
    entry = ranges(start, length)
    hops, kinds = store.max_path_length, max(1, len(store.bond_kinds))
    paths = np.zeros((len(types), hops, kinds), np.float32)
    place = np.repeat(np.arange(len(types)) * (hops * kinds), length)
    place += store.type_hop[entry] * kinds + store.type_kind[entry]
    paths.reshape(-1)[place] = store.type_share[entry] * np.float64(1 / SHARE_UNIT)
    return torch.from_numpy(paths)


def kinds_of_types(store: GraphStore, types: np.ndarray) -> np.ndarray:
    """Return for each of some pair types of a store its kind of bond, -1 where it is none."""
    kinds = np.full(len(types), -1, dtype=np.int64)
    bonds = np.flatnonzero(store.type_distance[types] == 1)
    # One shortest path of one hop: the only path entry of the type.
    kinds[bonds] = store.type_kind[store.type_start[types[bonds]]]
    return kinds


def find_bonds(
    pairs: np.ndarray, sizes: np.ndarray, kinds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """List the directed bonds of several graphs, given the type of each ordered pair of atoms.

    `pairs` are row-major within a graph, graph after graph; `kinds` has the kind of bond of each
    type, -1 where it is none. Returns of each bond, in the order of `pairs`: graph, the atoms from
    and to which it leads (indices within the graph), kind.
    """
    place = np.flatnonzero((kinds >= 0)[pairs])
    ends = np.cumsum(sizes**2)
    graph = np.searchsorted(ends, place, side="right")
    source, target = np.divmod(place - (ends - sizes**2)[graph], sizes[graph])
    return graph, source, target, kinds[pairs[place]]


def _long(values: np.ndarray) -> Tensor:
    return torch.from_numpy(values.astype(np.int64))
