"""Explanations of a predictor: their values, order and unit, and what they leave out."""

import numpy as np
import pandas
import pytest
from rdkit import Chem
from reference.checkpoints import make_checkpoint, with_column
from reference.models import EVERYTHING
from reference.trees import boosted_trees

from graphormer_sepnorm.baselines.blend import Blend
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.inference import batching, explain
from graphormer_sepnorm.inference.checkpoint import BLEND, KEY, joined
from graphormer_sepnorm.inference.explain import METHODS, Explainer
from graphormer_sepnorm.inference.predictor import Predictor
from graphormer_sepnorm.uncertainty.calibration import Calibration, Map
from graphormer_sepnorm.uncertainty.uncertainty import Uncertainty

SMILES = ["CCO", "Cc1ccccc1", "no molecule", "CC(=O)Nc1ccncc1", "", "[Si]", "C#N"]
GOOD = [0, 1, 3, 6]


@pytest.fixture(scope="module", params=[{}, EVERYTHING], ids=["plain", "all"])
def predictor(request):
    return Predictor(make_checkpoint(**request.param), device="cpu")


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    """Enough for what holds of any quadrature."""
    monkeypatch.setattr(explain, "STEPS", 5)


def contributions_of(explanations):
    return np.concatenate([one.contributions for one in explanations.molecules])


@pytest.mark.parametrize("method", METHODS)
def test_rows_keep_their_places_and_bad_ones_say_why(predictor, method):
    found = predictor.explain(SMILES, method=method)
    predicted = predictor.predict(SMILES)
    assert (found.target, found.method) == ("property", method)
    assert [one.smiles for one in found.molecules] == SMILES
    assert [one.error for one in found.molecules] == list(predicted.errors)
    assert [one.warning for one in found.molecules] == list(predicted.warnings)
    assert [len(one.contributions) for one in found.molecules] == [3, 7, 0, 10, 0, 0, 2]
    values = np.array([[one.prediction, one.value] for one in found.molecules])
    np.testing.assert_allclose(values[GOOD], predicted.values[GOOD].repeat(2, 1), rtol=1e-5)
    assert np.isnan(values[[2, 4, 5]]).all()
    assert "<svg" in found.molecules[0]._repr_svg_()
    assert found.molecules[2]._repr_svg_() is None
    assert predictor.explain([]).molecules == ()


@pytest.mark.parametrize("method", METHODS)
def test_contributions_follow_their_atoms(predictor, method):
    """And atoms that are alike contribute the same; fragments have the sum of their atoms."""
    molecule = Chem.MolFromSmiles("CC(=O)Nc1ccncc1")
    order = np.random.default_rng(0).permutation(molecule.GetNumAtoms())
    other = Chem.RenumberAtoms(molecule, order.tolist())
    smiles = Chem.MolToSmiles(other, canonical=False)
    written = list(other.GetPropsAsDict(True, True)["_smilesAtomOutputOrder"])
    assert written != list(range(len(written)))
    one, two = predictor.explain(["CC(=O)Nc1ccncc1", smiles], method=method).molecules
    np.testing.assert_allclose(
        two.contributions, one.contributions[order][written], rtol=1e-3, atol=1e-4
    )
    for first, second in ((5, 9), (6, 8)):
        assert one.contributions[first] == pytest.approx(one.contributions[second], abs=2e-4)
    assert one.fragments == ((0, 1, 2), (3,), tuple(range(4, 10)))
    assert one.of_fragments.sum() == pytest.approx(one.contributions.sum(), rel=1e-6)
    assert sorted(one.of_fragments) == pytest.approx(sorted(two.of_fragments), rel=1e-3, abs=1e-4)


def test_atoms_of_zinc_are_those_of_the_smiles():
    """Its graphs have their atoms in an order of their own."""
    predictor = Predictor.load("zinc", "cpu")
    one, two = predictor.explain(["OCCc1ccccc1", "c1ccccc1CCO"]).molecules
    assert one.contributions[0] == pytest.approx(two.contributions[8], rel=1e-3)
    assert one.contributions[2] == pytest.approx(two.contributions[6], rel=1e-3)
    assert np.argmin(one.contributions[:3]) == 0  # oxygen lowers logP


@pytest.mark.parametrize("method", METHODS)
def test_neither_company_nor_batches_nor_chunks_matter(predictor, method, monkeypatch):
    together = contributions_of(predictor.explain(SMILES, method=method))
    alone = [contributions_of(predictor.explain(text, method=method)) for text in SMILES]
    np.testing.assert_allclose(np.concatenate(alone), together, rtol=1e-3, atol=1e-4)
    monkeypatch.setattr(batching, "CHUNK_ROWS", 3)
    parts = contributions_of(predictor.explain(SMILES, method=method, batch_size=2))
    np.testing.assert_allclose(parts, together, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_contributions_are_in_the_unit_of_the_target(method):
    checkpoint = make_checkpoint()
    one = Predictor(checkpoint, "cpu").explain("CC(=O)N", method=method)
    assert one.unit == "mol/L"
    checkpoint[KEY] = checkpoint[KEY] | {"target_std": [6.0], "target_mean": [-1.0]}
    other = Predictor(checkpoint, "cpu").explain("CC(=O)N", method=method)
    np.testing.assert_allclose(contributions_of(other), 3 * contributions_of(one), rtol=1e-6)
    assert other.molecules[0].baseline == pytest.approx((one.molecules[0].baseline - 3) * 3 - 1)


@pytest.mark.parametrize("method", METHODS)
def test_of_classes_the_log_odds_are_explained(method):
    predictor = Predictor(make_checkpoint(kind="binary", targets=("a", "b")), "cpu")
    found = predictor.explain("CC(=O)N", "b", method)
    assert (found.target, found.unit) == ("b", "log-odds")
    [one] = found.molecules
    assert one.prediction == pytest.approx(predictor.predict("CC(=O)N").values[0, 1], rel=1e-6)
    assert one.prediction == pytest.approx(1 / (1 + np.exp(-one.value)), rel=1e-5)
    assert one.value == pytest.approx(one.baseline + one.contributions.sum() + one.rest)


@pytest.mark.parametrize("method", METHODS)
def test_an_ensemble_is_explained_by_the_mean_of_its_members(method):
    each = [make_checkpoint(norm="bn+bn") for _ in range(2)]
    both = Predictor(joined({f"member seed {n}": one for n, one in enumerate(each)}), "cpu")
    alone = [
        contributions_of(Predictor(one, "cpu").explain("CC(=O)N", method=method)) for one in each
    ]
    found = contributions_of(both.explain("CC(=O)N", method=method))
    assert np.abs(alone[0] - alone[1]).max() > 1e-3
    np.testing.assert_allclose(found, np.mean(alone, axis=0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("blended", [False, True])
def test_what_is_not_explained_is_said(blended):
    checkpoint = make_checkpoint(kind="binary")
    if blended:
        checkpoint |= {BLEND: Blend.of_trees(boosted_trees("binary")[0], 0.3).to_plain()}
    predictor = Predictor(checkpoint, "cpu")
    one = Calibration(Map(), *np.ones((2, 9)), (9, 9))
    for temperature, calibrated in ((1.0, []), (2.5, ["calibration"])):
        predictor.uncertainty = Uncertainty((one,), temperature=temperature)
        others = ", ".join(["the trees of the blend"] * blended + calibrated)
        said = f"explained is the value of the network, without {others}"
        assert Explainer(predictor).coverage == (said if others else "")


def test_trees_of_a_blend_are_not_explained():
    checkpoint = make_checkpoint(targets=("a", "b"))
    network = Predictor(checkpoint, "cpu").explain("CC(C)CO", "a")
    trees, _ = boosted_trees(targets=2, without=1)
    blended = Predictor(checkpoint | {BLEND: Blend.of_trees(trees, 0.3).to_plain()}, "cpu")
    found = blended.explain("CC(C)CO", "a")
    np.testing.assert_allclose(contributions_of(found), contributions_of(network))
    assert found.molecules[0].prediction == blended.predict("CC(C)CO").values[0, 0]
    assert found.molecules[0].value == network.molecules[0].value


def test_numbers_beside_the_molecule_are_in_the_baseline():
    predictor = Predictor(with_column(), "cpu")
    found = predictor.explain(["CC(=O)N"] * 2, columns={"pH": [45.0, 60.0]})
    frame = pandas.DataFrame({"pH": [45.0, 60.0]})
    values = predictor.predict(["CC(=O)N"] * 2, columns=frame).values[:, 0]
    assert "the effect of pH is in the baseline" in found.coverage
    assert [one.value for one in found.molecules] == pytest.approx(values.tolist(), rel=1e-5)
    assert abs(found.molecules[0].baseline - found.molecules[1].baseline) > 0.01
    one_for_all = predictor.predict(["CC(=O)N"] * 2, columns={"pH": 60.0}).values[:, 0]
    np.testing.assert_allclose(one_for_all, values[1], rtol=1e-5)
    # They go with their molecules where another one cannot be read.
    given = {"smiles": ["C1CC", "CC(=O)N", "CC(=O)N"], "columns": {"pH": [99.0, 45.0, 60.0]}}
    np.testing.assert_allclose(predictor.predict(**given).values[1:, 0], values, rtol=1e-5)
    explained = predictor.explain(**given).molecules[1:]
    assert [one.value for one in explained] == pytest.approx(values.tolist(), rel=1e-5)


@pytest.mark.parametrize("given", [["7", "acid"], [7.0, pandas.NA], [[7.0], [8.0]], [7.0]], ids=str)
def test_columns_that_hold_no_numbers_are_named(given):
    predictor = Predictor(with_column(), "cpu")
    for ask in (predictor.predict, predictor.explain):
        with pytest.raises(DataError, match="pH"):
            ask(["CO", "CC"], columns={"pH": given})


@pytest.mark.parametrize(
    ("norm", "method"),
    [("bn+bn", "integrated_gradients"), ("ln+bn", "integrated_gradients")]
    + [(norm, "leave_one_fragment_out") for norm in ("bn+ln", "shared-ln")],
)
def test_the_default_is_by_the_norm_of_the_atoms(norm, method):
    predictor = Predictor(make_checkpoint(norm=norm), "cpu")
    found, expected = predictor.explain("CCO"), predictor.explain("CCO", method=method)
    assert found.method == method
    np.testing.assert_array_equal(contributions_of(found), contributions_of(expected))
