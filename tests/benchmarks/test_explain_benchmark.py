"""The judgement of explanations: its truth, its measures, and a small one from end to end."""

from __future__ import annotations

import numpy as np
import pytest
from rdkit import Chem
from rdkit.Chem import Crippen
from reference.checkpoints import make_checkpoint

from benchmarks.explain import (
    TRUTH,
    crippen_contributions,
    deletion_areas,
    fragment_sums,
    judge_rings,
    large_ring,
    main,
    mean_by_element,
    rank_correlations,
    ring_areas,
)
from graphormer_sepnorm.inference.explanation_methods import METHODS
from graphormer_sepnorm.inference.predictor import Predictor

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


def test_a_large_ring_is_found_by_its_low_atoms():
    molecule = Chem.MolFromSmiles("C1CCCCCC1CCO")
    assert large_ring(molecule) == list(range(7))
    assert large_ring(Chem.MolFromSmiles("C1CCCCC1CCO")) == []
    lowest = np.where(np.arange(10) < 7, -1.0, 0.0)
    assert ring_areas([lowest, -lowest, 0 * lowest], [molecule] * 3).tolist() == [1, 0, 0.5]


def test_rings_are_judged_beside_molecules_without(capsys):
    smiles = ["C1CCCCCC1CCO", "C1CCCCC1CCO", "CCO", "c1ccc2c(c1)CCCCC2"]
    judge_rings(Predictor(make_checkpoint(), "cpu"), smiles, 2)
    out = capsys.readouterr().out
    assert out.startswith("2 test molecules with a ring of more than 6, 2 without\n")
    for method in METHODS:
        cells = next(line for line in out.splitlines() if line.startswith(f"| {method} |"))
        assert cells.count("|") == 9


def test_fragments_of_few_are_left_out():
    molecules = [Chem.MolFromSmiles(text) for text in ("CC(=O)Nc1ccncc1", "Cc1ccccc1")]
    found = fragment_sums(molecules, [np.arange(10.0), np.arange(7.0)])
    assert [one.tolist() for one in found] == [[0 + 1 + 2, 3, 4 + 5 + 6 + 7 + 8 + 9]]


def test_areas_turn_round_with_the_order():
    predictor = Predictor(make_checkpoint(), "cpu")
    smiles = ["CC(=O)Nc1ccncc1", "CCO"]
    values = [one.contributions for one in predictor.explain(smiles).molecules]
    areas = deletion_areas(predictor, smiles, values)
    turned = deletion_areas(predictor, smiles, [-one for one in values])
    np.testing.assert_allclose(turned, -areas, rtol=1e-3, atol=1e-4)
    assert np.abs(areas).max() > 0.01


@pytest.mark.slow
def test_a_small_judgement(real_data_root, tmp_path, capsys):
    words = ["--training", "40", "--molecules", "3", "--epochs", "1", "--norms", "bn+ln"]
    root = ["--data-root", str(real_data_root), "--models", str(tmp_path)]
    main([*root, *words])
    first = capsys.readouterr().out
    assert first.startswith("bn+ln: R2 ")
    for name in (*METHODS, "the element alone", TRUTH):
        assert first.count(f"\n| {name} | ") == (1 if name == TRUTH else 3)
    assert [path.name for path in tmp_path.iterdir()] == ["bn+ln-seed0.ckpt"]
    main([*root, *words])  # the network is there now
    assert capsys.readouterr().out.splitlines()[0] == first.splitlines()[0]
