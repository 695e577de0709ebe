"""Initial values: from (seed, name) alone, with the spreads of the reference implementation."""

import math

import pytest
import torch
from reference.models import ARMS, batch_of, batch_of_smiles, small_config, small_model, stored
from reference.molecules import molecule
from torch import nn

from graphormer_sepnorm.model.config import GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer

SLIM = {"atom_rows": 64, "bond_rows": 64}


def initialized(seed: int = 0, **options) -> Graphormer:
    model = Graphormer(small_config(**(SLIM | options)))
    model.initialize(seed)
    return model


@pytest.mark.parametrize("position", ["pre", "post"])
def test_arms_share_all_parameters_that_are_not_norms_bit_for_bit(position):
    states = [initialized(3, norm=arm, norm_position=position).state_dict() for arm in ARMS]
    names = [{name for name in state if "norm" not in name} for state in states]
    assert all(own == names[0] for own in names)
    assert len(names[0]) > 30
    for state in states[1:]:
        for name in names[0]:
            assert torch.equal(state[name], states[0][name]), name


def test_values_depend_on_seed_and_name_only():
    first = initialized(1).state_dict()
    torch.manual_seed(123)
    again = initialized(1).state_dict()
    other = initialized(2).state_dict()
    deeper = initialized(1, layers=5).state_dict()
    for name, values in first.items():
        assert torch.equal(values, again[name])
        if values.is_floating_point() and values.std() > 0:
            assert not torch.equal(values, other[name]), name
            # Another depth changes the spread of linear weights but not the draw.
            scale = (2 / 5) ** 0.5 if "attention." in name or "ffn." in name else None
            scale = (2 / 5) ** 0.5 if name == "readout.weight" else scale
            assert torch.allclose(values * (scale or 1.0), deeper[name], rtol=1e-5), name
    weights = [values for name, values in first.items() if name.endswith("query.weight")]
    assert not torch.equal(*weights)


def test_initializing_again_forgets_training():
    vocabulary, batch = batch_of_smiles("CCO", "CN")
    model = Graphormer(small_config(norm="bn+bn").for_vocabulary(vocabulary))
    model.initialize(4)
    fresh = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.train()(batch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert not torch.equal(
        model.state_dict()["output_norm.graph_token_norm.running_mean"], torch.zeros(12)
    )
    model.initialize(4)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, fresh[name]), name


def test_initializing_draws_nothing_from_the_global_generator():
    model = initialized()
    state = torch.get_rng_state()
    model.initialize(2)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_default_device_changes_nothing_of_a_model_on_the_cpu():
    """Where graphs, initial values and the seeds of masks lie is not left to it."""
    options = {"bias_mixing": True, "norm": "bn+bn", "drop_path": 0.3, "encodings": "rings"}
    dropping = {"dropout": 0.3, "attention_dropout": 0.3}
    graphs, lonely = [molecule("CCO"), molecule("C.N")], molecule("C")
    vocabulary, batch = batch_of_smiles("CCO", "C.N")
    model = Graphormer(small_config(**options, **dropping).for_vocabulary(vocabulary)).train()

    def run(batch):
        model.initialize(3)
        model.zero_grad()
        torch.manual_seed(1)
        model(batch).square().sum().backward()
        return [p.grad for p in model.parameters()]

    wanted = run(batch)
    with torch.device("meta"):
        found = run(batch_of(graphs, vocabulary))
        assert batch_of([lonely], vocabulary).bond_rows.is_cpu
    for one, other in zip(found, wanted, strict=True):
        assert one is other is None or torch.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_every_dtype_starts_from_the_same_draws(dtype):
    plain = initialized(5)
    model = Graphormer(small_config(**SLIM)).to(dtype)
    model.initialize(5)
    for name, tensor in model.state_dict().items():
        assert torch.allclose(tensor.float(), plain.state_dict()[name].float(), rtol=1e-2), name


def test_spreads_of_the_slim_model():
    """Linear N(0, 0.02 / sqrt(layers)), tables N(0, 0.02), biases 0, norms the identity."""
    model = Graphormer(GraphormerConfig(**SLIM))
    checked = 0
    for prefix, module in model.named_modules():
        for name, parameter in module.named_parameters(prefix=prefix, recurse=False):
            values = parameter.detach()
            if "norm" in name:
                expected = 1.0 if name.endswith("weight") else 0.0
                assert (values == expected).all(), name
                continue
            if isinstance(module, nn.Linear) and name.endswith("bias"):
                assert (values == 0).all(), name
                continue
            std = 0.02 / math.sqrt(12) if isinstance(module, nn.Linear) else 0.02
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                values = values[1:]
            error = 5 / math.sqrt(2 * values.numel())
            assert float(values.std()) == pytest.approx(std, rel=max(error, 0.03)), name
            assert abs(float(values.mean())) < 5 * std / math.sqrt(values.numel()), name
            checked += 1
    assert checked == 12 * 6 + 9  # and the eight tables, the read-out
    buffers = dict(model.named_buffers())
    assert all((b == (1 if "var" in name else 0)).all() for name, b in buffers.items())


def test_rows_of_unknown_codes_are_zero_and_stay_it():
    known = [molecule("CCO"), molecule("CC=O")]
    _, vocabulary = stored(known)
    model = small_model(vocabulary).train()
    model.initialize(0)
    tables = (model.embedding.atom, model.bias.bond)
    for table in tables:
        assert (table.weight[0] == 0).all()
        assert (table.weight[1:] != 0).all()
    batch = batch_of([molecule("CC#N"), molecule("CCBr")], vocabulary)
    assert (batch.atom_rows == 0).any()
    assert (batch.bond_rows == 0).any()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(batch).square().sum().backward()
        for table in tables:
            assert (table.weight.grad[0] == 0).all()
            assert (table.weight.grad[1:] != 0).any()
        optimizer.step()
    for table in tables:
        assert (table.weight[0] == 0).all()
