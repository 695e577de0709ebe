"""Embeddings: what the network's last norm gives of each molecule, whatever its company."""

import itertools

import numpy as np
import pytest
import torch
from rdkit import Chem
from reference.checkpoints import make_checkpoint
from reference.models import EVERYTHING
from reference.molecules import spellings

from graphormer_sepnorm.chem.features import get_featurizer
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.inference import batching
from graphormer_sepnorm.inference.predictor import Predictor

SMILES = ["CCO", "c1ccccc1", "no molecule", "CC(=O)N", "", "[Si]", "C#N", "c1ccncc1CCOC"]
GOOD = [0, 1, 3, 6, 7]


@pytest.mark.parametrize("options", [{}, EVERYTHING, {"norm_position": "post", "readout": "mean"}])
def test_embeddings_are_what_the_network_encodes(options, monkeypatch):
    """All molecules in one batch, by the network; and whatever the company and the chunks."""
    predictor = Predictor(make_checkpoint(**options), device="cpu")
    featurize = predictor.reader.featurizer.featurize
    graphs = [featurize(Chem.MolFromSmiles(SMILES[place])) for place in GOOD]
    store = GraphStore.from_graphs(graphs, predictor.model.config.max_path_length)
    with torch.no_grad():
        batch = Collator(store, predictor.vocabulary)(range(len(GOOD)))
        token, atoms = (part.numpy() for part in predictor.model.encode(batch))
    found = predictor.embed(SMILES, atoms=True)
    alone = [predictor.embed(text, atoms=True) for text in SMILES]
    monkeypatch.setattr(batching, "CHUNK_ROWS", 3)
    for values, of_atoms in (
        (found.values, found.atoms),
        *[[np.concatenate([getattr(one, name) for one in alone]) for name in ("values", "atoms")]],
        (predictor.embed(SMILES, batch_size=2, atoms=True).values, found.atoms),
    ):
        assert values.dtype == of_atoms.dtype == np.float32
        np.testing.assert_allclose(values[GOOD], token, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(of_atoms, atoms, rtol=1e-4, atol=1e-5)
    assert found.counts.tolist() == [3, 6, 0, 4, 0, 0, 2, 10]
    assert predictor.embed(SMILES).atoms is None
    assert bool(found.note) is (predictor.model.config.readout == "mean")
    assert found.smiles == tuple(SMILES)
    assert np.isfinite(found.values).all(axis=1).tolist() == [n in GOOD for n in range(8)]
    assert found.errors == predictor.predict(SMILES).errors
    assert np.isnan(found.values[[2, 4, 5]]).all()


def test_nothing_and_what_is_not_finite():
    predictor = Predictor(make_checkpoint(), device="cpu")
    found = predictor.embed([], atoms=True)
    assert found.values.shape == found.atoms.shape == (0, 16)
    assert len(found.counts) == 0
    with torch.no_grad():
        predictor.model.output_norm.graph_token_norm.weight.fill_(np.inf)
    found = predictor.embed(["CCO"], atoms=True)
    assert found.errors == ("the model gives no finite embedding for it",)
    assert np.isnan(found.values).all()
    assert len(found.atoms) == 0


@pytest.mark.parametrize("name", ["molecule-1", "zinc-1"])
def test_atoms_of_a_graph_are_found_again(name):
    """The graphs of ZINC's features have their atoms in an order of their own."""
    featurizer = get_featurizer(name)
    molecules = ("CC(=O)Oc1ccccc1C(=O)[O-]", "C[C@H](N)c1c[nH]cn1", "OC1CC2CCC1(C)C2", "FC#N")
    for text in itertools.chain(*(spellings(smiles, 3) for smiles in molecules)):
        parsed = parse_smiles(text)
        prepared = featurizer.prepare(parsed.molecule)
        places = featurizer.atom_order(parsed.molecule)
        assert sorted(places) == list(range(prepared.GetNumAtoms()))
        for atom, place in zip(parsed.molecule.GetAtoms(), places, strict=True):
            other = prepared.GetAtomWithIdx(place)
            assert atom.GetSymbol() == other.GetSymbol()
            assert {places[n.GetIdx()] for n in atom.GetNeighbors()} == {
                n.GetIdx() for n in other.GetNeighbors()
            }
