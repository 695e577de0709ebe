"""What a recording of a step needs: nothing asks the host, and the first calls leave no trace."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal

import pytest
import torch
from reference.models import EVERYTHING
from tiny_graphs import NO_DROPOUT

from graphormer_sepnorm.config import ModelConfig
from graphormer_sepnorm.graphs.resident import BatchShape
from graphormer_sepnorm.training.cuda_graphs import TrainingStep, resident_graphs
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.training.optimizer import make_optimizer

GRAPHS = torch.tensor([3, 0, 7, 12])
NUMBERS = torch.tensor([4.0, 0.25, 1e-2, 1e-2], dtype=torch.float64)
# Muon has its matrices in a group of their own.
NUMBERS_OF = {"adamw": NUMBERS, "muon": torch.cat([NUMBERS, NUMBERS[-1:]])}
SHAPE = BatchShape(36, ((4, 10),))


@pytest.fixture
def make_step(make_module: Callable, make_data: Callable, make_trainer: Callable) -> Callable:
    """Make a step of a tiny module in training mode, with an average of its weights."""

    def make(
        optimizer: Literal["adamw", "muon"] = "adamw", **model: object
    ) -> tuple[TrainingStep, GraphormerModule, list[torch.Tensor]]:
        module, data = make_module(**model), make_data()
        make_trainer(max_epochs=1, limit_train_batches=1, limit_val_batches=0).fit(module, data)
        module.train()
        module.zero_grad()
        weights = list(module.model.parameters())
        average = [torch.zeros_like(weight) for weight in weights]
        graphs = resident_graphs(data.store, module.vocabulary, module.model)
        options = ModelConfig(learning_rate=1e-2, weight_decay=0.1, betas=(0.9, 0.99))
        made = make_optimizer(module.model, replace(options, optimizer=optimizer))
        step = TrainingStep(module, made, graphs, lambda _: None, nullcontext, (average, weights))
        return step, module, average

    return make


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"norm": "shared-bn"}, SHAPE),
        ({"norm": "bn+ln"}, BatchShape(36, ((3, 10), (1, 10)))),
        (EVERYTHING | {"drop_path": 0.5}, SHAPE),
        ({"encodings": "paths", "local_mpnn": "gine+rings", "ring_bias": True}, SHAPE),
    ],
)
def test_batch_and_loss_are_one_graph_without_a_question(options, shape, make_step):
    """A compiler that may not leave the graph refuses whatever depends on values."""
    torch.compiler.reset()
    step, module, _ = make_step(**NO_DROPOUT, **options)
    module.double()  # in float32 a CPU may have kernels of its own, which no compiler sees through
    traced = torch.compile(step._loss, fullgraph=True, dynamic=False, backend="eager")
    with step.undone():
        plain, labels = step._loss(GRAPHS, shape)
        plain.backward()
        expected = [p.grad.clone() for p in module.model.parameters()]
    module.zero_grad()
    total, own_labels = traced(GRAPHS, shape)
    total.backward()
    torch.testing.assert_close(total, plain)
    assert labels == own_labels == 4
    for parameter, gradient in zip(module.model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
@pytest.mark.parametrize("trained", [False, True])
def test_first_calls_leave_no_trace(trained, optimizer, make_step):
    step, module, average = make_step(dropout=0.3, optimizer=optimizer)
    numbers = NUMBERS_OF[optimizer]
    if trained:
        step(GRAPHS, numbers, SHAPE)

    def everything() -> list[torch.Tensor]:
        moments = [value for state in step.optimizer.state.values() for value in state.values()]
        values = [*module.model.state_dict().values(), *average, *moments, torch.get_rng_state()]
        return [value.clone() for value in values]

    before = everything()
    with step.undone():
        for _ in range(3):
            step(GRAPHS, numbers, SHAPE)
        assert not torch.equal(everything()[0], before[0])
    after = everything()
    if not trained:  # moments are there now, and say that no step was taken
        assert not any(
            value.any() for state in step.optimizer.state.values() for value in state.values()
        )
        del after[len(before) - 1 : -1]
    assert len(before) == len(after)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
