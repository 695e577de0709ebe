"""All atoms and bonds of a molecule by one call, out of the binary form that RDKit gives it.

To ask RDKit's Python objects costs a third of a microsecond a question, and there are a dozen
questions to each atom and bond: together more than it takes to parse the SMILES. The binary form
(``Mol.ToBinary``, what pickling stores) comes in one call. Only its division into records is read
here: equal records mean equal atoms, so each kind of atom is asked about once and remembered.

Layout, by RDKit's Code/GraphMol/MolPickler.cpp: a header with the version of the format; the atoms,
each an element, a byte that announces unusual parts, four bytes that say which properties follow,
and these; the bonds, each with its two atoms, a byte of flags and what these announce; the rings.
Whatever is not laid out like this is left to be asked about in the ordinary way.
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
# Bytes of the properties by the bit that says they follow: charge, chirality, hybridisation,
# explicit hydrogens, explicit and implicit valence, radical electrons, isotope.
_PROPERTY_BYTES = {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 4}
# Flags of a bond: stereo (its descriptor and a list of atoms), direction and type, a byte each, and
# those that announce nothing: aromatic, conjugated.
_STEREO, _DIRECTION, _TYPE, _PLAIN_BOND = 0x02, 0x04, 0x08, 0x40 | 0x20


class Records(NamedTuple):
    """The records of a molecule.

    Attributes:
        atoms: One per atom: all properties that are its own, so neither degree nor ring.
        bonds: One per bond: its properties without its atoms.
        ends: Two atom numbers per bond, begin and end.
        ring_atoms: The atoms in rings, some more than once; None where RDKit has not looked for
            rings.
    """

    atoms: list[bytes]
    bonds: list[bytes]
    ends: bytes
    ring_atoms: bytes | None


def read_records(molecule: Chem.Mol) -> Records | None:
    """Return the records of a molecule.

    None where it has something that is not read here: more than 255 atoms, dummy atoms, map
    numbers, queries, residues; or where RDKit writes another version of the format.
    """
    # 0: no properties, which are of any length.
    data = molecule.ToBinary(0)
    num_atoms, num_bonds = molecule.GetNumAtoms(), molecule.GetNumBonds()
    if num_atoms > 255 or data[:_COUNTS] not in _HEADERS:
        return None
    if data[_ATOMS - 2 : _ATOMS] != _BEGIN_ATOMS:
        return None
    try:
        return _divide(data, num_atoms, num_bonds)
    except KeyError:
        return None


def _divide(data: bytes, num_atoms: int, num_bonds: int) -> Records:
    """Divide the binary form.

    Raises:
        KeyError: There is something that is not read here.
    """
    atoms, bonds = [], []
    place = _ATOMS
    for _ in range(num_atoms):
        end = place + _atom_bytes(data[place + 1 : place + 6])
        atoms.append(data[place:end])
        place = end
    if data[place] != _BEGIN_BONDS:
        raise KeyError(data[place])
    place += 1
    ends = bytearray()
    for _ in range(num_bonds):
        flags = data[place + 2]
        end = place + _BOND_BYTES[flags]
        ends += data[place : place + 2]
        bonds.append(data[place + 2 : end])
        place = end + data[end - 1] if flags & _STEREO else end
    if data[place] != _BEGIN_RINGS:
        return Records(atoms, bonds, bytes(ends), None)
    num_rings = int.from_bytes(data[place + 1 : place + 5], "little")
    place += 5
    ring_atoms = b""
    for _ in range(num_rings):
        end = place + 1 + data[place]
        ring_atoms += data[place + 1 : end]
        place = end
    return Records(atoms, bonds, bytes(ends), ring_atoms)


@lru_cache(maxsize=4096)
def _atom_bytes(announced: bytes) -> int:
    """Return the length of an atom's record by its bytes after the element."""
    flags, properties = announced[0], int.from_bytes(announced[1:], "little")
    if flags & ~_PLAIN_ATOM:
        raise KeyError(flags)
    bits = (bit for bit in range(32) if properties >> bit & 1)
    return 6 + sum(_PROPERTY_BYTES[bit] for bit in bits)


def _bond_bytes(flags: int) -> int:
    """Return the length of a bond's record, without the atoms that a stereo descriptor names."""
    parts = {_STEREO: 2, _DIRECTION: 1, _TYPE: 1}
    return 3 + sum(length for flag, length in parts.items() if flags & flag)


_BOND_BYTES = {
    flags: _bond_bytes(flags)
    for flags in range(128)
    if not flags & ~(_STEREO | _DIRECTION | _TYPE | _PLAIN_BOND)
}
