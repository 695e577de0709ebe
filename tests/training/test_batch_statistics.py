"""BatchNorm's statistics are measured for the weights that are evaluated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.loading import EpochBatches, make_loader
from graphormer_sepnorm.training.batch_statistics import batch_norms, measure_batch_norm
from graphormer_sepnorm.training.module import GraphormerModule


@pytest.fixture
def trained(
    make_module: Callable, make_data: Callable, make_trainer: Callable
) -> tuple[GraphormerModule, MoleculeDataModule]:
    module, data = make_module(norm="bn+bn", dropout=0.3, batch_norm_graphs=0), make_data()
    make_trainer(max_epochs=2).fit(module, data)
    return module, data


def whole_split(data: MoleculeDataModule, batch_size: int = 37) -> Any:
    batches = EpochBatches(data.indices("train"), batch_size, 0)
    return make_loader(data.store, data.fit_vocabulary(), batches)


def test_statistics_are_those_of_the_rows_that_evaluation_normalises(
    trained: tuple[GraphormerModule, MoleculeDataModule],
) -> None:
    """Nearly: a layer is fed by norms that divide by the biased variance of their batch here, by
    the unbiased one in evaluation, 37 / 36 of it; only the first BatchNorm of atoms sees no norm.
    """
    module, data = trained
    model = module.model.double()
    (batch,) = whole_split(data)
    measure_batch_norm(model, [batch])
    model.eval()
    seen = []
    for norm in batch_norms(model):
        norm.register_forward_hook(lambda norm, inputs, output: seen.append((norm, inputs[0])))
    with torch.no_grad():
        model(batch)
    assert len(seen) == len(batch_norms(model)) > 4
    for norm, rows in seen:
        deviation = rows.std(0)
        # A channel that hardly varies is made of differences of others, and so are its errors.
        bound = 0.02 * deviation.clamp(min=float(deviation.mean()))
        assert ((norm.running_mean - rows.mean(0)).abs() < bound).all()
        assert ((norm.running_var.sqrt() - deviation).abs() < bound).all()


def test_several_batches_give_the_mean_of_theirs(
    trained: tuple[GraphormerModule, MoleculeDataModule],
) -> None:
    module, data = trained
    model = module.model
    batches = list(whole_split(data, 10))
    first = next(iter(batch_norms(model)))
    rows: list[torch.Tensor] = []
    hook = first.register_forward_hook(lambda norm, inputs, output: rows.append(inputs[0]))
    measure_batch_norm(model, batches)
    hook.remove()
    assert len(rows) == 4
    means = torch.stack([row.mean(0) for row in rows]).mean(0)
    variances = torch.stack([row.var(0) for row in rows]).mean(0)
    torch.testing.assert_close(first.running_mean, means)
    torch.testing.assert_close(first.running_var, variances)


def test_nothing_else_changes(trained: tuple[GraphormerModule, MoleculeDataModule]) -> None:
    module, data = trained
    model = module.model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batches = list(whole_split(data, 10))
    random = torch.get_rng_state()
    measure_batch_norm(model, batches)
    after = model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.endswith(("running_mean", "running_var")) for name in changed)
    assert all(part.training for part in model.modules())
    assert all(norm.momentum == 0.1 for norm in batch_norms(model))
    assert torch.equal(random, torch.get_rng_state())


def test_validation_uses_measured_statistics_and_training_does_not(
    make_module: Callable, make_data: Callable, make_trainer: Callable, losses: Callable
) -> None:
    metrics, trainings = {}, {}
    for graphs in (0, 1000):
        recorder = losses()
        module, data = make_module(norm="bn+ln", batch_norm_graphs=graphs), make_data()
        trainer = make_trainer(callbacks=[recorder], max_epochs=1)
        trainer.fit(module, data)
        metrics[graphs] = float(trainer.callback_metrics["validation_mae"])
        trainings[graphs] = recorder.values
        measured = trainer.validate(module, data, verbose=False)[0]["validation_mae"]
        assert measured == pytest.approx(metrics[graphs], rel=1e-6)
    assert trainings[0] == trainings[1000]
    assert metrics[0] != metrics[1000]


def test_layer_norms_cost_nothing(
    make_module: Callable, make_data: Callable, make_trainer: Callable
) -> None:
    class NoStatistics(MoleculeDataModule):
        def statistics_batches(self, graphs: int) -> Any:
            raise AssertionError("a LayerNorm has no statistics")

    data = make_data()
    data.__class__ = NoStatistics
    make_trainer(max_epochs=1).fit(make_module(norm="ln+ln"), data)


def test_single_graph_is_refused(make_module: Callable) -> None:
    with pytest.raises(ConfigError, match="batch_norm_graphs is 1: it must be 0, or 2 or more"):
        make_module(batch_norm_graphs=1)


class Modes(Callback):
    """Records whether validation happens in evaluation mode."""

    def __init__(self) -> None:
        self.training: list[bool] = []

    def on_validation_batch_start(self, trainer: Trainer, module: Any, *_: Any) -> None:
        self.training.append(any(part.training for part in module.model.modules()))


def test_validation_stays_in_evaluation_mode(
    make_module: Callable, make_data: Callable, make_trainer: Callable
) -> None:
    modes = Modes()
    make_trainer(max_epochs=1, callbacks=[modes]).fit(make_module(norm="bn+bn"), make_data())
    assert modes.training == [False] * 2
