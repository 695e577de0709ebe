"""What reports say of a model's embeddings: the measures of geometry.py, at every layer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from rdkit import Chem
from reference.models import small_model, stored
from reference.molecules import TIE_FREE, TIED, molecule

from graphormer_sepnorm.compare import geometry
from graphormer_sepnorm.compare.model_geometry import (
    CloudGeometry,
    cloud_geometry,
    collect_embeddings,
    geometry_per_layer,
    ring_counts,
)

SMILES = ("CCO", "N", *TIED.values(), *TIE_FREE.values(), "C.CC(C)Cl", "C1CC1.c1ccc2ccccc2c1", "F")


@pytest.fixture(scope="module")
def molecules():
    return stored([molecule(smiles) for smiles in SMILES])


@pytest.fixture(scope="module")
def embeddings(molecules):
    model = small_model(molecules[1], norm="bn+ln")
    return collect_embeddings(model, *molecules, np.arange(len(SMILES)))


def test_rings_are_those_of_rdkit(molecules):
    numbers = np.arange(len(SMILES))
    expected = [Chem.GetSSSR(Chem.MolFromSmiles(smiles)) for smiles in SMILES]
    assert ring_counts(molecules[0], numbers).tolist() == [len(rings) for rings in expected]
    assert ring_counts(molecules[0], numbers[::-3]).tolist() == [
        len(rings) for rings in expected[::-3]
    ]


def test_each_place_has_its_own_measures(embeddings):
    values = np.array([*range(len(SMILES) - 1), np.nan])
    check = np.arange(len(SMILES)) % 3 == 0
    measured = np.arange(len(SMILES)) % 4 != 2
    clouds = geometry_per_layer(
        *(embeddings, {"number": values}), learn=~check, check=check, clouds=measured
    )
    names = [layer.name for layer in embeddings.layers]
    assert [(one.layer, one.what) for one in clouds] == [
        (name, what) for name in names for what in ("graph token", "atoms")
    ]
    for place, token, atoms in zip(embeddings.layers, clouds[::2], clouds[1::2], strict=True):
        of_atoms = place.atoms[measured[place.graph_of_atom]]
        for one, rows in ((token, place.graph_token[measured]), (atoms, of_atoms)):
            assert one.embeddings == len(rows)
            assert one.uniformity == geometry.uniformity(rows)
            centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
            spectrum = np.linalg.svd(centred, compute_uv=False)
            assert one.effective_rank_centred == pytest.approx(geometry.effective_rank(spectrum))
            first = np.log(np.linalg.norm(rows, 2))
            assert one.log_singular_values[0] == pytest.approx(first, rel=1e-5)
            assert one.histogram is None
        cosines = geometry.cosine_to(place.graph_token, place.atoms, place.graph_of_atom)
        assert token.cosine_to_atoms == pytest.approx(cosines[measured].mean())
        # The molecule whose value is not known takes part in neither half.
        known = ~np.isnan(values)
        halves = known & ~check, known & check
        parts = [part for half in halves for part in (place.graph_token[half], values[half])]
        assert token.probes["number"] == geometry.linear_probe(*parts)


def test_histograms_at_the_output_and_all_molecules_by_default(embeddings):
    half = np.arange(len(SMILES)) % 2 == 0
    clouds = geometry_per_layer(embeddings, {}, learn=half, check=~half, histograms=True)
    assert [one.histogram is not None for one in clouds] == [
        one.layer == "output" for one in clouds
    ]
    assert {one.embeddings for one in clouds[::2]} == {len(SMILES)}


def test_uniformity_of_many_is_that_of_a_fair_sample():
    random = np.random.default_rng(0)
    cloud = np.concatenate([random.normal(size=(3000, 8)), np.ones((3000, 8))])
    found = cloud_geometry(cloud)
    assert found["embeddings"] == 6000
    assert found["uniformity"] == pytest.approx(geometry.uniformity(cloud), abs=0.05)
    assert found == cloud_geometry(cloud)


@pytest.mark.parametrize(
    ("cloud", "rank"),
    [(np.zeros((5, 4)), 0), (np.ones((5, 4)), 1), (np.array([[1.0, 0], [np.inf, 1]]), np.nan)],
)
def test_clouds_without_spread_are_measured_as_far_as_they_can_be(cloud, rank):
    found = cloud_geometry(cloud, histogram=True)
    found = CloudGeometry("output", "atoms", **found)
    assert found.effective_rank == pytest.approx(rank, nan_ok=True)
    assert found.effective_rank_centred == pytest.approx(rank * 0, nan_ok=True)
    collapsed = cloud.all() and np.isfinite(cloud).all()
    assert found.uniformity == pytest.approx(0) if collapsed else math.isnan(found.uniformity)


def test_one_molecule_has_no_pairs(molecules):
    model = small_model(molecules[1])
    alone = collect_embeddings(model, *molecules, np.array([0]))
    one = np.array([True])
    token = geometry_per_layer(alone, {"atoms": alone.num_atoms}, learn=~one, check=one)[0]
    assert math.isnan(token.uniformity)
    assert math.isnan(token.probes["atoms"])
    assert -1 <= token.cosine_to_atoms <= 1
