"""Dropout, of values and of whole branches: where it acts, and what then becomes of the rows."""

import pytest
import torch
from reference.models import batch_of_smiles, relative_error, small_model

from graphormer_sepnorm.model.graphormer import branch_scales
from graphormer_sepnorm.model.ops import dropout

SMILES = ("CCO", "c1ccccc1", "N", "CC(C)Cl")
needs_kernels = pytest.mark.usefixtures("compiled_form")


@pytest.fixture(scope="module")
def molecules():
    return batch_of_smiles(*SMILES)


# In float32 the compiled functions drop, in float64 torch.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "input_dropout", "drop_path"])
def test_each_dropout_acts_in_training_alone(kind, dtype, molecules):
    vocabulary, batch = molecules
    plain, dropping = (
        small_model(vocabulary, norm="ln+ln", width=24, **options).to(dtype)
        for options in ({}, {kind: 0.5})
    )
    with torch.no_grad():
        assert torch.equal(dropping(batch), plain(batch))
        truth = plain.train()(batch)
        dropping.train()
        draws = []
        for seed in (1, 2, 1):
            torch.manual_seed(seed)
            draws.append(dropping(batch))
    assert relative_error(draws[0], truth) > 1e-2
    assert relative_error(draws[0], draws[1]) > 1e-2
    assert torch.equal(draws[0], draws[2])


@needs_kernels
@pytest.mark.parametrize("size", [1, 7, 8, 1003, 300_001])
def test_dropout_into_the_residual_stream(size):
    torch.manual_seed(2)
    update = torch.randn(size, requires_grad=True)
    residual = torch.randn(size, requires_grad=True)
    state = torch.get_rng_state()
    total = dropout(update, 0.25, residual)
    torch.set_rng_state(state)
    alone = dropout(update, 0.25)
    assert torch.allclose(total, residual + alone)
    kept = alone.detach() != 0
    assert torch.allclose(alone[kept], update[kept] / 0.75)
    mine, others = torch.autograd.grad(total.sum(), [update, residual])
    assert torch.allclose(mine, kept / 0.75)
    assert torch.equal(others, torch.ones(size))


@needs_kernels
def test_masks_are_random():
    torch.manual_seed(3)
    masks = torch.stack([dropout(torch.ones(40_000), 0.1) > 0 for _ in range(20)]).double()
    spread = (0.09 / masks[0].numel()) ** 0.5
    assert (masks.mean(1) - 0.9).abs().max() < 4.5 * spread
    assert abs(float(masks.mean()) - 0.9) < 4.5 * spread / 20**0.5
    centered = (masks - 0.9) / 0.3
    for distance in (1, 2, 7, 8, 80, 1024):  # neighbors, lanes, rows
        products = centered[:, distance:] * centered[:, :-distance]
        assert abs(float(products.mean())) < 4.5 / products.numel() ** 0.5
    between = centered @ centered.T / masks.shape[1]
    assert float((between - torch.eye(20)).abs().max()) < 4.5 / masks.shape[1] ** 0.5 + 0.02


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


def test_the_last_layer_skips_as_often_as_was_asked(molecules):
    vocabulary, batch = molecules
    model = small_model(vocabulary, norm="shared-ln", layers=3, drop_path=0.6).train()
    torch.manual_seed(8)
    found, _ = model.encode(batch)
    torch.manual_seed(8)
    rows, biases = model.embedding(batch), model.bias(batch)
    for layer, scales in zip(model.layers, branch_scales(batch, 3, 0.6).double(), strict=True):
        rows, _ = layer(rows, batch, biases, scales)
    assert relative_error(found, model.output_norm(rows, len(SMILES))[: len(SMILES)]) < 1e-12


@pytest.mark.parametrize("position", ["pre", "post"])
def test_a_skipped_branch_leaves_its_graphs_alone_and_reaches_no_other(molecules, position):
    vocabulary, batch = molecules
    model = small_model(vocabulary, norm="shared-ln", norm_position=position)
    layer = model.layers[0]
    rows, biases = model.embedding(batch), model.bias(batch)
    of_row = torch.cat([torch.arange(len(SMILES)), batch.graph_of_atom])
    whole, _ = layer(rows, batch, biases)
    scales = torch.ones(2, len(rows), 1)
    scales[:, of_row == 1] = 0
    scales[0, of_row == 2] = 0
    scales[1, of_row == 3] = 2
    result, _ = layer(rows, batch, biases, scales)
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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_of_another_precision_stays_in_it(dtype, molecules):
    vocabulary, batch = molecules
    models = [
        small_model(vocabulary, norm="ln+ln", drop_path=0.5).to(kind).train()
        for kind in (torch.float32, dtype)
    ]
    predictions = []
    for model in models:
        torch.manual_seed(6)
        predictions.append(model(batch))
        predictions[-1].sum().backward()
    assert predictions[1].dtype == dtype
    # The same branches are skipped: scales are drawn before they are rounded.
    assert relative_error(predictions[1].float(), predictions[0]) < 0.1


def test_nothing_is_drawn_where_nothing_is_dropped(molecules):
    vocabulary, batch = molecules
    plain = small_model(vocabulary, norm="shared-ln").train()
    evaluated = small_model(vocabulary, norm="shared-ln", drop_path=0.5)
    state = torch.get_rng_state()
    plain(batch)
    evaluated(batch)
    assert torch.equal(torch.get_rng_state(), state)
