"""``zinc-1``: a molecule as the ZINC data set of Dwivedi et al. (2020, arXiv 2003.00982) stores it.

An atom is one of 28 types: the element, the hydrogens that are written explicitly in the SMILES,
the sign of the charge. A bond is single, double or triple: aromatic rings stand in one of their
Kekulé forms. The stored graphs were made by an RDKit of 2019 to 2020; the way taken here gives the
stored atoms of all molecules that were compared and the stored bonds of 99.6 % of them
(docs/explanation/differences.md).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from rdkit import Chem, rdBase

from graphormer_sepnorm.chem.featurizer import OTHER, CodeTable, Featurizer
from graphormer_sepnorm.chem.molecules import RDKIT_VERSION, parse_canonical, written
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.graphs.packed_graphs import MolecularGraph

# Codes 0 to 27 of the data set.
# fmt: off
_ATOM_TYPES = (
    "C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -",
    "S -", "I", "P", "O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +",
    "C H1 -", "P H1 +",
)
# fmt: on
_BOND_TYPES = {1: Chem.BondType.SINGLE, 2: Chem.BondType.DOUBLE, 3: Chem.BondType.TRIPLE}
# Since 2026.03 RDKit chooses the Kekulé form by canonical ranks unless told not to. That is the
# stored form for only two thirds of ZINC; the choice by the atoms' numbers, the only one before,
# gives it for 99.6 % (99.9 % in 2025.09).
_BY_NUMBER = {"canonical": False} if RDKIT_VERSION >= "2026.03" else {}
# What has to be perceived again in a canonical SMILES: valences, and the rings, on whose order the
# Kekulé form depends.
_CHECKED = Chem.SanitizeFlags.SANITIZE_PROPERTIES | Chem.SanitizeFlags.SANITIZE_SYMMRINGS


class _Zinc1(Featurizer):
    name = "zinc-1"
    atom_tables = (CodeTable("atom type", (*_ATOM_TYPES, OTHER)),)
    # Code 0 is "no bond" in the data set's own numbering.
    bond_tables = (CodeTable("bond type", (None, *_BOND_TYPES.values(), OTHER)),)
    needs_rings = False

    def atom_values(self, atom: Chem.Atom) -> Sequence[Hashable]:
        return (_atom_type(atom),)

    def bond_values(self, bond: Chem.Bond) -> Sequence[Hashable]:
        return (bond.GetBondType(),)

    def prepare(self, molecule: Chem.Mol) -> Chem.Mol:
        """Return one Kekulé form, atoms in the order of the canonical SMILES from its end.

        It is the same for all spellings of a molecule: the way over the canonical SMILES makes it
        independent of the numbering of the atoms, and makes hydrogens explicit where a SMILES needs
        them: in the data set's types they count. The numbers run from its end because that gives
        the stored form more often (99.6 %, forwards 94 %).

        Raises:
            DataError: It has no Kekulé form, or its canonical SMILES cannot be read again.
        """
        with rdBase.BlockLogs():
            smiles = Chem.MolToSmiles(molecule)
            canonical = parse_canonical(smiles)
            if canonical is None or Chem.SanitizeMol(canonical, _CHECKED, catchErrors=True):
                raise DataError(f"its canonical SMILES {smiles!r} cannot be read again")
            prepared = Chem.RenumberAtoms(canonical, [*range(canonical.GetNumAtoms())][::-1])
            try:
                Chem.Kekulize(prepared, clearAromaticFlags=True, **_BY_NUMBER)
            except Chem.KekulizeException as error:
                reason = " ".join(str(error).split())
                raise DataError(f"it has no Kekulé form ({reason})") from error
        return prepared

    def atom_labels(self, molecule: Chem.Mol) -> list[str]:
        return [_atom_type(atom) for atom in self.prepare(molecule).GetAtoms()]

    def atom_order(self, molecule: Chem.Mol) -> list[int]:
        order = written(molecule)[1][::-1]
        return sorted(range(len(order)), key=order.__getitem__)

    def smiles_of(self, graph: MolecularGraph) -> str:
        """Return a SMILES of a graph: atom types and Kekulé form leave only stereo open."""
        molecule = Chem.RWMol()
        try:
            for code in graph.atom_codes[:, 0].tolist():
                element, *rest = _ATOM_TYPES[code].split()
                atom = Chem.Atom(element)
                for part in rest:
                    if part in "+-":
                        atom.SetFormalCharge(1 if part == "+" else -1)
                    else:
                        atom.SetNumExplicitHs(int(part.removeprefix("H")))
                molecule.AddAtom(atom)
            for begin, end, code in zip(*graph.edge_index, graph.bond_codes[:, 0], strict=True):
                if begin < end:  # each bond is there in both directions
                    molecule.AddBond(int(begin), int(end), _BOND_TYPES[code])
            with rdBase.BlockLogs():
                Chem.SanitizeMol(molecule)
                return Chem.MolToSmiles(molecule)
        except (LookupError, ValueError, RuntimeError):
            return ""  # codes that no molecule of the data set has


def _atom_type(atom: Chem.Atom) -> str:
    hydrogens, charge = atom.GetNumExplicitHs(), atom.GetFormalCharge()
    sign = "" if charge == 0 else " +" if charge > 0 else " -"
    return f"{atom.GetSymbol()}{f' H{hydrogens}' if hydrogens else ''}{sign}"


ZINC_1 = _Zinc1()
