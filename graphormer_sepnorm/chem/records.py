"""All atoms and bonds of a molecule by one call, out of the binary form that RDKit gives it.

A question to RDKit's Python objects costs a third of a microsecond, and there are a dozen to each
atom and bond: together more than it takes to parse the SMILES. The binary form (``Mol.ToBinary``,
what pickling stores) is only divided into records here: equal records mean equal atoms, so each
kind of atom is asked about once. SMILES become batches 1.5 to 2.3 times as fast.

Layout, by RDKit's Code/GraphMol/MolPickler.cpp: a header with the version of the format; the atoms,
each an element, a byte that announces unusual parts, four bytes that tell which properties follow,
and these; the bonds, each with its two atoms, a byte of flags and what these announce; the
rings. Whatever is not laid out like this is left to be asked about in the ordinary way.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from rdkit import Chem

# Byte order mark, nothing, and the version of the format: 16.2 of RDKit 2025.09, 16.4 of 2026.09.
_HEADERS = {
    bytes.fromhex(f"efbeadde 00000000 10000000 0{minor}000000 00000000") for minor in (2, 4)
}
_COUNTS = 20
_ATOMS = _COUNTS + 10
_BEGIN_ATOMS, _BEGIN_BONDS, _BEGIN_RINGS = b"\x80\x01", 0x0B, 0x42
# Flags of an atom that announce nothing: aromatic, and no implicit hydrogens.
_PLAIN_ATOM = 0x40 | 0x20
# Bytes of the properties by the bit that announces them: charge, chirality, hybridization,
# explicit hydrogens, explicit and implicit valence, radical electrons, isotope.
_PROPERTY_BYTES = {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 4}
# Flags of a bond: stereo (its descriptor and a list of atoms), direction and type, a byte each, and
# those that announce nothing: aromatic, conjugated.
_STEREO, _DIRECTION, _TYPE, _PLAIN_BOND = 0x02, 0x04, 0x08, 0x40 | 0x20
# Bytes of a bond without the atoms that a stereo descriptor names, by its flags.
_BOND_BYTES = {
    flags: 3 + 2 * bool(flags & _STEREO) + bool(flags & _DIRECTION) + bool(flags & _TYPE)
    for flags in range(128)
    if not flags & ~(_STEREO | _DIRECTION | _TYPE | _PLAIN_BOND)
}


class Records(NamedTuple):
    """The records of a molecule.

    Attributes:
        atoms: One per atom: all properties that are its own, so neither degree nor ring.
        bonds: One per bond: its properties without its atoms; shorter than that of any atom.
        ends: Two atoms per bond, begin and end.
        in_rings: The atoms in rings, some more than once; none where they are not asked for.
    """

    atoms: list[bytes]
    bonds: list[bytes]
    ends: bytes
    in_rings: bytes


def read_records(molecule: Chem.Mol, rings: bool = True) -> Records | None:
    """Return the records of a molecule, with or without its rings.

    None where it has something that is not read here: more than 255 atoms, dummy atoms, map
    numbers, queries, residues; or where RDKit writes another version of the format.
    """
    data = molecule.ToBinary(0)  # 0: no properties, which are of any length
    num_atoms = molecule.GetNumAtoms()
    known = data[:_COUNTS] in _HEADERS and data[_ATOMS - 2 : _ATOMS] == _BEGIN_ATOMS
    if num_atoms > 255 or not known:
        return None
    atoms, bonds, ends, begin = [], [], bytearray(), _ATOMS
    try:
        for _ in range(num_atoms):
            end = begin + _atom_bytes(data[begin + 1 : begin + 6])
            atoms.append(data[begin:end])
            begin = end
        if data[begin] != _BEGIN_BONDS:
            return None
        begin += 1
        for _ in range(molecule.GetNumBonds()):
            flags = data[begin + 2]
            end = begin + _BOND_BYTES[flags]
            ends += data[begin : begin + 2]
            bonds.append(data[begin + 2 : end])
            begin = end + data[end - 1] if flags & _STEREO else end
    except KeyError:
        return None
    in_rings, begin, end = b"", begin + 5, begin + 5
    if not rings:
        return Records(atoms, bonds, bytes(ends), in_rings)
    if data[begin - 5] != _BEGIN_RINGS:
        return None
    for _ in range(int.from_bytes(data[begin - 4 : begin], "little")):
        begin, end = end + 1, end + 1 + data[end]
        in_rings += data[begin:end]
    return Records(atoms, bonds, bytes(ends), in_rings)


@lru_cache(maxsize=4096)
def _atom_bytes(announced: bytes) -> int:
    """Return the length of an atom's record by its bytes after the element.

    Raises:
        KeyError: It has parts that are not read here.
    """
    flags, properties = announced[0], int.from_bytes(announced[1:], "little")
    if flags & ~_PLAIN_ATOM:
        raise KeyError(flags)
    bits = (bit for bit in range(32) if properties >> bit & 1)
    return 6 + sum(_PROPERTY_BYTES[bit] for bit in bits)
