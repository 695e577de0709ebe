"""What a featurizer is: molecules to graphs of integer codes, by versioned tables."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from rdkit import Chem

from graphormer_sepnorm.chem.records import read_records
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph, PackedGraphs, no_numbers

OTHER = "other"
_MOST_RECORDS = 10_000


class CodeTable:
    """One column of codes: the values it knows, in the order of their codes.

    Attributes:
        name: What the column describes.
        values: The known values; a value's position is its code. The last one may be `OTHER`.
    """

    def __init__(self, name: str, values: Sequence[Hashable]) -> None:
        self.name = name
        self.values = tuple(values)
        self._codes = {value: code for code, value in enumerate(values)}

    def __len__(self) -> int:
        return len(self.values)

    def code(self, value: Hashable) -> int:
        """Return the code of `value`; an unlisted value has the code of the last one."""
        return self._codes.get(value, len(self.values) - 1)


class Featurizer:
    """A named way from molecules to graphs of codes.

    Atoms of a graph stand in the order of the molecule that was prepared, each bond in both
    directions one after the other, bonds in the molecule's order.

    Attributes:
        name: Name and version of the vocabulary.
        atom_tables: What the columns of ``atom_codes`` mean.
        bond_tables: What the columns of ``bond_codes`` mean.
        needs_rings: Whether codes depend on rings, which `prepare` leaves in the molecule then.
    """

    name: str
    atom_tables: tuple[CodeTable, ...]
    bond_tables: tuple[CodeTable, ...]
    needs_rings = True

    def __init__(self) -> None:
        # The codes of each kind of atom or bond, as bytes, by its record.
        self._known: dict[bytes, bytes] = {}

    def prepare(self, molecule: Chem.Mol) -> Chem.Mol:
        """Return the molecule in the form that codes are made of; DataError: it has no graph."""
        return molecule

    def atom_values(self, atom: Chem.Atom) -> Sequence[Hashable]:
        """Return what `atom_tables` have codes of, as far as it is the atom's own."""
        raise NotImplementedError

    def bond_values(self, bond: Chem.Bond) -> Sequence[Hashable]:
        """Return what `bond_tables` have codes of."""
        raise NotImplementedError

    def add_surroundings(
        self, molecules: Sequence[Chem.Mol], graphs: PackedGraphs, in_rings: Sequence[np.ndarray]
    ) -> None:
        """Add to the codes what atoms have of their bonds, and of the rings that they are in."""

    def atom_labels(self, molecule: Chem.Mol) -> list[str]:
        """Return words for the first column of each atom, in the order of the graph's atoms."""
        raise NotImplementedError

    def label_of(self, value: Hashable) -> str:
        """Return the word of `atom_labels` for a value of the first table of atoms."""
        return str(value)

    def remarks(self, molecule: Chem.Mol) -> str:
        """Return what is lost of a molecule on the way, in one line; empty where nothing is."""
        return ""

    def smiles_of(self, graph: MolecularGraph) -> str:
        """Return a SMILES of a graph without stereochemistry; empty where there is no way back."""
        return ""

    def atom_order(self, molecule: Chem.Mol) -> list[int]:
        """Return which atom of the graph each atom of a molecule is, before it is prepared."""
        return [*range(molecule.GetNumAtoms())]

    def featurize(self, molecule: Chem.Mol) -> MolecularGraph:
        """Return the graph of one molecule; DataError: it has none."""
        return self._pack([self.prepare(molecule)])[0]

    def featurize_many(
        self, molecules: Sequence[Chem.Mol]
    ) -> tuple[PackedGraphs | None, list[str]]:
        """Return the graphs of molecules, many times faster than one by one.

        Returns:
            The graphs of those that have one, in their order, or None; and for each molecule the
            reason why it has none, or the empty string.
        """
        prepared, reasons = [], []
        for molecule in molecules:
            try:
                prepared.append(self.prepare(molecule))
                reasons.append("")
            except DataError as error:
                reasons.append(str(error))
        return self._pack(prepared) if prepared else None, reasons

    def _pack(self, molecules: Sequence[Chem.Mol]) -> PackedGraphs:
        """Return the graphs of prepared molecules, at least one."""
        atoms, bonds, ends, in_rings = zip(*map(self._codes, molecules), strict=True)
        both = np.concatenate(ends).astype(np.int64)
        directed = np.stack([both, both[:, ::-1]], axis=1)
        graphs = PackedGraphs(
            num_atoms=np.array([*map(len, atoms)]),
            num_bonds=2 * np.array([*map(len, bonds)]),
            atom_codes=_joined(atoms, len(self.atom_tables)),
            # Each bond in both directions, one after the other.
            edge_index=np.ascontiguousarray(directed.reshape(-1, 2).T),
            bond_codes=_joined(bonds, len(self.bond_tables)).repeat(2, axis=0),
            targets=no_numbers(len(molecules)),
            weights=np.ones(len(molecules), dtype=np.float32),
            extra=no_numbers(len(molecules)),
            bounds=no_numbers(len(molecules)),
        )
        self.add_surroundings(molecules, graphs, in_rings)
        return graphs

    def _codes(self, molecule: Chem.Mol) -> tuple[list[bytes], list[bytes], np.ndarray, np.ndarray]:
        """Return the codes of atoms and bonds, the atoms of bonds ``[bonds, 2]`` and of rings."""
        records, known = read_records(molecule, self.needs_rings), self._known
        if records is None:
            pairs = [(bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()) for bond in molecule.GetBonds()]
            atoms = [self._atom(atom) for atom in molecule.GetAtoms()]
            bonds = [self._bond(bond) for bond in molecule.GetBonds()]
            ring_atoms = [atom.GetIdx() for atom in molecule.GetAtoms() if atom.IsInRing()]
            ends = np.array(pairs, dtype=np.int64).reshape(-1, 2)
            return atoms, bonds, ends, np.array(ring_atoms, dtype=np.int64)
        ends = np.frombuffer(records.ends, np.uint8).reshape(-1, 2)
        try:
            atoms, bonds = ([known[key] for key in part] for part in records[:2])
        except KeyError:
            if len(known) > _MOST_RECORDS:
                known = self._known = {}
            known |= zip(records.atoms, map(self._atom, molecule.GetAtoms()), strict=True)
            known |= zip(records.bonds, map(self._bond, molecule.GetBonds()), strict=True)
            atoms, bonds = ([known[key] for key in part] for part in records[:2])
        return atoms, bonds, ends, np.frombuffer(records.in_rings, np.uint8)

    def _atom(self, atom: Chem.Atom) -> bytes:
        return _row(self.atom_tables, self.atom_values(atom))

    def _bond(self, bond: Chem.Bond) -> bytes:
        return _row(self.bond_tables, self.bond_values(bond))


def _row(tables: Sequence[CodeTable], values: Sequence[Hashable]) -> bytes:
    codes = [table.code(value) for table, value in zip(tables, values, strict=True)]
    return np.array(codes, dtype=np.int64).tobytes()


def _joined(rows: Sequence[Any], columns: int) -> np.ndarray:
    """Return the rows of all molecules, int64 ``[rows, columns]``."""
    joined = bytearray().join([row for of_molecule in rows for row in of_molecule])
    return np.frombuffer(joined, dtype=np.int64).reshape(-1, columns)
