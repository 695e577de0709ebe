from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphormer_sepnorm.chem.molecules import parse_smiles


@pytest.mark.parametrize(
    ("smiles", "atoms"),
    [
        ("CCO", 3),
        ("  CCO\n", 3),
        ("[Na+].[Cl-]", 2),
        ("[13CH4]", 1),
        ("*C", 2),
        ("C[C@H](O)F |&1:1|", 4),
        ("C" * 500, 500),
    ],
)
def test_readable(smiles, atoms):
    parsed = parse_smiles(smiles)
    assert parsed.readable
    assert parsed.reason == ""
    assert parsed.molecule.GetNumAtoms() == atoms


@pytest.mark.parametrize(
    ("smiles", "words"),
    [
        ("", "empty"),
        ("   ", "empty"),
        (None, "empty"),
        (float("nan"), "empty"),
        ("C1CC", "unclosed ring"),
        ("CC(C)(C)(C)C", "valence for atom # 1 C, 5,"),
        ("c1cccc1", "kekulize"),
        ("C((", "around position 3"),
        ("CCO ethanol", "space"),
        ("C\tC", "space"),
        ("CC\u00e9O", "plain text"),
        ("C\x00C", "plain text"),
        ("|$a$|", "valid"),
    ],
)
def test_reason(smiles, words, capfd):
    parsed = parse_smiles(smiles)
    assert parsed.molecule is None
    assert words in parsed.reason
    assert "\n" not in parsed.reason
    captured = capfd.readouterr()
    assert captured.out + captured.err == ""


def test_rdkit_is_as_loud_as_before(capfd):
    from rdkit import Chem

    parse_smiles("C((")
    assert capfd.readouterr().err == ""
    Chem.MolFromSmiles("C((")
    assert "Parse Error" in capfd.readouterr().err


def test_long_text_is_shortened():
    reason = parse_smiles("C" * 1000 + "(").reason
    assert len(reason) < 200


@settings(deadline=None)  # a busy machine is no failure
@given(st.text(alphabet="CNOc1n2()[]=#@+-/\\.%BrHl 0|\u00e9\x00", max_size=25))
def test_molecule_or_reason(text):
    parsed = parse_smiles(text)
    assert (parsed.molecule is None) == bool(parsed.reason)
    assert parsed.molecule is None or parsed.molecule.GetNumAtoms() > 0


def test_a_monstrous_smiles_is_not_tried():
    for text in ("C" * 10_001, "C(" * 100_000):
        reason = parse_smiles(text).reason
        assert reason.startswith("too large: the SMILES has ")
        assert len(reason) < 100
    assert parse_smiles("C" * 2_000).readable
