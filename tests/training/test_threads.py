"""How many CPU threads compute beside other programs."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch import Callback

from graphormer_sepnorm.training.callbacks import progress, threads
from graphormer_sepnorm.training.callbacks.progress import TrainingProgress
from graphormer_sepnorm.training.callbacks.threads import (
    LeaveBusyCores,
    seconds_busy,
    threads_beside,
)

MOST = 3


@pytest.fixture(autouse=True)
def _three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(MOST)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def others(monkeypatch) -> SimpleNamespace:
    """Programs that keep `cores` of three busy; a second passes at every look."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    state = SimpleNamespace(cores=0.0, now=0.0, busy=0.0)

    def pass_a_second() -> float:
        state.now += 1
        state.busy += state.cores + 1  # we have one of them
        return state.now

    clock = SimpleNamespace(monotonic=pass_a_second, process_time=lambda: state.now)
    monkeypatch.setattr(threads, "time", clock)
    monkeypatch.setattr(threads, "seconds_busy", lambda: state.busy)
    monkeypatch.setattr(threads, "cores", lambda: MOST)
    return state


class Noted(Callback):
    """Notes the threads of each step; `then` is called after each."""

    def __init__(self, then=lambda step: None) -> None:
        self.threads: list[int] = []
        self.then = then

    def on_train_batch_end(self, trainer, *_) -> None:
        self.threads.append(torch.get_num_threads())
        self.then(trainer.global_step)


@pytest.mark.parametrize(
    ("others", "cores", "most", "expected"),
    [
        (0.0, 2, 2, 2),
        (-0.1, 2, 2, 2),  # what the system counts is not exact
        (0.2, 2, 2, 2),  # the noise of any machine
        (0.5, 2, 2, 1),  # a program that has half of a core, the other half being ours
        (1.0, 2, 2, 1),
        (2.0, 2, 2, 1),
        (4.0, 16, 8, 8),  # enough are free
        (9.9, 16, 8, 6),
        (0.0, 2, 4, 2),  # more threads than cores
    ],
)
def test_threads_leave_busy_cores_to_others(others, cores, most, expected) -> None:
    assert threads_beside(others, cores, most) == expected


def test_the_threads_follow_the_load(train, others) -> None:
    loads = {1: 1.0, 2: 5.0, 3: 0.1}

    def change(step: int) -> None:
        others.cores = loads.get(step, others.cores)

    noted = Noted(then=change)
    train(LeaveBusyCores(), noted, max_epochs=1, limit_val_batches=0)
    assert noted.threads == [3, 2, 1, 3, 3]


@pytest.mark.parametrize("interrupted", [False, True])
def test_afterwards_there_are_as_many_as_before(interrupted, train, others) -> None:
    others.cores = 3.0

    def stop(step: int) -> None:
        if step == 3 and interrupted:
            raise RuntimeError("out of patience")

    noted = Noted(then=stop)
    try:
        train(LeaveBusyCores(), noted, max_epochs=1)
    except RuntimeError:
        assert interrupted
    assert noted.threads[-1] == 1
    assert torch.get_num_threads() == MOST


def test_a_policy_of_the_user_keeps_all_threads(train, others, monkeypatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    others.cores = 3.0
    noted = Noted()
    train(LeaveBusyCores(), noted, max_epochs=1)
    assert set(noted.threads) == {MOST}


def test_how_many_compute_changes_no_number(train, losses, others) -> None:
    values = []
    for load in (0.0, 3.0):
        others.cores = load
        noted = losses()
        module, *_ = train(LeaveBusyCores(), noted)
        values.append((noted.values, module.state_dict()))
    (several, weights), (one, others_weights) = values
    assert several == one
    assert all(torch.equal(weights[name], others_weights[name]) for name in weights)


def test_the_progress_says_how_many(train, others, monkeypatch, capsys) -> None:
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0)
    others.cores = 1.0
    train(LeaveBusyCores(), TrainingProgress("mae"), max_epochs=1, enable_progress_bar=True)
    first, *_, last = capsys.readouterr().err.splitlines()
    assert "threads" not in first
    assert "2 of 3 threads" in last


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how busy its cores are")
def test_what_another_process_computes_is_counted() -> None:
    before = seconds_busy()
    own = os.times()
    burn = "import time\nwhile time.process_time() < 1: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    spent = os.times()
    theirs = spent.children_user + spent.children_system - own.children_user - own.children_system
    assert theirs > 0.9  # in ticks
    assert seconds_busy() - before >= theirs - 0.2


def test_a_system_that_does_not_say_it(monkeypatch, train) -> None:
    monkeypatch.setattr(threads, "sys", SimpleNamespace(platform="darwin"))
    assert seconds_busy() is None
    noted = Noted()
    train(LeaveBusyCores(), noted, max_epochs=1)
    assert set(noted.threads) == {MOST}
