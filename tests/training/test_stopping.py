"""Ctrl-C and SIGTERM act between steps, and belong to training only while it lasts."""

import signal
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.pipeline.decisions import explaining
from graphormer_sepnorm.process import KILLED_BY_ITS_COMMAND
from graphormer_sepnorm.training import checkpoints as stopping
from graphormer_sepnorm.training.checkpoints import StopAtOnce, StopBetweenSteps

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class At(Callback):
    """Does something in the middle of a step."""

    def __init__(self, step: int, act: Callable[[], Any]) -> None:
        self.step = step
        self.act = act
        self.ended = 0
        self.handlers_in_step: list[Any] = []

    def on_before_optimizer_step(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.step:
            self.handlers_in_step = handlers()
            self.act()

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.ended = trainer.global_step


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in SIGNALS]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_lets_the_step_end(number: int, train: Callable) -> None:
    before = handlers()
    at = At(2, lambda: signal.raise_signal(number))
    _, _, trainer = train(at, StopBetweenSteps())
    assert trainer.interrupted
    assert at.ended == trainer.global_step == 3
    assert all(handler not in before for handler in at.handlers_in_step)
    assert handlers() == before


class SaveSlowly(Callback):
    """Is interrupted again while it saves what there is."""

    def __init__(self) -> None:
        self.saved = False

    def on_exception(self, *_: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        self.saved = True


def test_a_second_signal_lets_saving_end(train: Callable) -> None:
    before = handlers()
    saving = SaveSlowly()
    at = At(2, lambda: signal.raise_signal(signal.SIGINT))
    train(at, saving, StopBetweenSteps())
    assert saving.saved
    assert handlers() == before


def test_a_second_signal_acts_at_once(make_module, make_trainer, monkeypatch):
    before = handlers()
    stop = StopBetweenSteps()
    trainer = make_trainer(callbacks=[stop])
    stop.on_train_start(trainer, make_module())
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)  # of a batch system, in the same second
    monkeypatch.setattr(stopping, "ONE_REQUEST", -1)
    with pytest.raises(StopAtOnce):
        signal.raise_signal(signal.SIGINT)
    stop.on_train_end(trainer, make_module())
    assert handlers() == before


def test_a_process_of_another_command_saves_however_often_it_is_asked(train, monkeypatch):
    """A member of an ensemble is asked by the batch system and by its command, maybe much later."""
    monkeypatch.setenv(KILLED_BY_ITS_COMMAND, "1")
    monkeypatch.setattr(stopping, "ONE_REQUEST", -1)

    def twice() -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)

    saving = SaveSlowly()
    _, _, trainer = train(At(2, twice), saving, StopBetweenSteps())
    assert trainer.interrupted
    assert trainer.global_step == 3
    assert saving.saved


@pytest.mark.parametrize("fails", [False, True])
def test_signals_are_free_after_training(fails: bool, train: Callable) -> None:
    def act() -> None:
        if fails:
            raise RuntimeError("in a step")

    before, at = handlers(), At(2, act)
    with pytest.raises(RuntimeError, match="in a step") if fails else nullcontext():
        train(at, StopBetweenSteps(), max_epochs=1)
    assert at.handlers_in_step != before
    assert handlers() == before


def test_what_is_ignored_stays_so(train: Callable) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    at = At(2, lambda: signal.raise_signal(signal.SIGINT))
    _, _, trainer = train(at, StopBetweenSteps(), max_epochs=1)
    assert at.handlers_in_step[0] == signal.SIG_IGN
    assert not trainer.interrupted


def test_what_is_no_mistake_of_the_user_stays_what_it_is() -> None:
    for error in (RuntimeError("a fault"), ValueError("a fault")):
        with pytest.raises(type(error)) as found, explaining():
            raise error
        assert found.value is error
