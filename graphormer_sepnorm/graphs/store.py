"""The graph store: the structure of a whole data set, computed once, kept as flat arrays on disk.

A store is a folder of ``.npy`` files and a ``store.json`` that says what it was made from. It is
written under a temporary name and renamed when complete. On opening, the key and a checksum of
every file are compared; a stale or damaged store is rebuilt, never used.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import cannot_be_written, read_json, sha256_of
from graphormer_sepnorm.graphs.packed_graphs import packed_blocks
from graphormer_sepnorm.graphs.structure import UNREACHABLE_DISTANCE, PairTypes
from graphormer_sepnorm.graphs.task import Task

log = logging.getLogger(__name__)

STRUCTURE_VERSION = 6


@dataclass(eq=False, repr=False)
class GraphStore:
    """Flat arrays of many graphs, one after the other; memory-mapped when opened from disk.

    Attributes:
        first_atom: int64 ``[G + 1]``, where the atoms of each graph begin.
        atom_codes: integer ``[sum n, F]``.
        in_degree: integer ``[sum n]``.
        out_degree: integer ``[sum n]``.
        ring_sizes: integer ``[sum n, 2]``, smallest and largest ring of its bonds, see
            `PairTypes.block_structure`; 0 = in none.
        pair_type: integer ``[sum n^2]``, row-major within a graph.
        targets: float32 ``[G, T]``, nan = missing.
        weights: float32 ``[G]``, of each graph in the training loss.
        extra: float32 ``[G, D]``, further inputs of each graph, nan = missing.
        bounds: float32 ``[G, 2 T]``, what is known of missing targets, see `PackedGraphs`.
        type_distance: int32 ``[types]``, in bonds; -1 = unreachable.
        type_ring: int32 ``[types]``, atoms of the smallest ring that both atoms lie in; 0 = none.
        type_start: int64 ``[types + 1]``, where the path entries of each type begin.
        type_hop: int32 ``[entries]``, hop of an entry, from 0.
        type_kind: int32 ``[entries]``, kind of bond of an entry.
        type_share: int32 ``[entries]``, share of the shortest paths, in units of 2^-30.
        bond_kinds: int64 ``[kinds, K]``, the bond features of each kind.
        max_path_length: D, hops of a shortest path that are kept.
    """

    first_atom: np.ndarray
    atom_codes: np.ndarray
    in_degree: np.ndarray
    out_degree: np.ndarray
    ring_sizes: np.ndarray
    pair_type: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    extra: np.ndarray
    bounds: np.ndarray
    type_distance: np.ndarray
    type_ring: np.ndarray
    type_start: np.ndarray
    type_hop: np.ndarray
    type_kind: np.ndarray
    type_share: np.ndarray
    bond_kinds: np.ndarray
    max_path_length: int

    @cached_property
    def first_pair(self) -> np.ndarray:
        """Where the ordered pairs of each graph begin, int64 ``[G + 1]``."""
        return np.concatenate([[0], np.cumsum(np.diff(self.first_atom) ** 2)])

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
        bonds = np.flatnonzero(self._pair_types_of(indices) & (self.type_distance == 1))
        return self.bond_kinds[np.unique(self.type_kind[self.type_start[bonds]])]

    def are_connected(self, indices: Iterable[int]) -> bool:
        """Whether each of the graphs `indices` is connected."""
        unreachable = self.type_distance == UNREACHABLE_DISTANCE
        return not bool((self._pair_types_of(indices) & unreachable).any())

    def _pair_types_of(self, indices: Iterable[int]) -> np.ndarray:
        """Which pair types occur in the graphs `indices`, bool ``[types]``."""
        occurs = np.zeros(len(self.type_distance), dtype=bool)
        for i in indices:
            occurs[self.pair_type[self.first_pair[i] : self.first_pair[i + 1]]] = True
        return occurs

    def learned(self, task: Task) -> GraphStore:
        """Return the same graphs with targets and bounds in units as they are learned."""
        sides = np.split(self.bounds, 2, axis=1) if self.bounds.shape[1] else []
        bounds = np.hstack([self.bounds[:, :0], *map(task.as_learned, sides)])
        targets = task.as_learned(self.targets).astype(np.float32)
        return replace(self, targets=targets, bounds=bounds.astype(np.float32))

    @classmethod
    def from_graphs(cls, graphs: Iterable[Any], max_path_length: int) -> GraphStore:
        """Compute the structure of `graphs`, in memory.

        These are `MolecularGraph` objects (without targets), or PyG ``Data``: integer ``x [n] or
        [n, F]``, ``edge_index [2, E]``, optionally integer ``edge_attr [E] or [E, K]``, ``y`` and
        ``weight`` (1 where there is none); or `PackedGraphs` of many. Of a shortest path
        `max_path_length` hops enter the edge encoding.

        Raises:
            DataError: Naming the graph that is not of this form.
        """
        types = PairTypes(max_path_length)
        parts: defaultdict[str, list[np.ndarray]] = defaultdict(list)
        sizes = [np.zeros(1, np.int64)]
        position = 0
        for block in packed_blocks(graphs):
            structure = types.block_structure(block, position)
            position += len(block)
            sizes.append(block.num_atoms)
            for name, values in {"atom_codes": block.atom_codes, **structure}.items():
                parts[name].append(_narrow(values))
            for name in ("targets", "weights", "extra", "bounds"):
                parts[name].append(getattr(block, name))
        if not position:
            raise DataError("the data set holds no graphs")
        return cls(
            first_atom=np.cumsum(np.concatenate(sizes)),
            # The parts of an array go before those of the next are joined.
            **{name: np.concatenate(parts.pop(name)) for name in [*parts]},
            **types.arrays(),
            max_path_length=max_path_length,
        )

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
            key: What the graphs are made from; the structure version and `max_path_length` are
                added.
            graphs: Gives the graphs; called only if the store has to be built.
            max_path_length: See `from_graphs`.

        Raises:
            DataError: It cannot be written.
        """
        key = {**key, "structure_version": STRUCTURE_VERSION, "max_path_length": max_path_length}
        if _problem(directory, key) is None:
            return cls(**_load(directory), max_path_length=max_path_length)
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
            # Processes that need the same store at the same time wait for the first and open its.
            with FileLock(directory.with_name(f".{directory.name}.lock")):
                problem = _problem(directory, key)
                if problem is not None:
                    if directory.exists():
                        log.warning("graph store %s %s: it is built again", directory, problem)
                    _write(cls.from_graphs(graphs(), max_path_length), directory, key)
        except OSError as error:
            what = f"the graph store {directory}"
            raise DataError(cannot_be_written(what, error, "give another --data.root")) from error
        return cls(**_load(directory), max_path_length=max_path_length)


_ARRAYS = tuple(field.name for field in fields(GraphStore) if field.name != "max_path_length")


def _narrow(values: np.ndarray) -> np.ndarray:
    """Store integers in the smallest type that holds them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    for dtype in (np.uint8, np.uint16, np.int32):
        limits = np.iinfo(dtype)
        if limits.min <= low and high <= limits.max:
            return values.astype(dtype)
    return values


def _problem(directory: Path, key: dict[str, str | int]) -> str | None:
    """Say why the store cannot be used, or return None."""
    record = read_json(directory / "store.json") or {}
    if record.get("key") != key:
        return "is incomplete, or was made from other data or by another version"
    for name in _ARRAYS:
        with contextlib.suppress(OSError, KeyError):  # another process may be replacing it
            if sha256_of(directory / f"{name}.npy") == record["checksums"][name]:
                continue
        return f"is damaged ({name}.npy)"
    return None


def _load(directory: Path) -> dict[str, np.ndarray]:
    return {name: np.load(directory / f"{name}.npy", mmap_mode="r") for name in _ARRAYS}


def _write(store: GraphStore, directory: Path, key: dict[str, str | int]) -> None:
    """Write a store beside its place, then rename it there; the caller holds the lock."""
    temporary = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)  # of a process that was killed
    temporary.mkdir()
    try:
        for name in _ARRAYS:
            np.save(temporary / f"{name}.npy", getattr(store, name))
        checksums = {name: sha256_of(temporary / f"{name}.npy") for name in _ARRAYS}
        record = {"key": key, "checksums": checksums}
        (temporary / "store.json").write_text(json.dumps(record, indent=1) + "\n")
        if directory.is_dir():
            shutil.rmtree(directory)
        os.replace(temporary, directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
