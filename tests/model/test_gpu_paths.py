"""What is computed in another way on a GPU gives what the plain way gives; tried on a CPU."""

import pytest
import torch
from reference.models import VARIANTS, name_of, relative_error, small_model, stored
from reference.molecules import TIED, molecule
from torch.nn.functional import embedding

from graphormer_sepnorm.graphs.batch import FIRST_ATOM_PAIR, TOKEN_PAIR
from graphormer_sepnorm.graphs.resident import BatchShape, ResidentGraphs
from graphormer_sepnorm.model import attention_ops
from graphormer_sepnorm.model.attention_ops import look_up_spread

SMILES = ("CCO", "c1ccccc1C(=O)O", "N", TIED["caffeine"], "C.CC(C)Cl", "C1CC1N")
SHAPE = BatchShape(60, ((6, 20),))


@pytest.fixture(scope="module")
def padded():
    """Vocabulary, and a batch with much padding, as a GPU has them."""
    store, vocabulary = stored([molecule(smiles) for smiles in SMILES])
    resident = ResidentGraphs(store, vocabulary, "cpu")
    return vocabulary, resident.batch(torch.arange(len(SMILES)), SHAPE)


class OnGpu(torch.Tensor):
    """Stands for a tensor of a GPU."""

    is_cuda = True


def groups(indices: torch.Tensor) -> int:
    """Size of the largest group of equal indices."""
    return int(indices.flatten().bincount().max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("compiled", [False, True])
def test_spread_look_up_is_the_plain_one(dtype, compiled, padded, monkeypatch):
    monkeypatch.setattr(attention_ops, "_SPREAD", 50)
    _, batch = padded
    table = torch.randn(FIRST_ATOM_PAIR + len(batch.type_distance), 3, dtype=dtype)
    table[0] = float("-inf")
    pair_type = batch.blocks[0].pair_type
    slope = torch.randn(*pair_type.shape, 3, dtype=dtype)
    results = []
    spread = look_up_spread
    if compiled:
        torch.compiler.reset()
        spread = torch.compile(spread, fullgraph=True, backend="eager")
    for look_up in (embedding, spread):
        own = table.clone().requires_grad_()
        rows = look_up(pair_type, own)
        rows.backward(slope)
        results.append((rows.detach(), own.grad))
    assert torch.equal(results[1][0], results[0][0])
    exact = 1e-12 if dtype == torch.float64 else 2e-6
    assert relative_error(results[1][1], results[0][1]) < exact


def test_no_row_is_looked_up_by_more_pairs_than_the_commonest_of_atoms(padded, monkeypatch):
    _, batch = padded
    pair_type = batch.blocks[0].pair_type
    looked_up = []

    def noted(indices, weight):
        looked_up.append(indices)
        return embedding(indices, weight)

    monkeypatch.setattr(attention_ops.functional, "embedding", noted)
    table = torch.randn(FIRST_ATOM_PAIR + len(batch.type_distance), 3)
    look_up_spread(pair_type, table)
    of_atoms = groups(pair_type[pair_type > TOKEN_PAIR])
    (taken,) = looked_up
    assert groups(taken) <= of_atoms < groups(pair_type)


@pytest.mark.parametrize("options", [VARIANTS[2], VARIANTS[-1]], ids=name_of)
def test_a_gpu_looks_up_spread_with_the_same_gradients_and_a_cpu_does_not(
    options, padded, monkeypatch
):
    vocabulary, batch = padded
    model = small_model(vocabulary, **options).train()
    used, results = [], []
    monkeypatch.setattr(
        attention_ops, "look_up_spread", lambda *given: used.append(0) or look_up_spread(*given)
    )
    table = model.bias.table
    for kind in (torch.Tensor, OnGpu):
        monkeypatch.setattr(
            model.bias, "table", lambda batch, kind=kind: table(batch).as_subclass(kind)
        )
        model.zero_grad()
        outputs = model(batch)
        (outputs * torch.linspace(1, 2, outputs.numel()).view_as(outputs)).sum().backward()
        results.append([outputs, *(parameter.grad for parameter in model.parameters())])
        assert bool(used) == (kind is OnGpu)
    largest = max(float(gradient.abs().max()) for gradient in results[0][1:])
    for one, other in zip(*results, strict=True):
        assert float((one - other).detach().abs().max()) < 1e-12 * largest
