"""The compiled functions give what the plain path gives, gradients too."""

import itertools
from dataclasses import replace

import pytest
import torch
from reference.compiled import assert_saved_tensors_may_be_moved, assert_threads_change_nothing
from reference.models import (
    EXTENSIONS,
    batch_of,
    batch_of_smiles,
    name_of,
    randomize,
    relative_error,
    small_config,
    small_model,
    stored,
)
from reference.molecules import C60, graph, molecule
from torch import Tensor
from torch_geometric.data import Data

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.kernels.library import switched_off
from graphormer_sepnorm.model.attention_ops import attend, pair_bias, share_bias
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.model.ops import usable

SMILES = ("CCO", "N", "c1ccccc1C(=O)O", "CC(C)(C)c1ccc2c(c1)[nH]c1ccccc12", "C1CC1.O", "C" * 30)

needs_kernels = pytest.mark.usefixtures("compiled_form")


@needs_kernels
def test_where_they_are_used():
    rows = torch.zeros(3, 8)
    assert usable(rows, 10)
    assert usable(rows, 13)  # as sixteen, of which three are zero
    assert not usable(rows, 33)
    assert not usable(rows.double())
    with torch.autocast("cpu", torch.bfloat16):
        assert not usable(rows)
    assert not usable(rows.to("meta"))
    with switched_off():
        assert not usable(rows)


@pytest.fixture(scope="module")
def batch() -> GraphBatch:
    return batch_of_smiles(*SMILES)[1]


@needs_kernels
@pytest.mark.parametrize(
    ("channels", "heads", "options"),
    [
        *((channels, 3, {}) for channels in (1, 4, 8, 10, 12, 16, 20, 24, 32)),
        *((8, 3, options) for options in EXTENSIONS),
        *((8, heads, {"bias_mixing": True}) for heads in (1, 5, 8, 9)),
        *((8, heads, {"encodings": "rrwp", "walk_steps": 21}) for heads in (1, 5, 8, 13)),
        *((4, 5, {"encodings": "rrwp", "walk_steps": steps}) for steps in (1, 5)),
        *((4, 5, {"encodings": "paths", "walk_steps": steps}) for steps in (1, 2, 21)),
    ],
    ids=lambda value: name_of(value) if isinstance(value, dict) else None,
)
def test_outputs_and_gradients_are_those_of_the_plain_path(channels, heads, options):
    """As near to float64 as the plain path is in float32: over several random models.

    In one nearly singular model either path may have one tensor that is off by ten times what the
    other has there.
    """
    vocabulary, batch = batch_of_smiles(*SMILES, attention_blocks=1 + channels % 3)
    config = small_config(width=heads * channels, heads=heads, **options)
    weights = torch.randn(len(SMILES), 2, dtype=torch.float64)
    errors = []
    for seed in range(3):
        torch.manual_seed(seed)
        model = Graphormer(config.for_vocabulary(vocabulary)).double()
        randomize(model)

        def outputs_and_gradients(model: Graphormer = model) -> list[Tensor]:
            outputs = model(batch)
            return [outputs, *torch.autograd.grad((outputs * weights).sum(), [*model.parameters()])]

        truth = outputs_and_gradients()
        model.float()
        with switched_off():
            plain = outputs_and_gradients()
        # The gradient of a key's bias is zero but for rounding.
        typical = float(torch.stack([exact.detach().abs().max() for exact in truth]).median())
        errors += [
            [relative_error(one, exact, typical) for one in (quick, slow)]
            for exact, slow, quick in zip(truth, plain, outputs_and_gradients(), strict=True)
        ]
    quick, slow = torch.tensor(errors).T
    assert quick.max() < max(5e-5, 4 * slow.max())
    assert quick.median() < max(1e-5, 4 * slow.median())


def asserted_with_paths(
    graphs: list[Data], steps: int
) -> tuple[Graphormer, GraphVocabulary, Tensor]:
    """Return a model that is told of paths, and what it gives, compiled or not."""
    _, vocabulary = stored(graphs)
    model = small_model(vocabulary, width=12, heads=3, encodings="paths", walk_steps=steps).float()
    batch = batch_of(graphs, vocabulary)
    quick = model(batch)
    with switched_off():
        assert relative_error(quick, model(batch)) < 1e-5
    return model, vocabulary, quick


@needs_kernels
def test_paths_of_cages_and_along_directed_bonds_are_those_of_the_plain_path():
    """C60 has more paths of up to 12 bonds than are counted."""
    ring, oneway = molecule("C1CCC1C"), molecule("C1CCC1C")
    kept = (oneway.edge_index != torch.tensor([[1], [0]])).any(0)
    oneway.edge_index, oneway.edge_attr = oneway.edge_index[:, kept], oneway.edge_attr[kept]
    assert kept.sum() == len(kept) - 1
    graphs = [molecule(C60), molecule("C1CC2CC1CC2"), oneway]
    model, vocabulary, quick = asserted_with_paths(graphs, 13)
    changed = model(batch_of([*graphs[:2], ring], vocabulary))
    assert relative_error(changed[:2], quick[:2]) < 1e-5
    assert relative_error(changed[2], quick[2]) > 1e-3


@needs_kernels
def test_many_paths_between_two_atoms_are_those_of_the_plain_path():
    """Of seven atoms, each bonded to each: 120 paths of five bonds lead from one to another."""
    asserted_with_paths([graph(7, list(itertools.combinations(range(7), 2)))] * 2, 7)


@needs_kernels
def test_the_number_of_threads_changes_nothing(batch):
    projected = torch.randn(len(batch.unpad), 3 * 24, requires_grad=True)
    table = torch.randn(2 + len(batch.type_distance), 3, requires_grad=True)

    def run() -> list[Tensor]:
        torch.manual_seed(0)
        biases = pair_bias(table, batch.blocks, 8)
        output = attend(projected, batch, biases, 3, 0.3)
        return [output, *torch.autograd.grad(output.square().sum(), [projected, table])]

    assert_threads_change_nothing(run)


@needs_kernels
def test_saved_tensors_may_be_moved(batch):
    def attended(rows: Tensor, table: Tensor) -> Tensor:
        return attend(rows, batch, pair_bias(table, batch.blocks, 8), 3, 0.0)

    table = torch.randn(2 + len(batch.type_distance), 3)
    assert_saved_tensors_may_be_moved(attended, torch.randn(len(batch.unpad), 3 * 24), table)


@needs_kernels
def test_rows_of_no_graph_are_zero_and_ask_for_nothing(batch):
    rows = len(batch.unpad)
    projected = torch.randn(rows + 5, 3 * 24, requires_grad=True)
    table = torch.randn(2 + len(batch.type_distance), 3)
    biases = pair_bias(table, batch.blocks, 8)
    output = attend(projected, batch, biases, 3, 0.0)
    assert output[:rows].abs().sum(1).min() > 0
    assert not output[rows:].any()
    [gradient] = torch.autograd.grad(output.square().sum(), projected)
    assert not gradient[rows:].any()


@needs_kernels
def test_what_is_not_a_number_stays_it(batch):
    projected = torch.randn(len(batch.unpad), 3 * 24)
    biases = pair_bias(torch.zeros(2 + len(batch.type_distance), 3), batch.blocks, 8)
    projected[0, 24] = float("nan")  # in the first head's key of the first graph's token
    output = attend(projected, batch, biases, 3, 0.0)
    assert output[0].isnan().tolist() == [True] * 8 + [False] * 16
    assert output[1].isfinite().all()  # another graph


@needs_kernels
@pytest.mark.parametrize(("tokens", "channels"), [(8, 8), (24, 24), (31, 32)])
def test_dropped_attention_weights(tokens, channels):
    """With unit vectors as values the output is the weights, so the mask can be read from it."""
    copies = 3200 // tokens
    graphs = [graph(tokens - 1, [(i, i + 1) for i in range(tokens - 2)])] * copies
    batch = batch_of(graphs, stored(graphs)[1])
    (block,), types = batch.blocks, 2 + len(batch.type_distance)
    rows = block.rows.numel()
    unit = torch.eye(tokens, channels).repeat(copies, 1)
    projected = torch.randn(rows, 3 * channels)
    projected[block.rows.flatten(), 2 * channels :] = unit
    projected.requires_grad_()
    table = torch.randn(types, 1, requires_grad=True)
    biases = pair_bias(table, [block], channels)

    def attended(dropout: float) -> Tensor:
        return attend(projected, batch, biases, 1, dropout)[block.rows]

    weights = attended(0.0)[..., :tokens]  # [copies, tokens, tokens]
    torch.manual_seed(1)
    dropped = attended(0.2)[..., :tokens]
    mask = (dropped / weights).detach()
    kept = mask > 0.5
    assert torch.allclose(mask[kept], torch.tensor(1.25), rtol=1e-4)
    assert not dropped[~kept].any()
    assert abs(kept.float().mean() - 0.8) < 5 * (0.16 / kept.numel()) ** 0.5
    torch.manual_seed(1)
    again = attended(0.2)[..., :tokens]
    assert torch.equal(again, dropped)
    other = attended(0.2)[..., :tokens]
    assert abs(((other > 0) == kept).float().mean() - 0.68) < 0.01  # 0.8^2 + 0.2^2

    # Backward: the same mask.
    slope = torch.randn(copies, tokens, tokens)
    quick = torch.autograd.grad((dropped * slope).sum(), [projected, table])
    query, key, value = projected[block.rows].split(channels, -1)
    logits = query @ key.transpose(1, 2) * channels**-0.5 + table[block.pair_type, 0]
    plain = ((logits.softmax(-1) * kept * 1.25) @ value)[..., :tokens]
    exact = torch.autograd.grad((plain * slope).sum(), [projected, table])
    for fast, slow in zip(quick, exact, strict=True):
        assert relative_error(fast, slow) < 1e-4


@needs_kernels
@pytest.mark.parametrize("mixed", [False, True])
def test_the_gradient_of_a_shared_bias_is_the_sum_of_its_uses(batch, mixed):
    projected = torch.randn(len(batch.unpad), 3 * 24, requires_grad=True)
    table = torch.randn(2 + len(batch.type_distance), 3, requires_grad=True)
    mixing = torch.randn(3, 3) if mixed else None
    gathered = pair_bias(table, batch.blocks, 8)
    shared = [share_bias(bias) for bias in gathered]

    def uses(biases: list) -> Tensor:
        biases = [replace(bias, mixing=mixing) for bias in biases]
        totals = [attend(projected * scale, batch, biases, 3, 0.0).sum() for scale in (1, 2, 3)]
        # One more use, which knows nothing of the common place.
        squares = torch.cat([bias.values for bias in biases]).square().sum()
        return torch.stack([*totals, squares])

    def gradient(total: Tensor) -> Tensor:
        return torch.autograd.grad(total, table, retain_graph=True)[0]

    truth, several = uses(gathered), uses(shared)
    for chosen in ([0, 1, 2, 3], [1], [3], [0, 2]):
        for _ in range(2):  # nothing is left over from the first time
            mine, plain = gradient(several[chosen].sum()), gradient(truth[chosen].sum())
            assert relative_error(mine, plain) < 1e-5
    # Nor where the bias's gradient is not asked for.
    torch.autograd.grad(several.sum(), projected, retain_graph=True)
    assert relative_error(gradient(several[0]), gradient(truth[0])) < 1e-5
