"""Molecules as plain arrays, for the rows that time networks and not chemistry.

One feature per atom and one per bond, as ZINC has them, so that every network gets the same graphs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from rdkit import Chem


class SimpleGraph(NamedTuple):
    """A molecule of n atoms and E / 2 bonds.

    Attributes:
        atoms: int64 ``[n, 1]``, atomic numbers.
        edge_index: int64 ``[2, E]``, each bond in both directions.
        bonds: int64 ``[E, 1]``, 1 single, 2 double, 3 triple, 12 aromatic.
    """

    atoms: np.ndarray
    edge_index: np.ndarray
    bonds: np.ndarray


def simple_graph(smiles: str) -> SimpleGraph:
    """Read a SMILES."""
    molecule = Chem.MolFromSmiles(smiles)
    atoms = [atom.GetAtomicNum() for atom in molecule.GetAtoms()]
    edges, bonds = [], []
    for bond in molecule.GetBonds():
        begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        edges += [(begin, end), (end, begin)]
        bonds += [int(bond.GetBondType())] * 2
    return SimpleGraph(
        np.array(atoms, dtype=np.int64)[:, None],
        np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        np.array(bonds, dtype=np.int64)[:, None],
    )
