"""What weight decay acts on, the learning rate of each step, and what a resumed run keeps."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from graphormer_sepnorm.training.optimizer import (
    decay_groups,
    make_optimizer,
    make_schedule,
    renew_options,
)


def test_only_matrices_of_linear_layers_decay(train: Callable) -> None:
    module, _, _ = train(max_epochs=1)
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


def test_all_parameters_decay_if_asked_for(train: Callable) -> None:
    module, _, _ = train(model={"weight_decay": 0.3, "weight_decay_on": "all"}, max_epochs=1)
    decayed, kept = module.optimizers().optimizer.param_groups
    assert len(decayed["params"]) == len(list(module.model.parameters()))
    assert not kept["params"]


@pytest.mark.parametrize("decayed", ["matrices", "all"])
def test_frozen_parameters_are_in_no_group(decayed: str) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    model[0].requires_grad_(False)
    groups = decay_groups(model, 0.3, decayed)
    trained = {id(parameter) for group in groups for parameter in group["params"]}
    assert trained == {id(parameter) for parameter in model[1].parameters()}


def test_a_warm_up_longer_than_the_training_is_said(caplog: pytest.LogCaptureFixture) -> None:
    for warmup in (10, 1.0 - 1e-9, 11):
        caplog.clear()
        optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), 0.5)
        make_schedule(
            optimizer, total_steps=10, warmup=warmup, peak=0.5, final=0.0, schedule="linear"
        )
        assert ("--model.warmup_steps 11 is longer" in caplog.text) == (warmup == 11)


def test_optimiser_has_the_options_of_the_module(train: Callable) -> None:
    model = {"weight_decay": 0.3, "betas": (0.8, 0.9), "eps": 1e-6}
    module, _, _ = train(model=model, max_epochs=1)
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


@pytest.mark.parametrize("name", ["adamw", "muon"])
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


V1 = {"total_steps": 400_000, "warmup": 40_000, "peak": 2e-4, "final": 1e-9, "schedule": "linear"}
COSINE = {"total_steps": 110, "warmup": 10, "peak": 1.0, "final": 0.0, "schedule": "cosine"}


@pytest.mark.parametrize(
    ("options", "step", "rate"),
    [
        (V1, 0, 2e-4 / 40_000),
        (V1, 19_999, 1e-4),
        (V1, 39_999, 2e-4),
        (V1, 40_000, 2e-4),
        (V1, 220_000, (2e-4 + 1e-9) / 2),
        (V1, 400_000, 1e-9),
        (V1, 500_000, 1e-9),
        (V1 | {"warmup": 0.1}, 19_999, 1e-4),  # a fraction
        (V1 | {"warmup": 1}, 0, 2e-4),
        (V1 | {"warmup": 0}, 0, 2e-4),
        (COSINE, 10, 1.0),
        (COSINE, 35, 0.8535533906),
        (COSINE, 60, 0.5),
        (COSINE, 110, 0.0),
    ],
)
def test_learning_rate_of_a_step(options: dict, step: int, rate: float) -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=options["peak"])
    (factor,) = make_schedule(optimizer, **options).lr_lambdas
    assert options["peak"] * factor(step) == pytest.approx(rate, rel=1e-9)


@pytest.mark.parametrize(
    ("capturable", "fused", "device"),
    [(True, True, "meta"), (False, True, "meta"), (False, None, "cpu")],
)
def test_step_counts_go_where_the_optimiser_expects_them(
    capturable: bool, fused: bool | None, device: str
) -> None:
    model = torch.nn.Linear(2, 1, device="meta")  # stands for a GPU
    optimizer = make_optimizer(model, 1e-2, 0.1, (0.9, 0.99), 1e-8)
    for group in optimizer.param_groups:
        group.update(capturable=capturable, fused=fused)
    for parameter in model.parameters():
        optimizer.state[parameter]["step"] = torch.tensor(3.0)
    options = [
        {name: value for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]
    renew_options(optimizer, make_schedule(optimizer, **COSINE), options)
    assert {state["step"].device.type for state in optimizer.state.values()} == {device}
