"""BatchNorm's statistics: measured for the weights that are evaluated, fixed late in training."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from tiny_graphs import Noted

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.graphs.loading import EpochBatches, make_loader
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.model.norms import MaskedBatchNorm
from graphormer_sepnorm.training.averaging import AveragedWeights, batch_norms, measure_batch_norm
from graphormer_sepnorm.training.checkpoints import checkpoint_callbacks
from graphormer_sepnorm.training.module import GraphormerModule


@pytest.fixture
def trained(train: Callable) -> tuple[GraphormerModule, MoleculeDataModule]:
    model = {"norm": "bn+bn", "dropout": 0.3, "precise_bn_graphs": 0}
    return train(model=model)[:2]


def whole_split(data: MoleculeDataModule, batch_size: int = 37) -> Any:
    batches = EpochBatches(data.indices("train"), batch_size, 0)
    return make_loader(data.store, data.fit_vocabulary(), batches)


def test_statistics_are_those_of_the_rows_that_evaluation_normalizes(trained):
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


def test_several_batches_give_the_mean_of_theirs_whatever_was_there(trained):
    module, data = trained
    seen: dict[Any, list[torch.Tensor]] = {norm: [] for norm in batch_norms(module.model)}
    for norm, rows in seen.items():
        norm.register_forward_hook(lambda _, inputs, out, rows=rows: rows.append(inputs[0]))
        norm.running_mean.fill_(torch.nan)
        norm.running_var.fill_(torch.inf)
    measure_batch_norm(module.model, list(whole_split(data, 10)))
    for norm, rows in seen.items():
        assert len(rows) == 4
        means = torch.stack([row.mean(0) for row in rows]).mean(0)
        variances = torch.stack([row.var(0) for row in rows]).mean(0)
        torch.testing.assert_close(norm.running_mean, means)
        torch.testing.assert_close(norm.running_var, variances)


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


def test_validation_uses_measured_statistics_and_training_does_not(train, losses):
    metrics, trainings = {}, {}
    for graphs in (0, 1000):
        recorder = losses()
        model = {"norm": "bn+ln", "precise_bn_graphs": graphs}
        module, data, trainer = train(recorder, model=model, max_epochs=1)
        metrics[graphs] = float(trainer.callback_metrics["validation_mae"])
        trainings[graphs] = recorder.values
        measured = trainer.validate(module, data, verbose=False)[0]["validation_mae"]
        assert measured == pytest.approx(metrics[graphs], rel=1e-6)
    assert trainings[0] == trainings[1000]
    assert metrics[0] != metrics[1000]


def test_validation_without_training_takes_the_statistics_as_they_are(
    tmp_path: Path, train: Callable, make_module: Callable, make_data: Callable
) -> None:
    module, _, trainer = train(model={"norm": "bn+bn"}, max_epochs=1)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    loaded, data = make_module(norm="bn+bn"), make_data(seed=7)  # would measure in another order
    options = {"ckpt_path": tmp_path / "a.ckpt", "weights_only": True, "verbose": False}
    trainer.validate(loaded, data, **options)
    before, after = (
        [norm.running_mean for norm in batch_norms(one.model)] for one in (module, loaded)
    )
    assert same(before, after)


def test_fixed_statistics_are_constants_in_training() -> None:
    """By hand: (x - m) / sqrt(v + eps) · weight + bias, and 1 / sqrt(v + eps) · weight back."""
    norm = MaskedBatchNorm(2, eps=1e-12).train()  # torch 2.11 refuses 0
    norm.running_mean.copy_(torch.tensor([1.0, 2.0]))
    norm.running_var.copy_(torch.tensor([4.0, 9.0]))
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([2.0, 3.0]))
        norm.bias.copy_(torch.tensor([0.0, 5.0]))
    norm.fixed = True
    rows = torch.tensor([[3.0, 8.0]], requires_grad=True)  # one row: there is no batch any more
    out = norm(rows)
    out.sum().backward()
    torch.testing.assert_close(out, torch.tensor([[2.0, 11.0]]))
    torch.testing.assert_close(rows.grad, torch.tensor([[1.0, 1.0]]))
    assert norm.running_mean.tolist() == [1.0, 2.0]
    assert int(norm.num_batches_tracked) == 0


def statistics_of(trainer: Trainer, module: Any) -> list[torch.Tensor]:
    return [norm.running_mean.clone() for norm in batch_norms(module.model)]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


def test_the_last_share_of_the_steps_has_fixed_statistics(train, make_data, losses):
    """Ten steps, the last four of them: from what is measured for the weights after six."""
    recorders = []
    for share in (0.0, 0.4):
        loss, statistics = losses(), Noted(statistics_of)
        train(loss, statistics, model={"norm": "bn+bn", "frozen_bn_fraction": share})
        recorders.append((loss.values, statistics.values))
    (plain, moving), (with_fixed, fixed) = recorders
    assert len(plain) == 10
    assert with_fixed[:6] == plain[:6]
    assert all(same(*pair) for pair in zip(moving[:6], fixed[:6], strict=True))
    assert not any(same(moving[step], moving[step + 1]) for step in range(9))
    assert all(same(fixed[6], later) for later in fixed[7:])
    assert all(one != other for one, other in zip(with_fixed[6:], plain[6:], strict=True))

    data = make_data()

    class MeasureAfterSix(Callback):
        def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
            if trainer.global_step == 6:
                measure_batch_norm(module.model, data.statistics_batches(2048))
                trainer.should_stop = True

    statistics = Noted(statistics_of)
    train(MeasureAfterSix(), statistics, model={"norm": "bn+bn"}, data=data)
    assert same(statistics.values[5], fixed[6])


def test_fixed_statistics_belong_to_the_averaged_weights_too(
    tmp_path: Path, train: Callable, make_module: Callable, make_trainer: Callable
) -> None:
    """Validation measures none, and what is saved predicts with the constants of training."""
    callbacks = [AveragedWeights(0.5), *checkpoint_callbacks(tmp_path, "mae", 0)]
    # Messages in rings have constants that are not saved.
    model = {"norm": "bn+bn", "frozen_bn_fraction": 0.5, "local_mpnn": "gine+rings"}
    module, data, trainer = train(*callbacks, model=model)
    last = tmp_path / "checkpoints" / "last.ckpt"
    saved = read_checkpoint(last)
    buffers = [name for name, _ in module.named_buffers() if "running" in name]
    assert len(buffers) > 4
    for name in buffers:
        assert torch.equal(saved["state_dict"][name], saved["trained_weights"][name])
    parameters = [name for name, _ in module.named_parameters()]
    assert any(
        not torch.equal(saved["state_dict"][name], saved["trained_weights"][name])
        for name in parameters
    )
    options = {"ckpt_path": last, "verbose": False, "weights_only": True}
    (again,) = make_trainer().validate(make_module(**model), data, **options)
    validated = float(trainer.callback_metrics["validation_mae"])
    assert again["validation_mae"] == pytest.approx(validated, rel=1e-6)
