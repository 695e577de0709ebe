"""Weight decay acts on the matrices of linear layers, unless told otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lightning.pytorch import Trainer
from torch._subclasses.fake_tensor import FakeTensorMode

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.training.optimizer import OPTIMIZERS, decay_groups, make_optimizer


def fitted(make_module: Callable, make_data: Callable, make_trainer: Callable) -> GraphormerModule:
    module = make_module(weight_decay=0.3, betas=(0.8, 0.9), eps=1e-6)
    make_trainer(max_epochs=1).fit(module, make_data())
    return module


def test_only_matrices_of_linear_layers_decay(
    make_module: Callable[..., GraphormerModule],
    make_data: Callable[..., MoleculeDataModule],
    make_trainer: Callable[..., Trainer],
) -> None:
    module = fitted(make_module, make_data, make_trainer)
    decayed, kept = decay_groups(module.model, 0.3)
    names = {id(parameter): name for name, parameter in module.model.named_parameters()}
    assert decayed["weight_decay"] == 0.3
    assert kept["weight_decay"] == 0.0
    linear = {
        f"{name}.weight"
        for name, part in module.model.named_modules()
        if isinstance(part, torch.nn.Linear)
    }
    assert {names[id(parameter)] for parameter in decayed["params"]} == linear
    kept_names = {names[id(parameter)] for parameter in kept["params"]}
    assert kept_names == set(names.values()) - linear
    for part in ("graph_token", "bias", "norm", "embedding.atom", "in_degree", "spatial"):
        assert any(part in name for name in kept_names), part


def test_all_parameters_decay_if_asked_for(
    make_module: Callable[..., GraphormerModule],
    make_data: Callable[..., MoleculeDataModule],
    make_trainer: Callable[..., Trainer],
) -> None:
    module = make_module(weight_decay=0.3, weight_decay_on="all")
    make_trainer(max_epochs=1).fit(module, make_data())
    decayed, kept = module.optimizers().optimizer.param_groups
    assert len(decayed["params"]) == len(list(module.model.parameters()))
    assert not kept["params"]
    with pytest.raises(ConfigError, match="weight_decay_on is 'none'"):
        make_module(weight_decay_on="none")


def test_optimiser_has_the_options_of_the_module(
    make_module: Callable[..., GraphormerModule],
    make_data: Callable[..., MoleculeDataModule],
    make_trainer: Callable[..., Trainer],
) -> None:
    module = fitted(make_module, make_data, make_trainer)
    optimizer = module.optimizers().optimizer
    assert isinstance(optimizer, torch.optim.AdamW)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.3, 0.0]
    assert {tuple(group["betas"]) for group in optimizer.param_groups} == {(0.8, 0.9)}
    assert {group["eps"] for group in optimizer.param_groups} == {1e-6}


def test_embedding_without_gradient_is_left_alone() -> None:
    table = torch.nn.Embedding(3, 2)
    before = table.weight.detach().clone()
    optimizer = make_optimizer(table, 0.1, 0.5, (0.9, 0.999), 1e-8)
    table(torch.tensor([0])).sum().backward()
    optimizer.step()
    assert not torch.equal(table.weight[0], before[0])
    assert torch.equal(table.weight[1:], before[1:])


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    ("device", "mixed", "fused"),
    [("cpu", False, True), ("cpu", True, None), ("cuda", False, True), ("cuda", True, None)],
)
def test_no_device_is_told_to_take_one_parameter_after_the_other(
    name: str, device: str, mixed: bool, fused: bool | None
) -> None:
    """``fused=False`` would choose torch's loop, also where it has something better."""
    model = torch.nn.Module()
    model.layers = torch.nn.Linear(2, 2, bias=False)
    with FakeTensorMode():  # there need not be a GPU
        model.layers.weight = torch.nn.Parameter(torch.empty(2, 2, device=device))
        optimizer = make_optimizer(model, 0.1, 0.5, (0.9, 0.9), 1e-8, name=name, mixed=mixed)
    for group in optimizer.param_groups:
        assert group["fused"] is fused
        assert group["foreach"] is None
