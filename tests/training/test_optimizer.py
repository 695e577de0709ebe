"""What weight decay acts on, the learning rate of each step, and what a resumed run keeps."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from reference.tables import read_csv
from torch._subclasses.fake_tensor import FakeTensorMode

from graphormer_sepnorm.config import ModelConfig
from graphormer_sepnorm.training.callbacks import LogTraining, MetricsFile
from graphormer_sepnorm.training.optimizer import (
    make_optimizer,
    make_schedule,
    parameter_groups,
    renew_options,
)


class Model(torch.nn.Module):
    """A layer, an embedding and nothing else."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.layers = torch.nn.Linear(2, 2, bias=False, device=device)
        self.table = torch.nn.Embedding(3, 2, device=device)


def options_of(**options: Any) -> ModelConfig:
    return ModelConfig(**{"weight_decay": 0.3, **options})


@pytest.mark.parametrize("everything", [False, True])
def test_what_decays(everything: bool, train: Callable) -> None:
    module, _, _ = train(max_epochs=1)
    named = dict(module.model.named_parameters())
    next(iter(named.values())).requires_grad_(False)
    options = options_of(weight_decay_on="all" if everything else "matrices")
    groups = parameter_groups(module.model, options)
    assert [group["weight_decay"] for group in groups] == [0.3, 0.0]
    name_of = {id(parameter): name for name, parameter in named.items()}
    decayed, others = ({name_of[id(one)] for one in group["params"]} for group in groups)
    linear = {
        f"{name}.weight"
        for name, part in module.model.named_modules()
        if isinstance(part, torch.nn.Linear)
    }
    trained = {name for name, parameter in named.items() if parameter.requires_grad}
    assert decayed == (trained if everything else linear)
    assert others == trained - decayed


@pytest.mark.parametrize("name", ["adamw", "muon"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("mixed", [False, True])
def test_no_device_is_told_to_take_one_parameter_after_the_other(name, device, mixed):
    """``fused=False`` would choose torch's loop, also where it has something better."""
    model = Model()
    with FakeTensorMode():  # there need not be a GPU
        for part in (model.layers, model.table):
            part.weight = torch.nn.Parameter(torch.empty(2, 2, device=device))
        optimizer = make_optimizer(model, options_of(optimizer=name), mixed=mixed)
    for group in optimizer.param_groups:
        assert group["fused"] is (None if mixed else True)
        assert group["foreach"] is None


V1 = {"warmup_steps": 40_000, "learning_rate": 2e-4, "final_learning_rate": 1e-9}
V1 |= {"schedule": "linear"}
COSINE = {"warmup_steps": 10, "learning_rate": 1.0, "final_learning_rate": 0.0}
COSINE |= {"schedule": "cosine"}


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
        (V1 | {"warmup_steps": 0.1}, 19_999, 1e-4),  # a fraction
        (V1 | {"warmup_steps": 1}, 0, 2e-4),
        (V1 | {"warmup_steps": 0}, 0, 2e-4),
        (COSINE, 10, 1.0),
        (COSINE, 35, 0.8535533906),
        (COSINE, 60, 0.5),
        (COSINE, 110, 0.0),
    ],
)
def test_learning_rate_of_a_step(options: dict, step: int, rate: float) -> None:
    peak = options["learning_rate"]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    total = 110 if options is COSINE else 400_000
    (factor,) = make_schedule(optimizer, ModelConfig(**options), total).lr_lambdas
    assert peak * factor(step) == pytest.approx(rate, rel=1e-9)


def test_a_warm_up_longer_than_the_training_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    for warmup in (10, 1.0 - 1e-9, 11):
        caplog.clear()
        optimizer = torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), 0.5)
        make_schedule(optimizer, ModelConfig(warmup_steps=warmup), 10)
        assert ("--model.warmup_steps 11" in caplog.text) == (warmup == 11)


@pytest.mark.parametrize(
    ("capturable", "fused", "device"),
    [(True, True, "meta"), (False, True, "meta"), (False, None, "cpu")],
)
def test_step_counts_go_where_the_optimizer_expects_them(capturable, fused, device):
    model = Model("meta")  # stands for a GPU
    optimizer = make_optimizer(model, options_of())
    for group in optimizer.param_groups:
        group.update(capturable=capturable, fused=fused)
    for parameter in model.parameters():
        optimizer.state[parameter]["step"] = torch.tensor(3.0)
    options = [
        {name: value for name, value in group.items() if name != "params"}
        for group in optimizer.param_groups
    ]
    renew_options(optimizer, make_schedule(optimizer, ModelConfig(**COSINE), 110), options)
    assert {state["step"].device.type for state in optimizer.state.values()} == {device}


def test_names_with_commas_survive_a_resumed_run(tmp_path: Path) -> None:
    for step in range(2):
        MetricsFile(tmp_path).log_metrics({"mae_logD, pH 7.4": 0.5}, step)
    rows = read_csv(tmp_path / "metrics.csv")
    assert rows == [{"mae_logD, pH 7.4": "0.5", "step": str(step)} for step in range(2)]


def test_the_rate_that_is_logged_is_that_of_the_step(tmp_path: Path, train: Callable) -> None:
    had: list[float] = []

    class Meet(Callback):
        def on_before_optimizer_step(self, trainer: Trainer, module: Any, optimizer: Any) -> None:
            had.append(optimizer.param_groups[0]["lr"])

    logger = MetricsFile(tmp_path)
    options = {"log_every_n_steps": 1, "accumulate_grad_batches": 2}
    train(Meet(), LogTraining(logger), logger=logger, **options)
    rows = read_csv(tmp_path / "metrics.csv")
    rates = [row["learning_rate"] for row in rows if row["learning_rate"]]
    assert [float(rate) for rate in rates] == had
    assert len(had) == 6
    assert had[0] < had[1] > had[-1]
