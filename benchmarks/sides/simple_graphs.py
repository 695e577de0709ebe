"""Molecules as plain arrays, for the rows that time networks and not chemistry.

One feature per atom and one per bond, as ZINC has them, so that every network gets the same graphs.
"""

from __future__ import annotations

import numpy as np
from rdkit import Chem


def simple_graph(smiles: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Read a SMILES of n atoms and E / 2 bonds.

    Returns:
        Atomic numbers, int64 ``[n, 1]``; edges, each bond in both directions, ``[2, E]``; bonds,
        ``[E, 1]``: 1 single, 2 double, 3 triple, 12 aromatic.
    """
    molecule = Chem.MolFromSmiles(smiles)
    atoms = [atom.GetAtomicNum() for atom in molecule.GetAtoms()]
    edges, bonds = [], []
    for bond in molecule.GetBonds():
        begin, end = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        edges += [(begin, end), (end, begin)]
        bonds += [int(bond.GetBondType())] * 2
    return (
        np.array(atoms, dtype=np.int64)[:, None],
        np.array(edges, dtype=np.int64).reshape(-1, 2).T,
        np.array(bonds, dtype=np.int64)[:, None],
    )
