"""Stochastic depth: which graphs skip which branches, and what then becomes of their rows."""

from __future__ import annotations

import pytest
import torch
from reference.models import batch_of, relative_error, small_model, stored
from reference.molecules import molecule

from graphormer_sepnorm.model.drop_path import branch_scales

SMILES = ("CCO", "c1ccccc1", "N", "CC(C)Cl")


@pytest.fixture(scope="module")
def molecules():
    graphs = [molecule(smiles) for smiles in SMILES]
    vocabulary = stored(graphs)[1]
    return vocabulary, batch_of(graphs, vocabulary)


def test_all_tokens_of_a_graph_go_the_same_way(molecules):
    batch = molecules[1]
    scales = branch_scales(batch, 3, 0.6)
    assert scales.shape == (3, 2, len(batch.unpad), 1)
    tokens, atoms = scales[:, :, : len(SMILES)], scales[:, :, len(SMILES) :]
    assert torch.equal(atoms, tokens[:, :, batch.graph_of_atom])
    for layer, skipping in zip(tokens, (0.2, 0.4, 0.6), strict=True):
        assert torch.allclose(layer[layer > 0], torch.tensor(1 / (1 - skipping)))


def test_frequencies_grow_with_the_layer_and_means_are_one(molecules):
    torch.manual_seed(5)
    draws = torch.stack([branch_scales(molecules[1], 4, 0.4)[:, :, :4, 0] for _ in range(4000)])
    skipped = (draws == 0).double()
    for layer, probability in enumerate((0.1, 0.2, 0.3, 0.4)):
        spread = (probability * (1 - probability) / 4000) ** 0.5
        assert (skipped[:, layer].mean(0) - probability).abs().max() < 4.5 * spread
    assert (draws.double().mean(0) - 1).abs().max() < 0.06
    # Branches, layers and graphs are drawn apart.
    columns = skipped.flatten(1)
    correlations = torch.corrcoef(columns.T) - torch.eye(columns.shape[1])
    assert correlations.abs().max() < 4.5 / 4000**0.5


@pytest.mark.parametrize("position", ["pre", "post"])
def test_a_skipped_branch_leaves_its_graphs_alone_and_reaches_no_other(molecules, position):
    vocabulary, batch = molecules
    model = small_model(vocabulary, norm="shared-ln", norm_position=position)
    layer = model.layers[0]
    rows, biases = model.embedding(batch), model.bias(batch)
    of_row = torch.cat([torch.arange(len(SMILES)), batch.graph_of_atom])
    whole = layer(rows, batch, biases)
    scales = torch.ones(2, len(rows), 1)
    scales[:, of_row == 1] = 0
    scales[0, of_row == 2] = 0
    scales[1, of_row == 3] = 2
    result = layer(rows, batch, biases, scales)
    assert torch.equal(result[of_row == 0], whole[of_row == 0])

    def norm(which, x):
        return which(x, 0)

    def second(x, scale=1.0):
        if position == "pre":
            return x + scale * layer.ffn(norm(layer.ffn_norm, x))
        x = norm(layer.attention_norm, x)
        return norm(layer.ffn_norm, x + scale * layer.ffn(x))

    assert relative_error(result[of_row == 1], second(rows[of_row == 1], 0.0)) < 1e-12
    assert relative_error(result[of_row == 2], second(rows[of_row == 2])) < 1e-12
    before = norm(layer.attention_norm, rows) if position == "pre" else rows
    mixed = rows + layer.attention(before, batch, biases)
    assert relative_error(result[of_row == 3], second(mixed[of_row == 3], 2.0)) < 1e-12


def test_the_seed_decides_and_only_when_something_is_drawn(molecules):
    vocabulary, batch = molecules
    model = small_model(vocabulary, norm="shared-ln", drop_path=0.5).train()
    outputs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outputs.append(model(batch))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
    plain = small_model(vocabulary, norm="shared-ln").train()
    state = torch.get_rng_state()
    plain(batch)
    model.eval()(batch)
    assert torch.equal(torch.get_rng_state(), state)
