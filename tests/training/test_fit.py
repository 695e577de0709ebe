"""Training as a whole: same seed same numbers, whole-split metrics, steps of several batches."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from reference.tables import write_csv
from tiny_graphs import NO_DROPOUT, STILL, Noted

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.loading import make_loader
from graphormer_sepnorm.inference.checkpoint import KEY, read_checkpoint
from graphormer_sepnorm.training.checkpoints import checkpoint_callbacks
from graphormer_sepnorm.training.module import GraphormerModule


def test_every_batch_of_every_epoch_seed_and_process_has_its_own_dropout(
    make_module: Callable, make_data: Callable, make_trainer: Callable
) -> None:
    class SecondProcess(GraphormerModule):
        global_rank = 1

    seeds = Noted(lambda *_: torch.initial_seed())
    for seed, kind in ((0, GraphormerModule), (1, GraphormerModule), (0, SecondProcess)):
        module = make_module(seed=seed)
        module.__class__ = kind
        make_trainer(callbacks=[seeds], limit_train_batches=2).fit(module, make_data())
    assert len({*seeds.values}) == len(seeds.values) == 3 * 2 * 2


@pytest.mark.parametrize(("size", "precision"), [(4, "32-true"), (11, "64-true")])
def test_learning_lowers_the_error_which_is_that_of_all_test_graphs(size, precision, train):
    own = {"model": NO_DROPOUT, "max_epochs": 20, "precision": precision}
    module, data, trainer = train(data={"eval_batch_size": size}, **own)
    reported = trainer.test(module, data, verbose=False)[0]["test_mae"]
    module.eval()
    with torch.no_grad():
        errors = torch.cat(
            [(module(batch) - batch.targets).abs() for batch in data.test_dataloader()]
        )
    assert len(errors) == 11
    assert reported == pytest.approx(errors.double().mean().item(), rel=1e-5)
    labels = torch.cat([graph.y for graph in data.splits.test])
    assert reported < 0.5 * (labels - labels.mean()).abs().mean()


def test_weights_do_not_enter_the_losses_of_validation_and_test(train, splits):
    """Those stay the mean absolute error, in units of the deviation of the training labels."""
    for part in splits.parts.values():
        for number, graph in enumerate(part):
            graph.weight = float(number % 3)
    module, data, trainer = train(max_epochs=1)
    values = {**trainer.callback_metrics, **trainer.test(module, data, verbose=False)[0]}
    (deviation,) = data.target_scaling()[1]
    for split in ("validation", "test"):
        error = float(values[f"{split}_mae"]) / deviation
        assert float(values[f"{split}_loss"]) == pytest.approx(error, rel=1e-5)


def test_a_bound_costs_in_deviations_of_its_own_target(tmp_path: Path, train: Callable) -> None:
    rows = [
        ("C" * (2 + n), "<50" if n % 4 == 1 else 100 + n, ">1" if n % 4 == 2 else n / 100)
        for n in range(40)
    ]
    table = write_csv(tmp_path / "a.csv", [("smiles", "a", "b"), *rows])
    options = {"split": "random", "target_columns": ("a", "b"), "max_path_length": 3}
    data = MoleculeDataModule(table=str(table), root=str(tmp_path), **options)
    module, _, trainer = train(data=data, max_epochs=1)
    module.eval()
    terms = []
    with torch.no_grad():
        for batch in data.val_dataloader():
            values, (low, high) = module(batch), batch.bounds.chunk(2, dim=1)
            each = (values - batch.targets).abs(), (low - values).relu(), (values - high).relu()
            terms += [one / module.target_std for one in each]
    found = torch.cat(terms)
    assert [(~one.isnan()).any().item() for one in found.chunk(3)] == [True] * 3
    expected = found[~found.isnan()].double().mean().item()
    assert float(trainer.callback_metrics["validation_loss"]) == pytest.approx(expected, rel=1e-4)


def test_only_metrics_that_something_goes_by_are_computed_while_training(tmp_path, train):
    _, _, trainer = train(*checkpoint_callbacks(tmp_path, "r2", 0))
    names = {"validation_loss", "validation_mae", "validation_r2"}
    assert {name for name in trainer.callback_metrics if name.startswith("val")} == names
    saved = read_checkpoint(tmp_path / "checkpoints" / "best.ckpt")[KEY]["validation"]
    assert saved.keys() == names
    assert trainer.checkpoint_callback.mode == "max"


class Steps(Callback):
    """Records of each optimizer step its graphs, its loss, its gradients and its learning rate."""

    def __init__(self) -> None:
        self.graphs: list[list[int]] = [[]]
        self.losses: list[float] = []
        self.gradients: list[dict[str, torch.Tensor]] = []
        self.rates: list[float] = []

    def on_train_batch_start(self, trainer: Trainer, module: Any, batch: Any, *_: Any) -> None:
        self.graphs[-1] += batch.graph_ids.tolist()

    def on_before_optimizer_step(self, trainer: Trainer, module: Any, optimizer: Any) -> None:
        self.graphs.append([])
        self.losses.append(float(module.step_loss))
        self.gradients.append({n: p.grad.clone() for n, p in module.named_parameters()})
        self.rates.append(optimizer.param_groups[0]["lr"])


def test_a_step_of_several_batches_is_one_of_all_their_labels(train, splits):
    """Batches 0 and 1, then 2 alone: epochs end after three of their five batches."""
    for graph in splits.train[::3]:
        graph.y[:] = torch.nan
    steps, model = Steps(), {"norm": "ln+ln", "warmup_steps": 0, **NO_DROPOUT, **STILL}
    # Two epochs, in which such rates leave all parameters as they are.
    options = {"accumulate_grad_batches": 2, "limit_train_batches": 3}
    module, data, trainer = train(steps, model=model, **options)
    assert trainer.global_step == len(steps.losses) == 4
    assert [len(graphs) for graphs in steps.graphs] == [16, 7, 16, 7, 0]
    assert steps.rates == pytest.approx([1e-30, 0.75e-30, 0.5e-30, 0.25e-30], rel=1e-6)
    for graphs, loss, gradients in zip(steps.graphs, steps.losses, steps.gradients, strict=False):
        (batch,) = make_loader(data.store, data.fit_vocabulary(), [graphs])
        module.train().zero_grad()
        errors = (module(batch) - batch.targets).abs() / module.target_std
        expected = errors[~errors.isnan()].mean()
        expected.backward()
        assert loss == pytest.approx(expected.item(), rel=1e-5)
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(
                gradients[name], parameter.grad, rtol=1e-4, atol=1e-6, msg=name
            )


def test_a_second_training_has_steps_of_its_own(train, make_trainer, losses):
    """Of two batches each, where one of the first training was a step."""
    still = {"norm": "ln+ln", **NO_DROPOUT, **STILL}
    recorder, steps = losses(), Steps()
    module, data, _ = train(recorder, model=still, max_epochs=1)
    make_trainer(callbacks=[steps], max_epochs=1, accumulate_grad_batches=2).fit(module, data)
    first, second, *_ = recorder.values
    assert steps.losses[0] == pytest.approx((first + second) / 2, rel=1e-5)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_bfloat16_trains_with_accumulated_and_clipped_gradients(optimizer, train):
    options = {"precision": "bf16-mixed", "gradient_clip_val": 1.0, "accumulate_grad_batches": 2}
    _, _, trainer = train(model={"optimizer": optimizer}, **options)
    assert trainer.global_step == 2 * 3  # five batches an epoch
    assert trainer.callback_metrics["train_loss_epoch"].isfinite()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_epochs": -1}, "where training ends"),
        ({"data": {"max_path_length": 2}}, "max_path_length 2, the model has 3"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict, message: str, train: Callable) -> None:
    with pytest.raises(ConfigError, match=message):
        train(**options)
