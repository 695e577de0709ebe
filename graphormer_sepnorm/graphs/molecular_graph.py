"""A molecule as three integer arrays: what a featuriser gives and what a data set is made of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphormer_sepnorm.errors import DataError


@dataclass(frozen=True, eq=False)
class MolecularGraph:
    """Atoms and bonds as codes of some vocabulary; each bond stands in both directions.

    Attributes:
        atom_codes: ``[n, A]`` int64, one row per atom, one column per atom feature.
        edge_index: ``[2, E]`` int64, source and target atom of each directed bond.
        bond_codes: ``[E, K]`` int64, one row per directed bond, one column per bond feature.

    Raises:
        DataError: The shapes do not fit together or a bond names an atom that is not there.
    """

    atom_codes: np.ndarray
    edge_index: np.ndarray
    bond_codes: np.ndarray

    def __post_init__(self) -> None:
        shapes = (self.atom_codes.shape, self.edge_index.shape, self.bond_codes.shape)
        well_formed = (
            self.atom_codes.ndim == 2
            and self.bond_codes.ndim == 2
            and self.edge_index.shape == (2, len(self.bond_codes))
        )
        if not well_formed:
            raise DataError(
                f"a molecular graph needs atom_codes [n, A], edge_index [2, E] and bond_codes "
                f"[E, K], but got {shapes[0]}, {shapes[1]} and {shapes[2]}"
            )
        if self.edge_index.size and not (
            self.edge_index.min() >= 0 and self.edge_index.max() < self.num_atoms
        ):
            raise DataError(f"a bond names an atom outside 0..{self.num_atoms - 1}")

    @property
    def num_atoms(self) -> int:
        """Number of atoms."""
        return len(self.atom_codes)

    @property
    def num_bonds(self) -> int:
        """Number of bonds, each counted once."""
        return len(self.bond_codes) // 2
