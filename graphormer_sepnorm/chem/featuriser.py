"""What a featuriser is: a molecule to integer codes, by versioned tables."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from rdkit import Chem

from graphormer_sepnorm.graphs.molecular_graph import MolecularGraph

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
    """A named way from a molecule to a graph of codes.

    Attributes:
        name: Name and version of the vocabulary.
        atom_tables: What the columns of ``atom_codes`` mean.
        bond_tables: What the columns of ``bond_codes`` mean.
        featurise: The function itself: atoms in the molecule's order, each bond in both directions
            one after the other, bonds in the molecule's order.
        atom_labels: Words for the first column of each atom, in the order of the graph's atoms, for
            messages.
        remarks: What is lost of a molecule on the way, in one line; empty where nothing is.
        smiles_of: The way back, as far as the codes allow: a SMILES of a graph, without
            stereochemistry, or the empty string. None where there is no way back.
    """

    name: str
    atom_tables: tuple[CodeTable, ...]
    bond_tables: tuple[CodeTable, ...]
    featurise: Callable[[Chem.Mol], MolecularGraph]
    atom_labels: Callable[[Chem.Mol], list[str]]
    remarks: Callable[[Chem.Mol], str] = lambda molecule: ""
    smiles_of: Callable[[MolecularGraph], str] | None = None
