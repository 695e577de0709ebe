import random

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rdkit import Chem, RDLogger

from graphormer_sepnorm.chem.fingerprints import hashed_counts, substructures
from graphormer_sepnorm.chem.molecule_features import MOLECULE_1
from graphormer_sepnorm.chem.molecules import (
    ParsedMolecule,
    canonical_smiles,
    in_written_order,
    parse_molblock,
    parse_smiles,
)
from graphormer_sepnorm.chem.scaffolds import murcko_scaffold
from graphormer_sepnorm.chem.zinc_features import ZINC_1

ETHANOL = Chem.MolToMolBlock(Chem.MolFromSmiles("CCO"))


@pytest.mark.parametrize(
    ("smiles", "atoms"),
    [("  CCO\n", 3), ("[Na+].[Cl-]", 2), ("[13CH4]", 1), ("*C", 2), ("C[C@H](O)F |&1:1|", 4)],
)
def test_readable(smiles, atoms):
    parsed = parse_smiles(smiles)
    assert parsed.reason == ""
    assert parsed.molecule.GetNumAtoms() == atoms


@pytest.mark.parametrize(
    ("smiles", "words"),
    [
        ("", "empty"),
        ("   ", "empty"),
        (None, "empty"),
        (float("nan"), "empty"),
        (pandas.NA, "empty"),
        ("C1CC", "unclosed ring"),
        ("CC(C)(C)(C)C", "valence for atom # 1 C, 5,"),
        ("c1cccc1", "kekulize"),
        # One of the seven of ogbg-molhiv's 41,127 that current RDKit refuses.
        ("Cc1ccc([B-2]2(c3ccc(C)cc3)=NCCO2)cc1", "Explicit valence"),
        ("C((", "around position 3"),
        ("CCO ethanol", "space"),
        ("C\tC", "space"),
        ("CC\u00e9O", "plain text"),
        ("C\x00C", "plain text"),
        ("|$a$|", "valid"),
        ("C[#119]", "Atomic number not found"),
    ],
)
def test_reason(smiles, words, capfd):
    assert_refused(parse_smiles(smiles), words, capfd)


def assert_refused(parsed, words, capfd):
    assert parsed.molecule is None
    assert words in parsed.reason
    assert "\n" not in parsed.reason
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_rdkits_log_is_as_loud_as_before(capfd):
    for text in ("C((", "C1CC"):
        parse_smiles(text)
    parse_molblock("no mol block")
    assert capfd.readouterr().err == ""
    Chem.MolFromSmiles("C((")
    assert "Parse Error" in capfd.readouterr().err
    RDLogger.DisableLog("rdApp.*")
    try:
        assert "unclosed ring" in parse_smiles("C1CC").reason
        parse_molblock("no mol block")
        Chem.MolFromSmiles("C((")
        assert capfd.readouterr().err == ""
        RDLogger.EnableLog("rdApp.error")
        parse_smiles("C1CC")
        Chem.MolFromSmiles("C((")
        assert "Parse Error" in capfd.readouterr().err
    finally:
        RDLogger.EnableLog("rdApp.error")
        RDLogger.EnableLog("rdApp.warning")


@settings(deadline=None)  # a busy machine is no failure
@given(st.text(alphabet="CNOc1n2()[]=#@+-/\\.%BrHl 0|\u00e9\x00", max_size=25))
def test_molecule_and_graph_or_reason(text):
    parsed = parse_smiles(text)
    assert (parsed.molecule is None) == bool(parsed.reason)
    if parsed.molecule is not None:
        for featurizer in (MOLECULE_1, ZINC_1):
            graphs, [reason] = featurizer.featurize_many([parsed.molecule])
            assert bool(reason) or graphs.num_atoms == parsed.molecule.GetNumAtoms() > 0
            assert "\n" not in reason


def test_a_monstrous_smiles_is_not_tried():
    for text in ("C" * 10_001, "C(" * 100_000):
        reason = parse_smiles(text).reason
        assert reason.startswith("too large: the SMILES has ")
        assert len(reason) < 100
    assert parse_smiles("C" * 2_000).molecule is not None
    assert len(parse_smiles("C" * 1000 + "(").reason) < 200


def mapped(molecule):
    for atom in molecule.GetAtoms():
        atom.SetAtomMapNum(atom.GetIdx() + 1)


def heavy(molecule):
    for atom in molecule.GetAtoms():
        atom.SetIsotope(round(2.1 * atom.GetAtomicNum()))


@pytest.mark.parametrize("label", [mapped, heavy, lambda molecule: None])
@pytest.mark.parametrize(
    "smiles",
    [
        "C[C@H](N)C(=O)O",
        "C/C=C/c1cc[nH]c1",
        "CN(C)CCC=C1c2ccccc2CCc2ccccc12",  # whose scaffold ends in an atom that was in a chain
        "O=C([O-])C1CC1.[Na+]",
        "C[C@H]1CC[C@@H](O)CC1",
        "*c1ccccc1",
        "[2H]C(F)Cl",
        "CS(=O)(=O)N[P@](C)(=O)c1ccccc1",
    ],
)
def test_labels_of_atoms_make_no_other_molecule(smiles, label):
    """Atom maps, isotopes and needless brackets: identity, scaffold, fingerprint and codes."""
    plain, labeled = parse_smiles(smiles).molecule, Chem.MolFromSmiles(smiles)
    label(labeled)
    text = Chem.MolToSmiles(labeled, canonical=False, allHsExplicit=True)
    for molecule in (
        parse_smiles(text).molecule,
        parse_smiles(Chem.MolToCXSmiles(labeled)).molecule,
        parse_molblock(Chem.MolToV3KMolBlock(labeled)).molecule,
    ):
        assert canonical_smiles(molecule) == canonical_smiles(plain)
        assert murcko_scaffold(molecule) == murcko_scaffold(plain)
        both = hashed_counts(substructures([molecule, plain])).toarray()
        np.testing.assert_array_equal(*both)
        codes = (MOLECULE_1.featurize(one).atom_codes.tolist() for one in (molecule, plain))
        assert sorted(next(codes)) == sorted(next(codes))
    symbols = [atom.GetSymbol() for atom in parse_smiles(text).molecule.GetAtoms()]
    assert symbols == [atom.GetSymbol() for atom in plain.GetAtoms()]


@pytest.mark.parametrize(
    ("smiles", "plain"),
    [
        ("C[C@H]([13CH3])O", "CC(C)O"),  # stereochemistry by isotopes alone
        ("[13CH3]/C(C)=C/C", "CC=C(C)C"),
        ("[CH3:7][C@@H:2]([CH3:1])[OH:3]", "CC(C)O"),
        ("[3H]c1ccccc1", "[2H]c1ccccc1"),
        ("C[C@]([1H])(N)C(=O)O", "C[C@@H](C(=O)O)N"),
        ("[H:1][CH2:2][18F]", "CF"),
        ("CO |atomProp:0.molAtomMapNumber.1|", "CO"),
    ],
)
def test_what_labels_alone_made_is_gone(smiles, plain):
    assert canonical_smiles(parse_smiles(smiles).molecule) == Chem.CanonSmiles(plain)


@pytest.mark.parametrize("smiles", ["CCO", "C[C@H](O)F", "F/C=C/F", "[Na+].[Cl-]", "[NH4+]", "*C"])
@pytest.mark.parametrize("write", [Chem.MolToMolBlock, Chem.MolToV3KMolBlock])
def test_mol_block_of_either_version(smiles, write):
    molecule = Chem.MolFromSmiles(smiles)
    block = write(molecule)
    assert ("V3000" in block) == (write is Chem.MolToV3KMolBlock)
    for text in (block, block.replace("\n", "\r\n"), block + "> <name>\n\nvalue\n\n"):
        parsed = parse_molblock(text)
        assert parsed.reason == ""
        assert canonical_smiles(parsed.molecule) == canonical_smiles(molecule)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("", "is empty"),
        ("\n\n  \n", "is empty"),
        ("nonsense", "it cannot be read"),
        ("CCO\nCCO\nCCO\nCCO\nCCO\n", "Counts line too short"),
        (ETHANOL[:120], "EOF hit while reading atoms"),
        (ETHANOL.replace(" O ", " Xy "), "Element 'Xy' not found"),
        (ETHANOL.replace("  1  2  1  0", "  1  7  1  0"), "not a valid molecule"),
        (ETHANOL.replace("0.0000", "x.0000"), "coordinates on line 5"),
        # A remark on a group abbreviation comes before the error.
        (ETHANOL.replace("M  END", "G    1  2\nEt"), "M  END missing"),
        (ETHANOL.replace("RDKit", "\0"), "bytes that are not text"),
        (ETHANOL.replace(" O ", " \udcff "), "bytes that are not text"),
        (Chem.MolToMolBlock(Chem.Mol()), "has no atoms"),
        (Chem.MolToV3KMolBlock(Chem.Mol()), "has no atoms"),
        (
            Chem.MolToMolBlock(Chem.MolFromSmiles("CC(C)(C)(C)C", sanitize=False)),
            "Explicit valence for atom # 1 C, 5,",
        ),
    ],
)
def test_reason_of_a_mol_block(block, words, capfd):
    assert_refused(parse_molblock(block), words, capfd)


@pytest.mark.parametrize(
    "block",
    [
        Chem.MolToMolBlock(Chem.AddHs(Chem.MolFromSmiles("CCO"))),  # hydrogens become implicit
        *(ETHANOL.replace(" O ", f" {symbol}") for symbol in ("A ", "Q ", "R#")),  # no elements
        # What surrounds the atoms may be in another encoding.
        ETHANOL + ">  <Unit>\n\udcb5M\n\n",
        ETHANOL.replace("RDKit", "\udcff"),
        ETHANOL.replace("\n", "alpha-\udce4thanol\n", 1),
    ],
)
def test_unusual_mol_blocks(block):
    parsed = parse_molblock(block)
    assert parsed.reason == ""
    assert parsed.molecule.GetNumAtoms() == 3


@pytest.mark.parametrize("smiles", ["OC(=O)CCN", "c1ccc(cc1)C(F)(Cl)Br", "[Na+].CC(C)([O-])C#N"])
def test_written_order_is_that_of_the_canonical_smiles(smiles):
    molecule = Chem.MolFromSmiles(smiles)
    of_text = Chem.MolFromSmiles(canonical_smiles(molecule))

    def drawn(one):
        bonds = {frozenset((b.GetBeginAtomIdx(), b.GetEndAtomIdx())) for b in one.GetBonds()}
        return [atom.GetSymbol() for atom in one.GetAtoms()], bonds

    assert drawn(molecule) != drawn(of_text)
    assert drawn(in_written_order(molecule)) == drawn(of_text)


def test_mutated_mol_blocks_give_a_molecule_or_a_reason(capfd):
    generator = random.Random(0)
    molecules = [Chem.MolFromSmiles(text) for text in ("C[C@H](O)F", "c1ccncc1Cl", "[NH3]->[Pt]")]
    blocks = [
        write(each) for each in molecules for write in (Chem.MolToMolBlock, Chem.MolToV3KMolBlock)
    ]
    results: list[ParsedMolecule] = []
    for _ in range(600):
        letters = list(generator.choice(blocks))
        for _ in range(generator.randint(1, 2)):
            letters[generator.randrange(len(letters))] = generator.choice("0123 -.CNOSXQ*M\n[]")
        results.append(parse_molblock("".join(letters)))
    for parsed in results:
        assert (parsed.molecule is None) == bool(parsed.reason)
        assert "\n" not in parsed.reason
    assert 80 < sum(not parsed.reason for parsed in results) < 520
    assert capfd.readouterr().err == ""
