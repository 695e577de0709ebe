"""Many molecules to graphs of codes at once: a look-up per atom, all else on flat arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from rdkit import Chem

from graphormer_sepnorm.chem.records import Records, read_records
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph, PackedGraphs, no_numbers


class CodesByRecord:
    """Remembers the codes, so many, that `make` gives each kind of atom or bond, by its record."""

    _MOST_KINDS = 10_000

    def __init__(
        self,
        part: Callable[[Chem.Mol, int], Any],
        make: Callable[[Any], list[int]],
        columns: int,
    ) -> None:
        self._part = part
        self._make = make
        self._columns = columns
        self._known: dict[bytes, bytes] = {}

    def __call__(self, molecules: Sequence[Chem.Mol], records: Sequence[list[bytes]]) -> np.ndarray:
        """Return the codes of the atoms or bonds of molecules, int64 ``[all of them, columns]``.

        By their records, a list per molecule; about kinds that are new the molecules are asked.
        """
        known = self._known
        try:
            rows = [known[record] for of_molecule in records for record in of_molecule]
        except KeyError:
            known = self._learn(molecules, records)
            rows = [known[record] for of_molecule in records for record in of_molecule]
        return np.frombuffer(bytearray().join(rows), dtype=np.int64).reshape(-1, self._columns)

    def _learn(
        self, molecules: Sequence[Chem.Mol], records: Sequence[list[bytes]]
    ) -> dict[bytes, bytes]:
        # A new dictionary: another thread may be reading the old one.
        known = dict(self._known) if len(self._known) < self._MOST_KINDS else {}
        for molecule, of_molecule in zip(molecules, records, strict=True):
            for number, record in enumerate(of_molecule):
                if record not in known:
                    codes = self._make(self._part(molecule, number))
                    known[record] = np.array(codes, dtype=np.int64).tobytes()
        self._known = known
        return known


class Packer:
    """Makes the graphs of molecules: of most by their records, of an odd one atom by atom.

    Args:
        atom_row: The codes of an atom.
        bond_row: The codes of a bond.
        columns: How many codes an atom has, and a bond.
        own_row: The codes of an atom as if it had no bonds; None: they do not depend on them.
    """

    def __init__(
        self,
        atom_row: Callable[[Chem.Atom], list[int]],
        bond_row: Callable[[Chem.Bond], list[int]],
        columns: tuple[int, int],
        own_row: Callable[[Chem.Atom], list[int]] | None = None,
    ) -> None:
        self._atom_row, self._bond_row = atom_row, bond_row
        self._columns = columns
        self._atoms = CodesByRecord(Chem.Mol.GetAtomWithIdx, own_row or atom_row, columns[0])
        self._bonds = CodesByRecord(Chem.Mol.GetBondWithIdx, bond_row, columns[1])

    def __call__(self, molecules: Sequence[Chem.Mol]) -> PackedGraphs:
        """Return the graphs of molecules, at least one, in their order."""
        parts = []
        pairs = ((molecule, self.read(molecule)) for molecule in molecules)
        for has_records, run in itertools.groupby(pairs, lambda pair: pair[1] is not None):
            some, records = zip(*run, strict=True)
            parts.append(
                self.by_records(list(some), list(records))
                if has_records
                else PackedGraphs.of([self.by_objects(molecule) for molecule in some])
            )
        return parts[0] if len(parts) == 1 else PackedGraphs.concatenate(parts)

    def read(self, molecule: Chem.Mol) -> Records | None:
        """Return the records of a molecule; None: it has to be asked about atom by atom."""
        return read_records(molecule)

    def by_records(self, molecules: list[Chem.Mol], records: list[Records]) -> PackedGraphs:
        """Return the graphs that records tell: atoms as if they had no bonds, and the bonds."""
        ends = np.frombuffer(b"".join([one.ends for one in records]), dtype=np.uint8)
        bond_codes = self._bonds(molecules, [one.bonds for one in records])
        return PackedGraphs(
            num_atoms=np.array([len(one.atoms) for one in records]),
            num_bonds=np.array([2 * len(one.bonds) for one in records]),
            atom_codes=self._atoms(molecules, [one.atoms for one in records]),
            edge_index=_both_directions(ends.reshape(-1, 2)),
            bond_codes=bond_codes.repeat(2, axis=0),
            targets=np.empty((len(records), 0), dtype=np.float32),
            weights=np.ones(len(records), dtype=np.float32),
            extra=no_numbers(len(records)),
            bounds=no_numbers(len(records)),
        )

    def by_objects(self, molecule: Chem.Mol) -> MolecularGraph:
        """Return the graph of any molecule by asking RDKit's objects about everything."""
        bonds = list(molecule.GetBonds())
        ends = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in bonds]
        bond_codes = np.array([self._bond_row(bond) for bond in bonds], dtype=np.int64)
        return MolecularGraph(
            np.array([self._atom_row(atom) for atom in molecule.GetAtoms()], dtype=np.int64),
            edge_index=_both_directions(np.array(ends, dtype=np.int64).reshape(-1, 2)),
            bond_codes=bond_codes.reshape(-1, self._columns[1]).repeat(2, axis=0),
        )


def _both_directions(ends: np.ndarray) -> np.ndarray:
    """Return bonds ``[bonds, 2]`` in both directions, one after the other, int64 ``[2, E]``."""
    edge_index = np.empty((2, 2 * len(ends)), dtype=np.int64)
    edge_index[:, 0::2] = ends.T
    edge_index[:, 1::2] = ends.T[::-1]
    return edge_index
