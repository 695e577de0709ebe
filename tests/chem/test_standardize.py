"""Salts and charges in one form: known molecules, and what cannot be changed."""

import pytest
from rdkit import Chem

from graphormer_sepnorm.chem.molecules import ParsedMolecule, canonical_smiles, parse_smiles
from graphormer_sepnorm.chem.standardize import STEPS, standardized


def after(smiles: str, *steps: str) -> str:
    found = standardized(parse_smiles(smiles), steps)
    return canonical_smiles(found.molecule) if found.molecule is not None else found.reason


@pytest.mark.parametrize(
    ("smiles", "steps", "expected"),
    [
        ("CC(=O)[O-].[Na+]", ["fragment"], "CC(=O)[O-]"),
        # A charge that another one needs stays.
        ("CC(=O)[O-].[Na+]", ["neutralize"], "CC(=O)[O-].[Na+]"),
        # In the order of the steps, not in that of their names.
        ("CC(=O)[O-].[Na+]", ["neutralize", "fragment"], "CC(=O)O"),
        ("C[NH3+].[Cl-]", ["neutralize", "fragment"], "CN"),
        ("C[N+](C)(C)CC(=O)[O-]", ["neutralize"], "C[N+](C)(C)CC(=O)[O-]"),
        ("CCO.O", ["fragment"], "CCO"),
        # What is written of stereochemistry stays.
        ("N[C@@H](C)C(=O)O", STEPS, "C[C@H](N)C(=O)O"),
        ("C/C=C/C(=O)O", STEPS, "C/C=C/C(=O)O"),
        ("C/C(=N/O)c1ccccc1", STEPS, "C/C(=N/O)c1ccccc1"),
        ("OC(=O)c1ccncc1O.Cl", STEPS, "OC(=O)c1ccncc1O"),
        ("Nc1ncnc2[nH]cnc12", STEPS, "Nc1ncnc2[nH]cnc12"),
        # Where a proton makes or leaves no molecule, RDKit's sanitized form or the ion as written.
        ("[cH-]1cccc1", ["neutralize"], "C1=CCC=C1"),
        ("[cH+]1cccccc1", ["neutralize"], "C1=CC=CCC=C1"),
        ("[p-]1cccc1", ["neutralize"], "c1cc[pH]c1"),
        ("C[SiH-]C", ["neutralize"], "C[SiH2]C"),
        ("F[P-](F)(F)(F)(F)F", ["neutralize"], "F[P-](F)(F)(F)(F)F"),
        ("[P-](F)(F)(F)(F)(F)F.CC[NH3+]", ["neutralize"], "CC[NH3+].F[P-](F)(F)(F)(F)F"),
    ],
)
def test_known_molecules_are_brought_into_one_form_and_stay_in_it(smiles, steps, expected) -> None:
    once = after(smiles, *steps)
    assert once == after(once, *steps) == Chem.CanonSmiles(expected)


def test_without_steps_or_molecule_nothing_happens() -> None:
    molecule, none = parse_smiles("CC(=O)[O-].[Na+]"), ParsedMolecule(None, "why not")
    assert standardized(molecule, ()) is molecule
    assert standardized(none, STEPS) is none
