"""Graphs as they are given, checked and packed: one, and the arrays of many after each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from graphormer_sepnorm.errors import DataError

_BLOCK_PAIRS = 300_000  # pairs of atoms worked on at once: enough to vectorize, small in memory
_LARGEST = float(np.finfo(np.float32).max)  # a larger weight would be stored as infinity
_Widths = tuple[int, int, int]  # numbers of atom features, bond features and targets
_NONE: Any = None


@dataclass(frozen=True, eq=False)
class MolecularGraph:
    """Atoms and bonds as codes of some vocabulary; each bond stands in both directions.

    Attributes:
        atom_codes: ``[n, A]`` int64, one row per atom, one column per atom feature.
        edge_index: ``[2, E]`` int64, source and target atom of each directed bond.
        bond_codes: ``[E, K]`` int64, one row per directed bond, one column per bond feature.
    """

    atom_codes: np.ndarray
    edge_index: np.ndarray
    bond_codes: np.ndarray

    @property
    def num_atoms(self) -> int:
        """Number of atoms, at least 1."""
        return len(self.atom_codes)


@dataclass(frozen=True)
class PackedGraphs:
    """Some graphs, one after the other.

    Attributes:
        num_atoms: int64 ``[G]``, at least 1.
        num_bonds: int64 ``[G]``, directed bonds.
        atom_codes: int64 ``[sum n, F]``.
        edge_index: int64 ``[2, sum E]``, source and target, numbered within their graph.
        bond_codes: int64 ``[sum E, K]``.
        targets: float32 ``[G, T]``; nan = missing. Not given: ``[G, 0]``, as the two below.
        weights: float32 ``[G]``, of each graph in the training loss; 1 where they are not given.
        extra: float32 ``[G, D]``, further inputs of each graph; nan = missing.
        bounds: float32 ``[G, 2 T]``, of missing targets what is known of them: T values that they
            are at least, then T that they are at most; nan = unknown. ``[G, 0]``: none is known.
    """

    num_atoms: np.ndarray
    num_bonds: np.ndarray
    atom_codes: np.ndarray
    edge_index: np.ndarray
    bond_codes: np.ndarray
    targets: np.ndarray = _NONE
    weights: np.ndarray = _NONE
    extra: np.ndarray = _NONE
    bounds: np.ndarray = _NONE

    def __post_init__(self) -> None:
        graphs = len(self.num_atoms)
        for name in ("targets", "weights", "extra", "bounds"):
            if getattr(self, name) is None:
                shape = (graphs,) if name == "weights" else (graphs, 0)
                object.__setattr__(self, name, np.ones(shape, np.float32))

    @classmethod
    def concatenate(cls, parts: Sequence[PackedGraphs]) -> PackedGraphs:
        """Return the graphs of all parts, at least one, in this order."""
        arrays = {one.name: [getattr(part, one.name) for part in parts] for one in fields(cls)}
        return cls(
            **{
                name: np.concatenate(of_parts, axis=int(name == "edge_index"))
                for name, of_parts in arrays.items()
            }
        )

    def __len__(self) -> int:
        return len(self.num_atoms)

    def __getitem__(self, number: int) -> MolecularGraph:
        """Return one graph; its arrays are parts of these."""
        atom, bond = self.num_atoms[:number].sum(), self.num_bonds[:number].sum()
        bonds = slice(bond, bond + self.num_bonds[number])
        return MolecularGraph(
            self.atom_codes[atom : atom + self.num_atoms[number]],
            self.edge_index[:, bonds],
            self.bond_codes[bonds],
        )

    def take(self, numbers: Sequence[int] | np.ndarray) -> PackedGraphs:
        """Return some of the graphs, in the order of their `numbers`."""
        starts = np.cumsum(self.num_atoms) - self.num_atoms
        atoms = ranges(starts[numbers], self.num_atoms[numbers])
        starts = np.cumsum(self.num_bonds) - self.num_bonds
        bonds = ranges(starts[numbers], self.num_bonds[numbers])
        places = {"atom_codes": atoms, "bond_codes": bonds, "edge_index": (slice(None), bonds)}
        return PackedGraphs(
            **{name: array[places.get(name, numbers)] for name, array in vars(self).items()}
        )


def packed_blocks(graphs: Iterable[Any]) -> Iterator[PackedGraphs]:
    """Check graphs and pack them into blocks of bounded size.

    These are `MolecularGraph` or PyG ``Data`` objects, or `PackedGraphs`, which are passed on.

    Raises:
        DataError: Naming the graph that is not of this form.
    """
    group: list[tuple[MolecularGraph, np.ndarray, float]] = []
    position, pairs, widths = 0, 0, None
    for data in graphs:
        if isinstance(data, PackedGraphs):
            if group:
                yield _in_range(_packed(group), position - len(group))
            own = data.atom_codes.shape[1], data.bond_codes.shape[1], data.targets.shape[1]
            widths = _agreed(position, own, widths)
            yield _in_range(data, position)
            group, pairs, position = [], 0, position + len(data)
            continue
        graph, targets, weight = checked_graph(data, f"graph {position}")
        # A graph without codes of its bonds is none among graphs that have one.
        coded = isinstance(data, MolecularGraph) or getattr(data, "edge_attr", None) is not None
        own = graph.atom_codes.shape[1], graph.bond_codes.shape[1] * coded, len(targets)
        widths = _agreed(position, own, widths)
        if group and pairs + graph.num_atoms**2 > _BLOCK_PAIRS:
            yield _in_range(_packed(group), position - len(group))
            group, pairs = [], 0
        group.append((graph, targets, weight))
        pairs += graph.num_atoms**2
        position += 1
    if group:
        yield _in_range(_packed(group), position - len(group))


def _agreed(position: int, own: _Widths, before: _Widths | None) -> _Widths:
    """Return the widths of all graphs so far."""
    if before not in (None, own):
        raise DataError(
            f"graph {position} has {own} (atom features, bond features, targets), the graphs "
            f"before it {before}: all graphs of a data set must agree, also in having an edge_attr "
            "(of shape [0, features] where there is no bond)"
        )
    return own


def _in_range(block: PackedGraphs, position: int) -> PackedGraphs:
    """Return a block whose bonds all name atoms that are there; its first graph has this number."""
    atoms = np.repeat(block.num_atoms, block.num_bonds)
    outside = (block.edge_index < 0) | (block.edge_index >= atoms)
    if outside.any():
        graph = np.repeat(np.arange(len(block)), block.num_bonds)[outside.any(axis=0)][0]
        raise DataError(
            f"graph {position + graph}: edge_index names atoms outside "
            f"0..{block.num_atoms[graph] - 1}"
        )
    return block


def _packed(group: list[tuple[MolecularGraph, np.ndarray, float]]) -> PackedGraphs:
    graphs, targets, weights = zip(*group, strict=True)
    return PackedGraphs(
        num_atoms=np.array([len(graph.atom_codes) for graph in graphs]),
        num_bonds=np.array([len(graph.bond_codes) for graph in graphs]),
        atom_codes=np.concatenate([graph.atom_codes for graph in graphs]),
        edge_index=np.concatenate([graph.edge_index for graph in graphs], axis=1),
        bond_codes=np.concatenate([graph.bond_codes for graph in graphs]),
        targets=np.stack(targets),
        weights=np.array(weights, dtype=np.float32),
    )


def checked_graph(data: Any, where: str) -> tuple[MolecularGraph, np.ndarray, float]:
    """Bring one graph, its targets and its weight into the form that the rest works on."""
    if isinstance(data, MolecularGraph):
        return data, np.empty(0, dtype=np.float32), 1.0
    found = {
        name: np.asarray(getattr(data, name, None)) for name in ("x", "edge_index", "edge_attr")
    }
    if getattr(data, "edge_attr", None) is None:
        found["edge_attr"] = np.zeros(found["edge_index"].shape[1:], dtype=np.int64)
    atoms, edges, bonds = found.values()
    # An array without entries may be of floats: torch makes empty ones so.
    are_codes = all(not one.size or one.dtype.kind in "biu" for one in found.values())
    fit = edges.ndim == 2 and len(edges) == 2 and bonds.shape[:1] == edges.shape[1:]
    columns = all(one.ndim == 1 or (one.ndim == 2 and one.shape[1]) for one in (atoms, bonds))
    if not (are_codes and fit and atoms.size and columns):
        said = ", ".join(f"{name} {one.dtype} {[*one.shape]}" for name, one in found.items())
        raise DataError(
            f"{where}, of the type {type(data).__name__}, has {said}: give Data of PyG with "
            "integers x [atoms] or [atoms, features], edge_index [2, edges], one column for each "
            "directed bond, and, of bonds with features, edge_attr [edges] or [edges, features]"
        )
    atom_codes, bond_codes = (
        (one[:, None] if one.ndim == 1 else one).astype(np.int64) for one in (atoms, bonds)
    )
    targets, weight = getattr(data, "y", None), getattr(data, "weight", None)
    try:
        targets = np.asarray(() if targets is None else targets, dtype=np.float32).reshape(-1)
        number = 1.0 if weight is None else float(weight)
    except (TypeError, ValueError) as error:
        raise DataError(f"{where} has a label or weight that is no number: {error}") from error
    if not 0 <= number <= _LARGEST:
        raise DataError(f"{where} has the weight {weight}: it must be a number from 0 to 3e38")
    return MolecularGraph(atom_codes, edges.astype(np.int64), bond_codes), targets, number


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return ``start, start + 1, ...``, `length` indices of each, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)
