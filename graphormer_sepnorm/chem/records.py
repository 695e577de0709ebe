"""The atoms and bonds of many molecules by one call, out of the binary form that RDKit gives them.

A question to RDKit's Python objects costs a third of a microsecond, and there are a dozen to each
atom and bond: together more than it takes to parse the SMILES. The binary form (``Mol.ToBinary``,
what pickling stores) is only divided into records here, by ``kernels/records.c``: equal records
mean equal atoms, so each kind of atom is asked about once.

Layout, by RDKit's Code/GraphMol/MolPickler.cpp: a header with the version of the format; the atoms,
each an element, a byte that announces unusual parts, four bytes that tell which properties follow,
and these; the bonds, each with its two atoms, a byte of flags and what these announce; the
rings. Whatever is not laid out like this is left to be asked about in the ordinary way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rdkit import Chem

from graphormer_sepnorm.kernels.library import integers, pointers, required_library


class _Records(ctypes.Structure):
    """``Records`` of kernels/records.c."""

    _fields_ = (
        *integers("num_molecules", "rings"),
        *pointers("data", "starts", "num_atoms", "num_bonds", "atom_kind", "bond_kind"),
        *pointers("ends", "in_ring", "was_read", "begin", "length", "first"),
    )


@dataclass(frozen=True)
class Records:
    """The records of some molecules, those of all atoms and of all bonds one after the other.

    Attributes:
        num_atoms: int64 ``[molecules]``.
        num_bonds: int64 ``[molecules]``.
        atom_kind: int32 ``[atoms]``, which of the records it is: all properties that are the atom's
            own, so neither degree nor ring.
        bond_kind: int32 ``[bonds]``, the same of its properties without its atoms.
        ends: int64 ``[bonds, 2]``, atoms of a bond, begin and end, numbered in their molecule.
        in_ring: bool ``[atoms]``; False where rings are not asked for.
        was_read: bool ``[molecules]``. False where a molecule has something that is not read here:
            more than 255 atoms, dummy atoms, map numbers, queries, residues; or where RDKit writes
            another version of the format. The above does not hold for it then.
        records: The records that differ; those of bonds are shorter than any of an atom.
        first: int64 ``[records]``, an atom that has it, or the number of atoms + a bond.
    """

    num_atoms: np.ndarray
    num_bonds: np.ndarray
    atom_kind: np.ndarray
    bond_kind: np.ndarray
    ends: np.ndarray
    in_ring: np.ndarray
    was_read: np.ndarray
    records: list[bytes]
    first: np.ndarray


def read_records(molecules: Sequence[Chem.Mol], rings: bool = True) -> Records:
    """Return the records of molecules, with or without their rings."""
    parts = [molecule.ToBinary(0) for molecule in molecules]  # 0: no properties, of any length
    starts = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    data = b"".join(parts)
    num_atoms = np.array([molecule.GetNumAtoms() for molecule in molecules], np.int64)
    num_bonds = np.array([molecule.GetNumBonds() for molecule in molecules], np.int64)
    atoms, bonds = int(num_atoms.sum()), int(num_bonds.sum())
    atom_kind, bond_kind = np.zeros(atoms, np.int32), np.zeros(bonds, np.int32)
    ends, in_ring = np.zeros((bonds, 2), np.int64), np.zeros(atoms, np.bool_)
    was_read = np.zeros(len(molecules), np.bool_)
    begin, length, first = (np.empty(atoms + bonds, np.int64) for _ in range(3))
    given = np.frombuffer(data, np.uint8), starts, num_atoms, num_bonds
    found = atom_kind, bond_kind, ends, in_ring, was_read, begin, length, first
    arrays = [array.ctypes.data for array in (*given, *found)]
    read = required_library().read_records
    read.restype = ctypes.c_int64
    kinds = read(ctypes.byref(_Records(len(molecules), rings, *arrays)))
    if kinds < 0:
        raise MemoryError
    places = zip(begin[:kinds].tolist(), length[:kinds].tolist(), strict=True)
    records = [data[at : at + count] for at, count in places]
    return Records(num_atoms, num_bonds, *found[:5], records, first[:kinds])
