"""The loss of the read-outs between layers: its weight, and that only gradients know it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.training.module import GraphormerModule

STEADY = {"dropout": 0.0, "attention_dropout": 0.0, "input_dropout": 0.0, "layers": 3}


def first_step(
    train: Callable, *callbacks: Callback, **model: object
) -> tuple[GraphormerModule, MoleculeDataModule, float]:
    """The module after one step, its data, and the loss that was reported."""
    options = {"max_epochs": 1, "limit_val_batches": 0, "data": {"batch_size": 37}}
    model = {**STEADY, **model, "warmup_steps": 0}
    module, data, trainer = train(*callbacks, model=model, **options)
    assert trainer.global_step == 1
    return module, data, float(trainer.callback_metrics["train_loss_epoch"])


def test_without_weight_nothing_changes(train: Callable) -> None:
    plain, _, loss = first_step(train)
    module, _, same = first_step(train, deep_supervision=1, deep_supervision_weight=0.0)
    weights = module.model.state_dict()
    assert same == loss
    for name, value in plain.model.state_dict().items():
        assert torch.equal(weights[name], value), name


class Beginning(Callback):
    """Keeps the weights before the first step, and its gradients."""

    def on_train_start(self, trainer: Trainer, module: GraphormerModule) -> None:
        self.weights = copy.deepcopy(module.model.state_dict())

    def on_before_optimizer_step(self, _: Trainer, module: GraphormerModule, __: Any) -> None:
        self.gradients = {name: one.grad.clone() for name, one in module.model.named_parameters()}


def test_gradient_is_that_of_all_losses(train: Callable) -> None:
    """What is reported is the loss of what predicts."""
    kept = Beginning()
    options = {"deep_supervision": 1, "deep_supervision_weight": 0.7}
    module, data, reported = first_step(train, kept, **options)
    (batch,) = data.statistics_batches(37)
    network = module.model.train()
    network.load_state_dict(kept.weights)
    network.zero_grad()
    graph_token, atoms, between = network.encode_deep(batch)
    wanted = (batch.targets - module.target_mean) / module.target_std
    main = (network.read_out(graph_token, atoms, batch) - wanted).abs().mean()
    assert len(between) == 2
    (main + 0.7 * sum((one - wanted).abs().mean() for one in between)).backward()
    assert reported == pytest.approx(main.item(), rel=1e-5)
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(
            kept.gradients[name], parameter.grad, rtol=1e-3, atol=1e-5, msg=name
        )


def test_weights_and_bounds_count_between_the_layers_too(train: Callable) -> None:
    module, data, _ = first_step(train, deep_supervision=1, deep_supervision_weight=0.7)
    (batch,) = data.statistics_batches(37)
    generator = torch.Generator().manual_seed(0)
    targets, low, high = torch.randn(3, 37, generator=generator)
    targets[::3] = torch.nan
    low[1::3] = high[:20] = torch.nan  # of some both a label and bounds, of some nothing
    weights = torch.rand(37, generator=generator)
    raw = torch.stack([targets, low, high], 1) * module.target_std + module.target_mean
    batch = replace(batch, targets=raw[:, :1], weights=weights, bounds=raw[:, 1:])
    *_, deep = module.batch_loss(batch)

    wanted = 0.0
    for prediction in module.model.encode_deep(batch)[2]:
        for i, (output,) in enumerate(prediction.tolist()):
            losses = abs(output - targets[i]), max(0.0, low[i] - output), max(0.0, output - high[i])
            known = [loss for loss in losses if loss == loss]
            wanted += 0.7 * float(weights[i]) * float(sum(known))
    assert deep.item() == pytest.approx(wanted, rel=1e-5)
    assert wanted > 1


class Losses(Callback):
    """Keeps the labels that each loss of a step is taken of."""

    def on_train_start(self, _: Trainer, module: GraphormerModule) -> None:
        self.targets: list[torch.Tensor] = []
        summed = module.summed_loss

        def spy(outputs: torch.Tensor, targets: torch.Tensor, *others: Any) -> Any:
            self.targets.append(targets)
            return summed(outputs, targets, *others)

        module.summed_loss = spy  # type: ignore[method-assign]


def test_all_read_outs_learn_from_the_same_share_of_the_labels(train: Callable) -> None:
    kept = Losses()
    first_step(train, kept, deep_supervision=1, label_fraction=0.5)
    first, *others = kept.targets
    assert len(others) == 2
    assert 0 < int(first.isnan().sum()) < first.numel()
    for targets in others:
        assert torch.equal(targets.isnan(), first.isnan())
