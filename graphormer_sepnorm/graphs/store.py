"""The graph store: the structure of a whole data set, computed once, kept as flat arrays on disk.

A store is a folder of ``.npy`` files and a ``store.json`` that says what it was made from. It is
written under a temporary name and renamed when complete. On opening, the key and a checksum of
every file are compared; a stale or damaged store is rebuilt, never used.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.molecular_graph import MolecularGraph
from graphormer_sepnorm.graphs.structure import PairTypes

log = logging.getLogger(__name__)

STRUCTURE_VERSION = 3
_BLOCK_PAIRS = 300_000  # pairs of atoms worked on at once: enough to vectorise, small in memory
_ARRAYS = (
    "first_atom",
    "atom_codes",
    "in_degree",
    "out_degree",
    "pair_type",
    "targets",
    "weights",
    "type_distance",
    "type_start",
    "type_hop",
    "type_kind",
    "type_share",
    "bond_kinds",
)


class GraphStore:
    """Flat arrays of many graphs, one after the other; memory-mapped when opened from disk.

    Attributes:
        first_atom: int64 ``[G + 1]``, where the atoms of each graph begin.
        first_pair: int64 ``[G + 1]``, where the ordered pairs of each graph begin.
        atom_codes: integer ``[sum n, F]``.
        in_degree: integer ``[sum n]``.
        out_degree: integer ``[sum n]``.
        pair_type: unsigned ``[sum n^2]``, row-major within a graph.
        targets: float32 ``[G, T]``, nan = missing.
        weights: float32 ``[G]``, of each graph in the training loss.
        type_distance: int32 ``[types]``, in bonds; -1 = unreachable.
        type_start: int64 ``[types + 1]``, where the path entries of each type begin.
        type_hop: int32 ``[entries]``, hop of an entry, from 0.
        type_kind: int32 ``[entries]``, kind of bond of an entry.
        type_share: int32 ``[entries]``, share of the shortest paths, in units of 2^-30.
        bond_kinds: int64 ``[kinds, K]``, the bond features of each kind.
    """

    first_atom: np.ndarray
    atom_codes: np.ndarray
    in_degree: np.ndarray
    out_degree: np.ndarray
    pair_type: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    type_distance: np.ndarray
    type_start: np.ndarray
    type_hop: np.ndarray
    type_kind: np.ndarray
    type_share: np.ndarray
    bond_kinds: np.ndarray

    def __init__(self, arrays: dict[str, np.ndarray], max_path_length: int) -> None:
        for name in _ARRAYS:
            setattr(self, name, arrays[name])
        self.max_path_length = max_path_length
        self.first_pair = np.concatenate([[0], np.cumsum(np.diff(self.first_atom) ** 2)])

    @property
    def num_graphs(self) -> int:
        """Number of graphs."""
        return len(self.first_atom) - 1

    def num_atoms(self, indices: np.ndarray) -> np.ndarray:
        """Atoms of each of the graphs `indices`."""
        indices = np.asarray(indices)
        return self.first_atom[indices + 1] - self.first_atom[indices]

    def atom_codes_of(self, indices: Iterable[int]) -> np.ndarray:
        """Atom codes ``[sum n, F]`` of the graphs `indices`, one after the other."""
        return np.concatenate(
            [self.atom_codes[self.first_atom[i] : self.first_atom[i + 1]] for i in indices]
        )

    def bond_codes_of(self, indices: Iterable[int]) -> np.ndarray:
        """Bond codes ``[kinds, K]`` that occur in the graphs `indices`, each kind once."""
        occurs = np.zeros(len(self.type_distance), dtype=bool)
        for i in indices:
            occurs[self.pair_type[self.first_pair[i] : self.first_pair[i + 1]]] = True
        bonds = np.flatnonzero(occurs & (self.type_distance == 1))
        return self.bond_kinds[np.unique(self.type_kind[self.type_start[bonds]])]

    @classmethod
    def from_graphs(cls, graphs: Iterable[Any], max_path_length: int) -> GraphStore:
        """Compute the structure of `graphs`, in memory.

        Args:
            graphs: `MolecularGraph` objects (without targets), or PyG ``Data`` objects: integer
                ``x [n] or [n, F]``, ``edge_index [2, E]``, optionally integer
                ``edge_attr [E] or [E, K]``, ``y`` and ``weight`` (1 where there is none).
            max_path_length: D, hops of a shortest path that enter the edge encoding.

        Raises:
            DataError: Naming the graph that is not of this form.
        """
        types = PairTypes(max_path_length)
        atoms, in_degree, out_degree, pair_type = [], [], [], []
        targets, weights, sizes = [], [], []
        for block, labels, block_weights in _blocks(graphs):
            structure = types.block_structure(block, len(sizes))
            sizes.extend(graph.num_atoms for graph in block)
            atoms.append(_narrow(np.concatenate([graph.atom_codes for graph in block])))
            in_degree.append(_narrow(structure.in_degree))
            out_degree.append(_narrow(structure.out_degree))
            pair_type.append(_narrow(structure.pair_type))
            targets.append(np.stack(labels))
            weights.extend(block_weights)
        if not sizes:
            raise DataError("the data set holds no graphs")
        arrays = {
            "first_atom": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            "atom_codes": np.concatenate(atoms),
            "in_degree": np.concatenate(in_degree),
            "out_degree": np.concatenate(out_degree),
            "pair_type": np.concatenate(pair_type),
            "targets": np.concatenate(targets),
            "weights": np.array(weights, dtype=np.float32),
            **types.arrays(),
        }
        return cls(arrays, max_path_length)

    @classmethod
    def open_or_build(
        cls,
        directory: Path,
        key: dict[str, str | int],
        graphs: Callable[[], Iterable[Any]],
        max_path_length: int,
    ) -> GraphStore:
        """Open the store in `directory`, building it first if it is not there, stale or damaged.

        Args:
            directory: The store's folder.
            key: What the graphs are made from (source fingerprint, feature version); the
                structure version and `max_path_length` are added.
            graphs: Gives the graphs; called only if the store has to be built.
            max_path_length: D, see `from_graphs`.
        """
        key = {**key, "structure_version": STRUCTURE_VERSION, "max_path_length": max_path_length}
        if _problem(directory, key) is None:
            return cls(_load(directory), max_path_length)
        directory.parent.mkdir(parents=True, exist_ok=True)
        # Processes that need the same store at the same time wait for the first and open its.
        with FileLock(directory.with_name(f".{directory.name}.lock")):
            problem = _problem(directory, key)
            if problem is not None:
                if directory.exists():
                    log.warning("graph store %s %s: it is built anew", directory, problem)
                _save(cls.from_graphs(graphs(), max_path_length), directory, key)
            return cls(_load(directory), max_path_length)


def _blocks(
    graphs: Iterable[Any],
) -> Iterator[tuple[list[MolecularGraph], list[np.ndarray], list[float]]]:
    """Group graphs, their targets ``[T]`` and weights into blocks of bounded size; check each."""
    block: list[MolecularGraph] = []
    labels: list[np.ndarray] = []
    weights: list[float] = []
    pairs = 0
    widths: tuple[int, int, int] | None = None
    for position, data in enumerate(graphs):
        graph, targets, weight = checked_graph(data, f"graph {position}")
        own = (graph.atom_codes.shape[1], graph.bond_codes.shape[1], len(targets))
        widths = widths or own
        if own != widths:
            raise DataError(
                f"graph {position} has {own} (atom features, bond features, targets), the graphs "
                f"before it {widths}: all graphs of a data set must agree"
            )
        if block and pairs + graph.num_atoms**2 > _BLOCK_PAIRS:
            yield block, labels, weights
            block, labels, weights, pairs = [], [], [], 0
        block.append(graph)
        labels.append(targets)
        weights.append(weight)
        pairs += graph.num_atoms**2
    if block:
        yield block, labels, weights


def checked_graph(data: Any, where: str) -> tuple[MolecularGraph, np.ndarray, float]:
    """Bring one graph, its targets and its weight into the form that the rest works on."""
    if isinstance(data, MolecularGraph):
        return data, np.empty(0, dtype=np.float32), 1.0
    atom_codes = _integer_columns(data.x, f"{where}: x (atom features)")
    if not len(atom_codes):
        raise DataError(f"{where} has no atoms: leave it out of the data set")
    edge_index = np.asarray(data.edge_index)
    if edge_index.ndim != 2 or len(edge_index) != 2 or not _holds_integers(edge_index):
        raise DataError(
            f"{where}: edge_index must be integers [2, edges], one column per directed bond; "
            "without bonds, of shape [2, 0]"
        )
    edge_index = edge_index.astype(np.int64)
    if edge_index.size and not (edge_index.min() >= 0 and edge_index.max() < len(atom_codes)):
        raise DataError(f"{where}: edge_index names atoms outside 0..{len(atom_codes) - 1}")
    bonds = getattr(data, "edge_attr", None)
    if bonds is None:
        bond_codes = np.zeros((edge_index.shape[1], 1), dtype=np.int64)
    else:
        bond_codes = _integer_columns(bonds, f"{where}: edge_attr (bond features)")
    if len(bond_codes) != edge_index.shape[1]:
        raise DataError(
            f"{where}: edge_attr has {len(bond_codes)} rows for {edge_index.shape[1]} edges"
        )
    targets = getattr(data, "y", None)
    targets = np.empty(0) if targets is None else np.asarray(targets)
    weight = getattr(data, "weight", None)
    weight = 1.0 if weight is None else float(weight)
    if not 0 <= weight < math.inf:
        raise DataError(f"{where} has the weight {weight}: it must be a number, 0 or more")
    graph = MolecularGraph(atom_codes, edge_index, bond_codes)
    return graph, targets.reshape(-1).astype(np.float32), weight


def _integer_columns(values: Any, what: str) -> np.ndarray:
    """Return integer features as int64 ``[n, columns]``."""
    array = np.asarray(values)
    if not _holds_integers(array):
        raise DataError(f"{what} are {array.dtype}: Graphormer embeds integer codes")
    return array.astype(np.int64).reshape(len(array), -1) if array.size else _no_rows(array)


def _holds_integers(array: np.ndarray) -> bool:
    # An array without entries has no say: torch makes empty ones float.
    return not array.size or np.issubdtype(array.dtype, np.integer) or array.dtype == bool


def _no_rows(array: np.ndarray) -> np.ndarray:
    """Keep the number of columns of an array without rows (a molecule without bonds)."""
    return np.zeros((0, array.shape[1] if array.ndim == 2 else 1), dtype=np.int64)


def _narrow(values: np.ndarray) -> np.ndarray:
    """Store integers in the smallest type that holds them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for dtype in (np.uint8, np.uint16, np.int32):
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return values.astype(dtype)
    return values


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as handle:
        while chunk := handle.read(1 << 22):
            value = zlib.crc32(chunk, value)
    return value


def _problem(directory: Path, key: dict[str, str | int]) -> str | None:
    """Say why the store cannot be used, or return None."""
    try:
        record = json.loads((directory / "store.json").read_text())
    except (OSError, ValueError):
        return "is incomplete"
    if not isinstance(record, dict):
        return "is incomplete"
    if record.get("key") != key:
        return "was made from other data or by another version"
    if set(record.get("checksums", ())) != set(_ARRAYS):
        return "is incomplete"
    for name, checksum in record["checksums"].items():
        try:
            if _checksum(directory / f"{name}.npy") != checksum:
                return f"is damaged ({name}.npy)"
        except OSError:
            return f"is damaged ({name}.npy cannot be read)"
    return None


def _load(directory: Path) -> dict[str, np.ndarray]:
    return {name: np.load(directory / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}


def _save(store: GraphStore, directory: Path, key: dict[str, str | int]) -> None:
    """Write the store beside its place, then rename it there; the caller holds the lock."""
    partial = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
    partial.mkdir()
    try:
        for name in _ARRAYS:
            np.save(partial / f"{name}.npy", getattr(store, name))
        checksums = {name: _checksum(partial / f"{name}.npy") for name in _ARRAYS}
        record = {"key": key, "checksums": checksums}
        (partial / "store.json").write_text(json.dumps(record, indent=1) + "\n")
        if directory.is_dir():
            shutil.rmtree(directory)
        os.replace(partial, directory)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
