"""What a featuriser is: molecules to integer codes, by versioned tables."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from rdkit import Chem

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph, PackedGraphs

OTHER = "other"


class CodeTable:
    """One column of codes: the values it knows, in the order of their codes.

    Attributes:
        name: What the column describes.
        values: The known values; a value's position is its code. The last one may be `OTHER`.
    """

    def __init__(self, name: str, values: tuple[Hashable, ...]) -> None:
        self.name = name
        self.values = values
        self._codes = {value: code for code, value in enumerate(values)}

    def __len__(self) -> int:
        return len(self.values)

    def code(self, value: Hashable) -> int:
        """Return the code of `value`; an unlisted value has the code of the last one."""
        return self._codes.get(value, len(self.values) - 1)


@dataclass(frozen=True)
class Featuriser:
    """A named way from molecules to graphs of codes.

    Atoms of a graph stand in the order of the molecule that was prepared, each bond in both
    directions one after the other, bonds in the molecule's order.

    Attributes:
        name: Name and version of the vocabulary.
        atom_tables: What the columns of ``atom_codes`` mean.
        bond_tables: What the columns of ``bond_codes`` mean.
        pack: The function itself, from prepared molecules, at least one.
        prepare: What is done to a molecule before; a `DataError` says that it has no graph.
        atom_labels: Words for the first column of each atom, in the order of the graph's atoms, for
            messages.
        remarks: What is lost of a molecule on the way, in one line; empty where nothing is.
        smiles_of: The way back, as far as the codes allow: a SMILES of a graph, without
            stereochemistry, or the empty string. None where there is no way back.
        atom_order: Which atom of the graph each atom of a molecule is, before it is prepared. None:
            their order is the same.
        label_of: The word for a value of the first table of atoms, as `atom_labels` has it.
    """

    name: str
    atom_tables: tuple[CodeTable, ...]
    bond_tables: tuple[CodeTable, ...]
    pack: Callable[[Sequence[Chem.Mol]], PackedGraphs]
    atom_labels: Callable[[Chem.Mol], list[str]]
    prepare: Callable[[Chem.Mol], Chem.Mol] = lambda molecule: molecule
    remarks: Callable[[Chem.Mol], str] = lambda molecule: ""
    smiles_of: Callable[[MolecularGraph], str] | None = None
    atom_order: Callable[[Chem.Mol], list[int]] | None = None
    label_of: Callable[[Hashable], str] = str

    def featurise(self, molecule: Chem.Mol) -> MolecularGraph:
        """Return the graph of one molecule.

        Raises:
            DataError: It has none.
        """
        return self.pack([self.prepare(molecule)])[0]

    def featurise_many(
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
        return self.pack(prepared) if prepared else None, reasons
