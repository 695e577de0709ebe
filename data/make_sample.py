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

import gzip
import random
import re
from collections.abc import Iterator
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
# A fragment, the atom number of an open end of it, and the bond that is made there.
Partner = tuple[Chem.Mol, int, Chem.BondType]


def read_drugs(path: Path) -> list[Chem.Mol]:
    """Return the drugs of a file of SMILES, name and formula, separated by tabs.

    Raises:
        ValueError: A SMILES cannot be read or does not have the formula beside it.
    """
    drugs = []
    for line in filter(None, path.read_text(encoding="utf-8").splitlines()):
        smiles, name, formula = line.split("\t")
        molecule = parse_smiles(smiles).molecule
        if molecule is None or rdMolDescriptors.CalcMolFormula(molecule) != formula:
            raise ValueError(f"{path}: the SMILES of {name} is not one of {formula}")
        drugs.append(molecule)
    return drugs


def open_ends(fragment: Chem.Mol) -> list[tuple[int, int]]:
    """Return atom number and BRICS label of each open end: a dummy atom, the label its isotope."""
    ends = (atom for atom in fragment.GetAtoms() if atom.GetAtomicNum() == 0)
    return [(atom.GetIdx(), atom.GetIsotope()) for atom in ends]


def cut(drugs: list[Chem.Mol]) -> list[Chem.Mol]:
    """Return the distinct fragments of `drugs`, in the order of their SMILES."""
    smiles = {piece for drug in drugs for piece in BRICS.BRICSDecompose(drug)}
    return [one for one in map(Chem.MolFromSmiles, sorted(smiles)) if open_ends(one)]


def find_partners(fragments: list[Chem.Mol]) -> dict[int, list[Partner]]:
    """Return for each label the open ends that the BRICS rules allow to be joined to it."""
    bonds: dict[int, dict[int, Chem.BondType]] = {}
    for left, right, symbol in (rule for rules in BRICS.reactionDefs for rule in rules):
        first, second = (int(re.sub(r"\D", "", label)) for label in (left, right))
        bond = Chem.BondType.DOUBLE if symbol == "=" else Chem.BondType.SINGLE
        bonds.setdefault(first, {})[second] = bond
        bonds.setdefault(second, {})[first] = bond
    ends = [(one, end, label) for one in fragments for end, label in open_ends(one)]
    return {
        label: [(one, end, allowed[other]) for one, end, other in ends if other in allowed]
        for label, allowed in bonds.items()
    }


def assemble(
    fragments: list[Chem.Mol], partners: dict[int, list[Partner]], rng: random.Random
) -> Chem.Mol | None:
    """Return one molecule of two to `MAX_FRAGMENTS` fragments; None where it grows too large."""
    grown = rng.choice(fragments)
    for _ in range(rng.randint(1, MAX_FRAGMENTS - 1)):
        if not (ends := open_ends(grown)):
            break
        end, label = rng.choice(ends)
        if not (candidates := partners.get(label)):
            return None
        grown = _join(grown, end, *rng.choice(candidates))
        if grown.GetNumHeavyAtoms() > HEAVY_ATOMS[1]:
            return None
    return _close(grown)


def _join(left: Chem.Mol, end: int, right: Chem.Mol, other: int, bond: Chem.BondType) -> Chem.Mol:
    """Bond the neighbors of two open ends and remove the dummy atoms."""
    both, other_end = Chem.RWMol(Chem.CombineMols(left, right)), left.GetNumAtoms() + other
    neighbors = [both.GetAtomWithIdx(at).GetNeighbors()[0].GetIdx() for at in (end, other_end)]
    both.AddBond(neighbors[0], neighbors[1], bond)
    both.RemoveAtom(other_end)  # the higher number first
    both.RemoveAtom(end)
    return both.GetMol()


def _close(fragment: Chem.Mol) -> Chem.Mol | None:
    """Put hydrogens in the place of the open ends; None where that gives no sound molecule."""
    closed = Chem.RWMol(fragment)
    for at, _ in reversed(open_ends(fragment)):
        neighbor = closed.GetAtomWithIdx(at).GetNeighbors()[0]
        # An aromatic nitrogen needs its hydrogen in writing, else the ring has no Kekulé form.
        if neighbor.GetIsAromatic() and neighbor.GetAtomicNum() == 7:
            neighbor.SetNumExplicitHs(1)
        closed.RemoveAtom(at)
    # The round trip through the canonical SMILES makes numbering and value those of the text.
    return parse_smiles(Chem.MolToSmiles(closed.GetMol())).molecule


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
        if smiles not in met:
            met.add(smiles)
            yield smiles, penalized_logp(Chem.MolFromSmiles(smiles))


def main() -> None:
    """Write the sample."""
    molecules = islice(sample_molecules(read_drugs(HERE / "drugs.smi")), NUM_MOLECULES)
    rows = [f"{smiles},{value:.5f}\n" for smiles, value in molecules]
    text, output = "".join(["smiles,penalized_logp\n", *rows]), HERE / "sample.csv.gz"
    # No time stamp: the same molecules give the same file.
    output.write_bytes(gzip.compress(text.encode("ascii"), compresslevel=9, mtime=0))
    print(f"{output}: {len(rows)} molecules, {output.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
