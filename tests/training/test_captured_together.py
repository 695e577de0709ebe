"""Several trainings whose steps are taken together: each is, bit for bit, what it is alone.

Without a GPU steps are taken one after the other; when which one is taken, and what would be
recorded, is as on a GPU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from test_captured import Fit, Spoil, Turns, assert_equal, checkpoint, fit, weights

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.resident import BatchShape
from graphormer_sepnorm.training.captured import engine, together
from graphormer_sepnorm.training.captured.engine import CapturedTraining
from graphormer_sepnorm.training.captured.recording import TrainingStep
from graphormer_sepnorm.training.captured.together import DueStep, Together

__all__ = ["fit"]  # a fixture


def train(trainings: Sequence[Callable[[], Any]]) -> list[Any]:
    """Train in threads; return what each gives, or its error."""
    company, results = Together(len(trainings)), [None] * len(trainings)

    def run(place: int) -> None:
        with company.training():
            try:
                results[place] = trainings[place]()
            except Exception as error:
                results[place] = error

    threads = [
        threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(trainings))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
        assert not thread.is_alive()
    return results


def seeds(fit: Fit, count: int, **options: Any) -> list[Callable[[], Any]]:
    """Trainings in launches of four steps, with seeds from 0 on."""
    return [lambda seed=seed: fit(f"seed{seed}", 4, seed=seed, **options) for seed in range(count)]


def alone(fit: Fit, count: int, **options: Any) -> list[Any]:
    """The same, one after the other."""
    return [fit(f"alone{seed}", 4, seed=seed, **options) for seed in range(count)]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    for (module, trainer), (other, _) in zip(found, expected, strict=True):
        assert trainer.global_step == 20
        assert_equal(weights(module), weights(other))


def assert_same_runs(tmp_path: Path, one: str, other: str) -> None:
    assert_equal(checkpoint(tmp_path, one), checkpoint(tmp_path, other))
    files = [(tmp_path / folder / "metrics.csv").read_text() for folder in (one, other)]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("norm", "ema", "fixed"), [("sepnorm", 0.9, 0.0), ("shared-bn", 0.0, 0.0), ("bn+bn", 0.9, 0.35)]
)
def test_each_training_is_what_it_is_alone(
    norm: str, ema: float, fixed: float, tmp_path: Path, fit: Fit
) -> None:
    options: dict[str, Any] = {"norm": norm, "ema": ema, "frozen_bn_fraction": fixed}
    # Launches need not end at the same steps.
    found = train([*seeds(fit, 2, **options), lambda: fit("seed2", 3, seed=2, **options)])
    assert_same(found, alone(fit, 3, **options))
    for seed in range(3):
        assert_same_runs(tmp_path, f"seed{seed}", f"alone{seed}")
    assert not torch.equal(
        *(module.model.readout.weight for module, _ in found[:2])  # they are different ones
    )


def test_trainings_end_and_fail_by_themselves(tmp_path: Path, fit: Fit) -> None:
    expected, _ = fit("alone", 4, seed=1)
    short, failed, (module, trainer) = train(
        [
            lambda: fit("short", 4, trainer={"max_epochs": 1}),
            lambda: fit("failed", 4, Spoil(), seed=2),
            lambda: fit("seed1", 4, seed=1),
        ]
    )
    assert short[1].global_step == 10
    assert isinstance(failed, ConfigError)
    assert "diverged at step 13" in str(failed)
    assert trainer.global_step == 20
    assert_equal(weights(module), weights(expected))
    assert_same_runs(tmp_path, "seed1", "alone")


def test_resumed_trainings_need_not_stand_at_the_same_step(tmp_path: Path, fit: Fit) -> None:
    for seed, stop in ((0, 11), (1, 15)):
        fit(f"seed{seed}", 4, Turns(stop), ema=0.9, seed=seed)
    last = [tmp_path / f"seed{seed}" / "checkpoints" / "last.ckpt" for seed in (0, 1)]
    found = train(
        [
            lambda seed=seed: fit(f"seed{seed}", 4, ema=0.9, seed=seed, resume=last[seed])
            for seed in (0, 1)
        ]
    )
    assert_same(found, alone(fit, 2, ema=0.9))


class Recorded:
    """Stands for a recording: takes the steps, and notes of how many trainings they were."""

    made: list[int]
    replayed: list[int]
    ended: list[int]
    left = False  # whether a thread took steps whose own training had ended
    fails: type[Exception] | None
    breaks = 0  # which replay raises an error

    def __init__(self, steps: Sequence[TrainingStep], inputs: Any, shape: BatchShape, pool: Any):
        if self.fails and len(steps) > 1:
            raise self.fails("no memory is left")
        self.made.append(len(steps))
        self.steps, self.shape = list(steps), shape

    def __call__(self, inputs: Any, seeds: Sequence[int]) -> list[torch.Tensor]:
        self.replayed.append(len(seeds))
        if len(self.replayed) == self.breaks:
            raise RuntimeError("an illegal memory access was encountered")
        Recorded.left |= not hasattr(together._of_thread, "together")
        results = []
        for step, own, seed in zip(self.steps, inputs, seeds, strict=True):
            torch.manual_seed(seed)
            results.append(step(*own, self.shape))
        return results

    def end(self) -> None:
        self.ended.append(len(self.steps))


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> type[Recorded]:
    """Record steps on a CPU as on a GPU."""
    Recorded.made, Recorded.replayed, Recorded.ended, Recorded.fails = [], [], [], None
    Recorded.left, Recorded.breaks = False, 0
    monkeypatch.setattr(together, "CapturedSteps", Recorded)
    monkeypatch.setattr(DueStep, "recordable", property(lambda due: due.planned))
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 1))
    return Recorded


def test_steps_of_one_shape_are_recorded_together(
    tmp_path: Path, fit: Fit, recorded: type[Recorded]
) -> None:
    """An epoch is seven batches of four graphs and three of three."""
    found = train(seeds(fit, 2))
    assert (recorded.made, recorded.replayed) == ([2, 2], [2] * 20)
    assert_same(found, alone(fit, 2))
    assert (recorded.made[2:], recorded.replayed[20:]) == ([1] * 4, [1] * 40)
    for seed in (0, 1):
        assert_same_runs(tmp_path, f"seed{seed}", f"alone{seed}")


def test_what_is_left_is_recorded_anew(fit: Fit, recorded: type[Recorded]) -> None:
    """Also of a training whose BatchNorm is fixed for its last steps."""
    ends = [{"max_epochs": 1}, {"max_epochs": 2}, {"max_epochs": 2}]
    train([lambda end=end: fit(f"until{id(end)}", 4, trainer=end) for end in ends])
    assert recorded.made == [3, 3, 2, 2]
    assert recorded.replayed == [3] * 10 + [2] * 10
    assert recorded.ended == [3, 3, 2, 2]
    train(seeds(fit, 2, norm="bn+bn", frozen_bn_fraction=0.35))
    assert recorded.made[4:] == [2, 2, 2, 2]


def test_a_thread_that_ends_takes_no_steps_of_others(fit: Fit, recorded: type[Recorded]) -> None:
    """Of launches of eight and nine steps, none of which need end with the first training."""
    train(
        [
            lambda: fit("short", 3, trainer={"max_steps": 7}),
            lambda: fit("seed0", 8),
            lambda: fit("seed1", 9, seed=1),
        ]
    )
    assert set(recorded.made) == {2, 3}
    assert not recorded.left


def test_a_batch_that_does_not_fit_parts_them_for_a_step(
    tmp_path: Path, fit: Fit, recorded: type[Recorded], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "plan_shape", lambda sizes, graphs: BatchShape(22, ((graphs, 10),)))
    counters = [CapturedTraining(steps_per_launch=4, on_cpu=True) for _ in range(4)]
    expected = [fit(f"alone{seed}", None, counters[seed], seed=seed) for seed in (0, 1)]
    recorded.replayed.clear()
    found = train(
        [
            lambda seed=seed: fit(f"seed{seed}", None, counters[2 + seed], seed=seed)
            for seed in (0, 1)
        ]
    )
    taken = [counter.misfits for counter in counters]
    assert taken[:2] == taken[2:]
    assert {1, 2} == set(recorded.replayed)
    assert sum(recorded.replayed) + sum(taken[2:]) == 40
    assert_same(found, expected)


def test_what_cannot_be_recorded_together_is_recorded_one_by_one(
    fit: Fit, recorded: type[Recorded], caplog: pytest.LogCaptureFixture
) -> None:
    recorded.fails = torch.OutOfMemoryError
    found = train(seeds(fit, 2))
    assert recorded.made == [1] * 4
    assert caplog.text.count("the steps of 2 trainings cannot be recorded together (no memory") == 1
    assert_same(found, alone(fit, 2))


def test_what_cannot_be_recorded_at_all_ends_all_of_them(
    fit: Fit, recorded: type[Recorded]
) -> None:
    recorded.fails = ConfigError
    assert [type(one) for one in train(seeds(fit, 2))] == [ConfigError, ConfigError]
    assert recorded.made == []


def test_a_training_that_fails_leaves_no_recording(fit: Fit, recorded: type[Recorded]) -> None:
    """The others train on, and need the memory."""
    company = Together()
    with company.training(), pytest.raises(ConfigError, match="diverged"):
        fit("failed", 4, Spoil())
    assert recorded.made == [1, 1]
    assert not company._recordings


def test_no_recording_outlives_the_end_of_a_training(recorded: type[Recorded]) -> None:
    """Not those of the others either: with it Lightning frees memory that they use."""
    company = Together(2)
    with company.training():
        company._recordings[(), BatchShape(1, ())] = Recorded([], [], BatchShape(1, ()), None)  # type: ignore[assignment]
    assert recorded.ended == [0]
    assert not company._recordings


def test_an_error_of_a_replay_reaches_all(fit: Fit, recorded: type[Recorded]) -> None:
    """At the end of a launch of one of them, in the middle of the other's."""
    recorded.breaks = 5
    errors = train([lambda: fit("seed0", 4), lambda: fit("seed1", 7, seed=1)])
    assert ["illegal memory" in str(error) for error in errors] == [True, True]
    assert len(recorded.replayed) == 5


def test_graphs_lie_on_the_device_once(fit: Fit, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    kept = together.ResidentGraphs

    def resident(*arguments: Any, **options: Any) -> Any:
        made.append(kept(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(together, "ResidentGraphs", resident)
    train(seeds(fit, 2, trainer={"max_epochs": 1}))
    assert len(made) == 1
