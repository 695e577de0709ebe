"""Make the bundled sample: known drugs, cut into fragments and put together anew.

The drugs in ``drugs.smi`` are cut at the bonds that retrosynthetic rules call breakable (BRICS:
Degen et al. 2008, ChemMedChem 3, 1503). Fragments are drawn with a fixed seed and joined where the
same rules allow a bond; ends that are open in the end become hydrogens. What looks like a small
drug is kept, labeled with the penalized logP (``penalized_logp.py``) and written to
``sample.csv.gz``.

Run from the repository, in its environment with networkx (as for the tests):
``python data/make_sample.py``. The result is the same file each time; another RDKit release may
write some SMILES or values differently.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from penalized_logp import longest_basis_cycle, penalized_logp
from rdkit import Chem
from rdkit.Chem import BRICS, Descriptors, rdMolDescriptors

from graphormer_sepnorm.chem.molecules import parse_smiles

HERE = Path(__file__).resolve().parent
SEED = 2309
NUM_MOLECULES = 7000
ELEMENTS = frozenset({"C", "N", "O", "F", "P", "S", "Cl", "Br", "I"})
HEAVY_ATOMS = (10, 38)
MOLECULAR_WEIGHT = (200.0, 450.0)  # g/mol
MAX_FRAGMENTS = 5
# In macrocycles and bridged systems the target lies far outside the range of the rest (-3.5 per
# atom beyond six), and in bridged ones it hangs on the numbering of the atoms.
LONGEST_CYCLE = 7


@dataclass(frozen=True)
class Fragment:
    """A piece of a drug with open ends.

    Attributes:
        molecule: The piece; each open end is a dummy atom whose isotope is its BRICS label.
        ends: Atom number and label of each open end.
    """

    molecule: Chem.Mol
    ends: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, molecule: Chem.Mol) -> Fragment:
        """Find the open ends of `molecule`."""
        ends = [(atom.GetIdx(), atom.GetIsotope()) for atom in molecule.GetAtoms() if _open(atom)]
        return cls(molecule, tuple(ends))


def _open(atom: Chem.Atom) -> bool:
    return atom.GetAtomicNum() == 0


def read_drugs(path: Path) -> list[Chem.Mol]:
    """Return the drugs of a file of SMILES, name and formula, separated by tabs.

    Raises:
        ValueError: A SMILES cannot be read or does not have the formula beside it.
    """
    drugs = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line:
            continue
        smiles, name, formula = line.split("\t")
        parsed = parse_smiles(smiles)
        if parsed.molecule is None:
            raise ValueError(f"{path}:{number}: {name}: {parsed.reason}")
        found = rdMolDescriptors.CalcMolFormula(parsed.molecule)
        if found != formula:
            raise ValueError(f"{path}:{number}: {name} is {formula}, but the SMILES is {found}")
        drugs.append(parsed.molecule)
    return drugs


def cut(drugs: list[Chem.Mol]) -> list[Fragment]:
    """Return the distinct fragments of `drugs`, in the order of their SMILES."""
    smiles = {piece for drug in drugs for piece in BRICS.BRICSDecompose(drug)}
    fragments = [Fragment.of(Chem.MolFromSmiles(piece)) for piece in sorted(smiles)]
    return [fragment for fragment in fragments if fragment.ends]


@dataclass(frozen=True)
class Partner:
    """A fragment's end that may be joined to a given label, and the bond that is made."""

    fragment: Fragment
    end: int
    bond: Chem.BondType


def find_partners(fragments: list[Fragment]) -> dict[int, list[Partner]]:
    """Return for each label the open ends that the BRICS rules allow to be joined to it."""
    bonds: dict[int, dict[int, Chem.BondType]] = {}
    for rules in BRICS.reactionDefs:
        for left, right, symbol in rules:
            first, second = (int(re.sub(r"\D", "", label)) for label in (left, right))
            bond = Chem.BondType.DOUBLE if symbol == "=" else Chem.BondType.SINGLE
            bonds.setdefault(first, {})[second] = bond
            bonds.setdefault(second, {})[first] = bond
    return {
        label: [
            Partner(fragment, end, allowed[other])
            for fragment in fragments
            for end, other in fragment.ends
            if other in allowed
        ]
        for label, allowed in bonds.items()
    }


def assemble(
    fragments: list[Fragment], partners: dict[int, list[Partner]], rng: random.Random
) -> Chem.Mol | None:
    """Return one molecule of two to `MAX_FRAGMENTS` fragments; None where it grows too large."""
    grown = rng.choice(fragments)
    for _ in range(rng.randint(1, MAX_FRAGMENTS - 1)):
        if not grown.ends:
            break
        end, label = rng.choice(grown.ends)
        candidates = partners.get(label, [])
        if not candidates:
            return None
        partner = rng.choice(candidates)
        grown = _join(grown, end, partner)
        if grown.molecule.GetNumHeavyAtoms() > HEAVY_ATOMS[1]:
            return None
    return _close(grown)


def _join(left: Fragment, end: int, right: Partner) -> Fragment:
    """Bond the neighbors of two open ends and remove the dummy atoms."""
    both = Chem.RWMol(Chem.CombineMols(left.molecule, right.fragment.molecule))
    other_end = left.molecule.GetNumAtoms() + right.end
    neighbors = [both.GetAtomWithIdx(at).GetNeighbors()[0].GetIdx() for at in (end, other_end)]
    both.AddBond(neighbors[0], neighbors[1], right.bond)
    for at in sorted((end, other_end), reverse=True):
        both.RemoveAtom(at)
    return Fragment.of(both.GetMol())


def _close(fragment: Fragment) -> Chem.Mol | None:
    """Put hydrogens in the place of the open ends; None where that gives no sound molecule."""
    closed = Chem.RWMol(fragment.molecule)
    for at, _ in sorted(fragment.ends, reverse=True):
        neighbor = closed.GetAtomWithIdx(at).GetNeighbors()[0]
        # An aromatic nitrogen needs its hydrogen in writing, else the ring has no Kekulé form.
        if neighbor.GetIsAromatic() and neighbor.GetAtomicNum() == 7:
            neighbor.SetNumExplicitHs(1)
        closed.RemoveAtom(at)
    # The round trip through the canonical SMILES makes numbering and value those of the text.
    parsed = parse_smiles(Chem.MolToSmiles(closed.GetMol()))
    return parsed.molecule


def is_drug_like(molecule: Chem.Mol) -> bool:
    """Return whether size, weight, elements and rings are those of a small drug."""
    elements = {atom.GetSymbol() for atom in molecule.GetAtoms()}
    weight = Descriptors.MolWt(molecule)  # type: ignore[attr-defined]
    return (
        HEAVY_ATOMS[0] <= molecule.GetNumHeavyAtoms() <= HEAVY_ATOMS[1]
        and MOLECULAR_WEIGHT[0] <= weight <= MOLECULAR_WEIGHT[1]
        and elements <= ELEMENTS
        and longest_basis_cycle(molecule) <= LONGEST_CYCLE
    )


def sample_molecules(drugs: list[Chem.Mol]) -> Iterator[tuple[str, float]]:
    """Yield distinct drug-like molecules as canonical SMILES and penalized logP, without end."""
    rng = random.Random(SEED)
    fragments = cut(drugs)
    partners = find_partners(fragments)
    met: set[str] = set()
    while True:
        molecule = assemble(fragments, partners, rng)
        if molecule is None or not is_drug_like(molecule):
            continue
        smiles = Chem.MolToSmiles(molecule)
        if smiles in met:
            continue
        met.add(smiles)
        yield smiles, penalized_logp(Chem.MolFromSmiles(smiles))


def main() -> None:
    """Write the sample."""
    parser = argparse.ArgumentParser(description="Make the bundled sample of molecules.")
    parser.add_argument("--drugs", type=Path, default=HERE / "drugs.smi", help="SMILES of drugs")
    parser.add_argument("--output", type=Path, default=HERE / "sample.csv.gz", help="file to write")
    parser.add_argument("--number", type=int, default=NUM_MOLECULES, help="number of molecules")
    options = parser.parse_args()

    molecules = islice(sample_molecules(read_drugs(options.drugs)), options.number)
    rows = [f"{smiles},{value:.5f}\n" for smiles, value in molecules]
    text = "".join(["smiles,penalized_logp\n", *rows])
    # No time stamp: the same molecules give the same file.
    options.output.write_bytes(gzip.compress(text.encode("ascii"), compresslevel=9, mtime=0))
    print(f"{options.output}: {len(rows)} molecules, {options.output.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
