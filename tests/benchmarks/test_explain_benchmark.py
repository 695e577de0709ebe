"""The judgement of explanations: its truth, its measures, and a small one from end to end."""

from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Crippen

from benchmarks.explain import (
    crippen_contributions,
    fragment_sums,
    main,
    mean_by_element,
    rank_correlations,
)
from graphormer_sepnorm.inference.explain import METHODS

SMILES = ["CC(=O)Oc1ccccc1C(=O)O", "OCC[NH3+]", "C", "C[S@](=O)c1ccc(N)cc1"]


@pytest.mark.parametrize("smiles", SMILES)
def test_the_truth_adds_up_to_logp(smiles):
    molecule = Chem.MolFromSmiles(smiles)
    contributions = crippen_contributions(molecule)
    assert len(contributions) == molecule.GetNumAtoms()
    assert contributions.sum() == pytest.approx(Crippen.MolLogP(molecule))


def test_hydrogens_belong_to_their_atom():
    # Wildman and Crippen's types of methane: C1 0.1441, H1 0.1230.
    assert crippen_contributions(Chem.MolFromSmiles("C")) == pytest.approx([0.1441 + 4 * 0.1230])
    assert mean_by_element(["C", "C"]) == {6: pytest.approx(0.1441 + 4 * 0.1230)}


def test_the_truth_ranks_perfectly_and_nothing_not_at_all():
    truth = [np.array([0.1, 0.3, -0.2]), np.array([1.0, 2.0]), np.array([0.5, 0.5])]
    # Where all atoms contribute the same there is no order to find.
    assert rank_correlations(truth, truth) == pytest.approx([1, 1])
    assert rank_correlations([-one for one in truth], truth) == pytest.approx([-1, -1])
    assert rank_correlations([0 * one for one in truth], truth).tolist() == [0, 0]


def test_fragments_of_few_are_left_out():
    molecules = [Chem.MolFromSmiles(text) for text in ("CC(=O)Nc1ccncc1", "Cc1ccccc1")]
    found = fragment_sums(molecules, [np.arange(10.0), np.arange(7.0)])
    assert [one.tolist() for one in found] == [[0 + 1 + 2, 3, 4 + 5 + 6 + 7 + 8 + 9]]


@pytest.mark.slow
def test_a_small_judgement(real_data_root, capsys):
    words = ["--training", "40", "--molecules", "3", "--epochs", "1", "--norms", "bn+ln"]
    main(["--data-root", str(real_data_root), *words])
    first = capsys.readouterr().out
    assert first.startswith("bn+ln: R2 ")
    for name in (*METHODS, "the element alone"):
        assert first.count(f"\n| {name} | ") == 2
