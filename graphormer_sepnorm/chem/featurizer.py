"""What a featurizer is: molecules to graphs of integer codes, by versioned tables."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from rdkit import Chem

from graphormer_sepnorm.chem.records import Records, read_records
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph, PackedGraphs

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
        # The codes of each kind of atom or bond, by its record.
        self._known: dict[bytes, list[int]] = {}
        self._columns = max(len(self.atom_tables), len(self.bond_tables))

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
        self, molecules: Sequence[Chem.Mol], graphs: PackedGraphs, in_ring: np.ndarray
    ) -> None:
        """Add to the codes what atoms have of their bonds, and whether they are in a ring."""

    def atom_labels(self, molecule: Chem.Mol) -> list[str]:
        """Return words for the first column of each atom, in the order of the graph's atoms."""
        raise NotImplementedError

    def smiles_of(self, graph: MolecularGraph) -> str:
        """Return a SMILES of a graph without stereochemistry; empty where there is no way back."""
        return ""

    def atom_order(self, molecule: Chem.Mol) -> list[int]:
        """Return which atom of the graph each atom of a molecule is, before it is prepared."""
        return [*range(molecule.GetNumAtoms())]

    def featurize(self, molecule: Chem.Mol) -> MolecularGraph:
        """Return the graph of one molecule; DataError: it has none."""
        return self._pack([self.prepare(molecule)])[0]

    def featurize_many(self, molecules: Sequence[Chem.Mol]) -> tuple[PackedGraphs, list[str]]:
        """Return the graphs of molecules, many times faster than one by one.

        Returns:
            The graphs of those that have one, in their order; and for each molecule the reason why
            it has none, or the empty string.
        """
        prepared, reasons = [], []
        for molecule in molecules:
            try:
                prepared.append(self.prepare(molecule))
                reasons.append("")
            except DataError as error:
                reasons.append(str(error))
        return self._pack(prepared), reasons

    def _pack(self, molecules: Sequence[Chem.Mol]) -> PackedGraphs:
        """Return the graphs of prepared molecules."""
        records = read_records(molecules, self.needs_rings)
        rows = self._rows(molecules, records)
        first_atom, first_bond = (_starts(n) for n in (records.num_atoms, records.num_bonds))
        for index in np.flatnonzero(~records.was_read).tolist():
            self._ask(molecules[index], first_atom[index], first_bond[index], records, rows)
        kinds = np.array(rows, dtype=np.int64).reshape(len(rows), self._columns)
        directed = np.stack([records.ends, records.ends[:, ::-1]], axis=1)
        graphs = PackedGraphs(
            num_atoms=records.num_atoms,
            num_bonds=2 * records.num_bonds,
            atom_codes=kinds[records.atom_kind, : len(self.atom_tables)],
            # Each bond in both directions, one after the other.
            edge_index=np.ascontiguousarray(directed.reshape(-1, 2).T),
            bond_codes=kinds[records.bond_kind, : len(self.bond_tables)].repeat(2, axis=0),
        )
        self.add_surroundings(molecules, graphs, records.in_ring)
        return graphs

    def _rows(self, molecules: Sequence[Chem.Mol], records: Records) -> list[list[int]]:
        """Return the codes of each record."""
        if len(self._known) > _MOST_RECORDS:
            self._known = {}
        known = self._known  # another thread may begin again meanwhile
        atoms = len(records.atom_kind)
        first_atom, first_bond = (_starts(n) for n in (records.num_atoms, records.num_bonds))
        for record, first in zip(records.records, records.first.tolist(), strict=True):
            if record in known:
                continue
            starts, own = (first_atom, first) if first < atoms else (first_bond, first - atoms)
            index = int(np.searchsorted(starts, own, side="right")) - 1
            molecule, own = molecules[index], own - int(starts[index])
            get = molecule.GetAtomWithIdx if first < atoms else molecule.GetBondWithIdx
            known[record] = self._codes(get(own))
        return [known[record] for record in records.records]

    def _ask(
        self, molecule: Chem.Mol, atom: int, bond: int, records: Records, rows: list[list[int]]
    ) -> None:
        """Fill in what the records of a molecule do not say, from its first atom and bond on."""
        for index, one in enumerate(molecule.GetAtoms(), atom):
            records.atom_kind[index] = len(rows)
            records.in_ring[index] = one.IsInRing()
            rows.append(self._codes(one))
        for index, one in enumerate(molecule.GetBonds(), bond):
            records.bond_kind[index] = len(rows)
            records.ends[index] = one.GetBeginAtomIdx(), one.GetEndAtomIdx()
            rows.append(self._codes(one))

    def _codes(self, one: Chem.Atom | Chem.Bond) -> list[int]:
        """Return codes; rows of atoms and of bonds have one length."""
        if isinstance(one, Chem.Atom):
            tables, values = self.atom_tables, self.atom_values(one)
        else:
            tables, values = self.bond_tables, self.bond_values(one)
        codes = [table.code(value) for table, value in zip(tables, values, strict=True)]
        return codes + [0] * (self._columns - len(codes))


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.cumsum(counts) - counts
