"""Graphs as they are given, checked and packed: one, and the arrays of many after each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from graphormer_sepnorm.errors import DataError

_BLOCK_PAIRS = 300_000  # pairs of atoms worked on at once: enough to vectorise, small in memory

# Numbers of atom features, bond features (None: there is no bond yet) and targets.
_Widths = tuple[int, int | None, int]


@dataclass(frozen=True, eq=False)
class MolecularGraph:
    """Atoms and bonds as codes of some vocabulary; each bond stands in both directions.

    Attributes:
        atom_codes: ``[n, A]`` int64, one row per atom, one column per atom feature.
        edge_index: ``[2, E]`` int64, source and target atom of each directed bond.
        bond_codes: ``[E, K]`` int64, one row per directed bond, one column per bond feature.

    Raises:
        DataError: The shapes do not fit together, or there is no atom.
    """

    atom_codes: np.ndarray
    edge_index: np.ndarray
    bond_codes: np.ndarray

    def __post_init__(self) -> None:
        well_formed = (
            self.atom_codes.ndim == 2
            and self.bond_codes.ndim == 2
            and self.edge_index.shape == (2, len(self.bond_codes))
        )
        if not (well_formed and self.num_atoms):
            raise DataError(
                "a molecular graph needs atom_codes [n, A] of an atom or more, edge_index [2, E] "
                f"and bond_codes [E, K], but got {self.atom_codes.shape}, {self.edge_index.shape} "
                f"and {self.bond_codes.shape}"
            )

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
        targets: float32 ``[G, T]``; nan = missing.
        weights: float32 ``[G]``, of each graph in the training loss.
        extra: float32 ``[G, D]``, numbers beside each graph (`ExtraInputs`); nan = missing.
        bounds: float32 ``[G, 2 T]``, of missing targets what is known of them: T values that they
            are at least, then T that they are at most; nan = unknown. ``[G, 0]``: none is known.
    """

    num_atoms: np.ndarray
    num_bonds: np.ndarray
    atom_codes: np.ndarray
    edge_index: np.ndarray
    bond_codes: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    extra: np.ndarray
    bounds: np.ndarray

    @property
    def widths(self) -> tuple[int, int, int]:
        """Numbers of atom features, bond features and targets."""
        return self.atom_codes.shape[1], self.bond_codes.shape[1], self.targets.shape[1]

    @classmethod
    def of(cls, graphs: Sequence[MolecularGraph]) -> PackedGraphs:
        """Pack graphs, at least one, without targets."""
        nothing = np.empty(0, dtype=np.float32)
        return _packed([(graph, nothing, 1.0) for graph in graphs])

    @classmethod
    def concatenate(cls, parts: Sequence[PackedGraphs]) -> PackedGraphs:
        """Return the graphs of all parts, at least one, in this order."""
        arrays = {one.name: [getattr(part, one.name) for part in parts] for one in fields(cls)}
        arrays["bond_codes"] = _with_bonds(arrays["bond_codes"])
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
        atoms = _ranges_of(self.num_atoms, numbers)
        bonds = _ranges_of(self.num_bonds, numbers)
        return PackedGraphs(
            self.num_atoms[numbers],
            self.num_bonds[numbers],
            self.atom_codes[atoms],
            self.edge_index[:, bonds],
            self.bond_codes[bonds],
            self.targets[numbers],
            self.weights[numbers],
            self.extra[numbers],
            self.bounds[numbers],
        )


def packed_blocks(graphs: Iterable[Any]) -> Iterator[PackedGraphs]:
    """Check graphs and pack them into blocks of bounded size.

    A block without bonds may have another number of bond features than the others.

    Args:
        graphs: `MolecularGraph` or PyG ``Data`` objects, or `PackedGraphs`, which are passed on.

    Raises:
        DataError: Naming the graph that is not of this form.
    """
    group: list[tuple[MolecularGraph, np.ndarray, float]] = []
    position, pairs, widths, bond_codes = 0, 0, None, None
    for data in graphs:
        if isinstance(data, PackedGraphs):
            if group:
                yield _in_range(_packed(group), position - len(group))
            atoms, bonds, targets = data.widths
            own = (atoms, bonds if data.num_bonds.any() else None, targets)
            widths = _agreed(position, own, widths)
            yield _in_range(data, position)
            group, pairs, position = [], 0, position + len(data)
            continue
        graph, targets, weight = checked_graph(data, f"graph {position}")
        if graph.edge_index.size and not isinstance(data, MolecularGraph):
            has_codes = getattr(data, "edge_attr", None) is not None
            if has_codes != (bond_codes := has_codes if bond_codes is None else bond_codes):
                raise DataError(
                    f"graph {position} has {'an' if has_codes else 'no'} edge_attr, unlike graphs "
                    "before it: give one to all graphs with bonds, or to none"
                )
        bonds = graph.bond_codes.shape[1] if graph.edge_index.size else None
        widths = _agreed(position, (graph.atom_codes.shape[1], bonds, len(targets)), widths)
        if group and pairs + graph.num_atoms**2 > _BLOCK_PAIRS:
            yield _in_range(_packed(group), position - len(group))
            group, pairs = [], 0
        group.append((graph, targets, weight))
        pairs += graph.num_atoms**2
        position += 1
    if group:
        yield _in_range(_packed(group), position - len(group))


def _in_range(block: PackedGraphs, position: int) -> PackedGraphs:
    """Return a block whose bonds all name atoms that are there; its first graph has this number."""
    outside = (block.edge_index < 0) | (
        block.edge_index >= np.repeat(block.num_atoms, block.num_bonds)
    )
    if outside.any():
        bond = int(np.flatnonzero(outside.any(axis=0))[0])
        graph = int(np.searchsorted(np.cumsum(block.num_bonds), bond, side="right"))
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
        bond_codes=np.concatenate(_with_bonds([graph.bond_codes for graph in graphs])),
        targets=np.stack(targets),
        weights=np.array(weights, dtype=np.float32),
        extra=no_numbers(len(graphs)),
        bounds=no_numbers(len(graphs)),
    )


def _with_bonds(codes: list[np.ndarray]) -> list[np.ndarray]:
    """Leave out arrays of no bonds, which need not have the others' columns.

    Among such alone, one that has several columns knows of them.
    """
    return [one for one in codes if len(one)] or [max(codes, key=lambda one: one.shape[1])]


def no_numbers(graphs: int) -> np.ndarray:
    """Return `PackedGraphs.extra` or `bounds` of so many graphs that have none."""
    return np.empty((graphs, 0), dtype=np.float32)


def _agreed(position: int, own: _Widths, before: _Widths | None) -> _Widths:
    """Return the widths of all graphs so far."""
    if before is None:
        return own
    own = (own[0], before[1] if own[1] is None else own[1], own[2])
    before = (before[0], own[1] if before[1] is None else before[1], before[2])
    if own != before:
        raise DataError(
            f"graph {position} has {own} (atom features, bond features, targets), the graphs "
            f"before it {before}: all graphs of a data set must agree"
        )
    return own


def checked_graph(data: Any, where: str) -> tuple[MolecularGraph, np.ndarray, float]:
    """Bring one graph, its targets and its weight into the form that the rest works on."""
    if isinstance(data, MolecularGraph):
        return data, np.empty(0, dtype=np.float32), 1.0
    if getattr(data, "x", None) is None or not hasattr(data, "edge_index"):
        raise DataError(
            f"{where}, of the type {type(data).__name__}, has no x (atom features) or no "
            "edge_index: give Data of PyG with both, and y"
        )
    atom_codes = _integer_columns(data.x, f"{where}: x (atom features)")
    if not len(atom_codes):
        raise DataError(f"{where} has no atoms: leave it out of the data set")
    edge_index = _array(data.edge_index, f"{where}: edge_index")
    if edge_index.ndim != 2 or len(edge_index) != 2 or not _holds_integers(edge_index):
        raise DataError(
            f"{where}: edge_index must be integers [2, edges], one column per directed bond; "
            "without bonds, of shape [2, 0]"
        )
    edge_index = edge_index.astype(np.int64)
    bonds = getattr(data, "edge_attr", None)
    if bonds is None:
        bond_codes = np.zeros((edge_index.shape[1], 1), dtype=np.int64)
    else:
        bond_codes = _integer_columns(bonds, f"{where}: edge_attr (bond features)")
    if len(bond_codes) != edge_index.shape[1]:
        raise DataError(
            f"{where}: edge_attr has {len(bond_codes)} rows for {edge_index.shape[1]} edges"
        )
    return MolecularGraph(atom_codes, edge_index, bond_codes), *labels_and_weight(data, where)


def labels_and_weight(data: Any, where: str) -> tuple[np.ndarray, float]:
    """Return of one graph its targets, float32 ``[T]``, and its weight in the training loss.

    Raises:
        DataError: It has a weight or a label that cannot be.
    """
    targets = getattr(data, "y", None)
    try:
        targets = np.empty(0) if targets is None else np.asarray(targets, dtype=np.float32)
    except (TypeError, ValueError, RuntimeError) as error:  # the last of a label with a gradient
        raise DataError(f"{where}: y (labels) does not hold numbers ({error})") from error
    weight = getattr(data, "weight", None)
    try:
        weight = 1.0 if weight is None else float(weight)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"{where}: its weight is no number ({error})") from error
    if not 0 <= weight <= float(np.finfo(np.float32).max):  # beyond it would be stored as infinity
        raise DataError(f"{where} has the weight {weight}: it must be a number from 0 to 3e38")
    return targets.reshape(-1), weight


def _integer_columns(values: Any, what: str) -> np.ndarray:
    """Return integer features as int64 ``[n, columns]``."""
    array = _array(values, what)
    if not _holds_integers(array):
        raise DataError(f"{what} are {array.dtype}: Graphormer embeds integer codes")
    if not array.ndim:
        raise DataError(f"{what} are a single number: give a row for each")
    if not array.size and len(array):
        raise DataError(f"{what} have no columns: give at least one, for example zeros")
    if not array.size:  # a molecule without bonds: the number of columns is kept
        return np.zeros((0, array.shape[1] if array.ndim == 2 else 1), dtype=np.int64)
    return array.astype(np.int64).reshape(len(array), -1)


def _array(values: Any, what: str) -> np.ndarray:
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:  # a tensor on a GPU, with a gradient
        raise DataError(f"{what} cannot be read as an array ({error})") from error


def _holds_integers(array: np.ndarray) -> bool:
    # An array without entries has no say: torch makes empty ones float.
    return not array.size or np.issubdtype(array.dtype, np.integer) or array.dtype == bool


def _ranges_of(lengths: np.ndarray, numbers: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the places of some of the parts of an array whose parts have these lengths."""
    return ranges((np.cumsum(lengths) - lengths)[numbers], lengths[numbers])


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return ``start, start + 1, ...``, `length` numbers of each, one after the other.

    Args:
        starts: int64 ``[n]``.
        lengths: int64 ``[n]``.

    Returns:
        int64 ``[sum of the lengths]``.
    """
    ends = np.cumsum(lengths)
    return np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)
