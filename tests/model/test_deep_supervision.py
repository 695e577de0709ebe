"""Read-outs between the layers: what they predict, and that evaluation does not know them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference.compiled import assert_threads_change_nothing
from reference.models import batch_of_smiles, relative_error, small_config, small_model
from reference.passes import EXACT
from torch import Tensor

from graphormer_sepnorm.kernels.library import library
from graphormer_sepnorm.model.batch_norm import MaskedBatchNorm
from graphormer_sepnorm.model.graphormer import Graphormer, log_odds
from graphormer_sepnorm.model.summary import count_parameters, parameter_table
from graphormer_sepnorm.training.batch_statistics import measure_batch_norm

SMILES, SIZES = ("CCO", "c1ccccc1C", "N"), (3, 7, 1)
OPTIONS: dict[str, Any] = {"layers": 5, "deep_supervision": 2, "mean_atoms": 2.5}
VARIANTS: tuple[dict[str, Any], ...] = (
    {"norm": "shared-bn"},
    {"norm": "shared-ln"},
    {"norm": "bn+ln"},
    {"norm": "ln+bn", "local_mpnn": "gine", "local_layers": 3},
    {"norm": "shared-bn", "norm_position": "post"},
    {"norm": "bn+bn", "exclusive": True},
)


def rows_after_layers(model: Graphormer) -> list[Tensor]:
    """Packed rows after each layer of the calls that follow."""
    rows: list[Tensor] = []
    for layer in model.layers:
        layer.register_forward_hook(lambda _, __, output: rows.append(output[0].detach()))
    return rows


@pytest.mark.parametrize(
    "options", VARIANTS, ids=lambda options: "-".join(map(str, options.values()))
)
def test_predictions_restated(options: dict[str, Any]) -> None:
    vocabulary, batch = batch_of_smiles(*SMILES)
    model = small_model(vocabulary, **OPTIONS, **options).train()
    rows = rows_after_layers(model)
    of = model.state_dict()
    with torch.no_grad():
        _, _, predictions = model.encode_deep(batch)
    assert len(predictions) == 2
    for place, made in zip((2, 4), predictions, strict=True):
        name = f"deep_readouts.{place}"
        atoms = rows[place - 1][len(SMILES) :]
        if options.get("norm_position") != "post":
            over = 0 if options["norm"].endswith("bn") else 1
            mean = atoms.mean(over, keepdim=True)
            spread = (atoms - mean).square().mean(over, keepdim=True)
            atoms = (atoms - mean) / (spread + 1e-5).sqrt()
            atoms = atoms * of[f"{name}.norm.weight"] + of[f"{name}.norm.bias"]
        wanted = torch.stack(
            [
                of[f"{name}.sum.weight"] @ (part.sum(0) / 2.5)
                + of[f"{name}.mean.weight"] @ (part.sum(0) / len(part))
                + of[f"{name}.sum.bias"]
                for part in atoms.split(SIZES)
            ]
        )
        wanted = log_odds(wanted) if options.get("exclusive") else wanted
        assert relative_error(made, wanted) < EXACT


@pytest.mark.parametrize("training", [True, False])
def test_what_predicts_is_the_same(training: bool) -> None:
    """And evaluation does not compute them."""
    vocabulary, batch = batch_of_smiles(*SMILES)
    model = small_model(vocabulary, **OPTIONS).train(training)
    plain = small_model(vocabulary, **(OPTIONS | {"deep_supervision": 0})).train(training)
    kept = {name: value for name, value in model.state_dict().items() if "deep" not in name}
    plain.load_state_dict(kept)
    assert torch.equal(model(batch), plain(batch))
    assert len(model.encode_deep(batch)[2]) == (2 if training else 0)
    assert plain.encode_deep(batch)[2] == []


def test_other_parameters_start_as_without() -> None:
    sizes = {"atom_rows": 9, "bond_rows": 7}
    state = Graphormer(small_config(**OPTIONS, **sizes)).state_dict()
    plain = Graphormer(small_config(**(OPTIONS | {"deep_supervision": 0}), **sizes)).state_dict()
    assert {name for name in state if name not in plain} == {
        name for name in state if name.startswith("deep_readouts.")
    }
    assert all(torch.equal(state[name], value) for name, value in plain.items())


def test_gradients_reach_the_layers_before() -> None:
    vocabulary, batch = batch_of_smiles(*SMILES)
    model = small_model(vocabulary, **OPTIONS).train()
    model.encode_deep(batch)[2][0].sum().backward()
    assert all(p.grad is not None for layer in model.layers[:2] for p in layer.ffn.parameters())
    assert all(p.grad is None for layer in model.layers[2:] for p in layer.parameters())
    assert all(p.grad is not None for p in model.deep_readouts["2"].parameters())


@pytest.mark.skipif(library() is None, reason="the kernels are not compiled")
@pytest.mark.parametrize("norm", ["shared-bn", "shared-ln"])
def test_the_number_of_threads_changes_nothing(norm: str) -> None:
    vocabulary, batch = batch_of_smiles(*SMILES * 50)
    readout = small_model(vocabulary, norm=norm, **OPTIONS).float().deep_readouts["2"].train()
    rows = torch.randn(len(batch.unpad), 12, requires_grad=True)
    slope = torch.randn(batch.num_graphs, 2)

    def run() -> list[Tensor]:
        made = readout(rows, batch)
        return [made.detach(), *torch.autograd.grad(made, [rows, *readout.parameters()], slope)]

    assert_threads_change_nothing(run)


def test_their_statistics_are_measured_too() -> None:
    """Evaluation has no use for them, but training with constant statistics has."""
    vocabulary, batch = batch_of_smiles(*SMILES)
    model = small_model(vocabulary, norm="shared-bn", **OPTIONS)
    rows = rows_after_layers(model)
    measure_batch_norm(model, [batch])
    for place in (2, 4):
        norm = model.deep_readouts[str(place)].norm
        assert isinstance(norm, MaskedBatchNorm)
        atoms = rows[place - 1][len(SMILES) :]
        torch.testing.assert_close(norm.running_mean, atoms.mean(0))
        torch.testing.assert_close(norm.running_var, atoms.var(0))
    assert not any(module.training for module in model.modules())


def test_their_place_and_cost() -> None:
    sizes = {"atom_rows": 9, "bond_rows": 7}
    plain = count_parameters(Graphormer(small_config(**sizes, layers=6)))
    for every, places in ((1, "12345"), (2, "24"), (3, "3"), (4, "4"), (0, "")):
        model = Graphormer(small_config(**sizes, layers=6, deep_supervision=every))
        assert list(model.deep_readouts) == list(places)
        # Two targets, 12 channels: a norm's two vectors, two maps, a bias of each target.
        assert count_parameters(model) == plain + len(places) * (2 * 12 + 2 * 2 * 12 + 2)
        assert ("read-outs between layers" in parameter_table(model)) == bool(places)
