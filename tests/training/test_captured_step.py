"""What a recording of a step needs: nothing asks the host, and the first calls leave no trace."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from reference.models import EVERYTHING

from graphormer_sepnorm.config import ModelConfig, OptimizerName
from graphormer_sepnorm.graphs.resident import BatchShape
from graphormer_sepnorm.training import cuda_graphs as recording
from graphormer_sepnorm.training.cuda_graphs import TrainingStep, resident_graphs
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.training.optimizer import make_optimizer

GRAPHS = torch.tensor([3, 0, 7, 12])
NUMBERS = torch.tensor([4.0, 0.25, 1e-2, 1e-2], dtype=torch.float64)
# Muon has its matrices in a group of their own.
NUMBERS_OF = {"adamw": NUMBERS, "muon": torch.cat([NUMBERS, NUMBERS[-1:]])}
SHAPE = BatchShape(36, ((4, 10),))


def options_of(optimizer: OptimizerName) -> ModelConfig:
    return ModelConfig(learning_rate=1e-2, weight_decay=0.1, betas=(0.9, 0.99), optimizer=optimizer)


@pytest.fixture
def make_step(make_module: Callable, make_data: Callable, make_trainer: Callable) -> Callable:
    """Make a step of a tiny module in training mode, with an average of its weights."""

    def make(
        optimizer: OptimizerName = "adamw", **model: object
    ) -> tuple[TrainingStep, GraphormerModule, list[torch.Tensor]]:
        module, data = make_module(**model), make_data()
        make_trainer(max_epochs=1, limit_train_batches=1, limit_val_batches=0).fit(module, data)
        module.train()
        module.zero_grad()
        weights = list(module.model.parameters())
        average = [torch.zeros_like(weight) for weight in weights]
        graphs = resident_graphs(data.store, module.vocabulary, module.model)
        made = make_optimizer(module.model, options_of(optimizer))
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
def test_batch_and_loss_are_one_graph_without_a_question(
    options: dict, shape: BatchShape, make_step: Callable
) -> None:
    """A compiler that may not leave the graph refuses whatever depends on values."""
    torch.compiler.reset()
    step, module, _ = make_step(dropout=0.0, attention_dropout=0.0, input_dropout=0.0, **options)
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
def test_first_calls_leave_no_trace(
    trained: bool, optimizer: OptimizerName, make_step: Callable
) -> None:
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


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_step_is_torchs_own(name: OptimizerName, make_step: Callable) -> None:
    """Loss, the optimizer with rates from a tensor, and the average, against plain torch."""
    steady = {"dropout": 0.0, "attention_dropout": 0.0, "input_dropout": 0.0}
    step, module, average = make_step(name, **steady)
    twin, other, _ = make_step(name, **steady)
    optimizer = make_optimizer(other.model, options_of(name))
    start = [value.clone() for value in average]
    loss, total, labels = step(GRAPHS, NUMBERS_OF[name], SHAPE)
    expected, count = twin._loss(GRAPHS, SHAPE)
    (expected / 4).backward()
    optimizer.step()
    assert labels == count == 4
    assert total == expected
    assert loss == expected / 4
    weights = list(module.model.parameters())
    for one, truth in zip(weights, other.model.parameters(), strict=True):
        # In the tensor the rate is a float64; Muon's factor is rounded once, or twice.
        torch.testing.assert_close(one, truth, rtol=0, atol=0 if name == "adamw" else 1e-8)
    for one, was, weight in zip(average, start, weights, strict=True):
        torch.testing.assert_close(one, 0.75 * was + 0.25 * weight.detach())
    assert {group["lr"] for group in step.optimizer.param_groups} == {1e-2}


class Stream:
    """Stands for a stream of a GPU."""

    def wait_stream(self, other: Stream) -> None:
        pass


class Recording:
    """Stands for a CUDA graph: a replay repeats the calls that were made within it."""

    def __init__(self) -> None:
        self.replay = lambda: None


def test_garbage_is_collected_before_a_recording_and_not_within(
    make_step: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of the device that is freed within a recording, but was made before, breaks it."""
    order: list[str] = []

    @contextmanager
    def recorder(graph: Recording, **options: object) -> Iterator[None]:
        order.append("recording")
        yield
        order.append("recorded")

    monkeypatch.setattr(gc, "collect", lambda: order.append("collected"))
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Recording)
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", recorder)
    step, module, _ = make_step()
    before = {name: value.clone() for name, value in module.model.state_dict().items()}
    recording.CapturedStep(step, (GRAPHS, NUMBERS), SHAPE, None)
    assert order == ["collected", "recording", "recorded"]
    # The stand-in takes the step that a real recording would only write down; no other was kept.
    twin, other, _ = make_step()
    twin(GRAPHS, NUMBERS, SHAPE)
    assert not torch.equal(before["readout.weight"], module.model.readout.weight)
    assert torch.equal(other.model.readout.weight, module.model.readout.weight)
