"""How training and evaluation end early: by one line that is true, with all kept that is whole."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer
from lightning.pytorch.trainer.connectors import checkpoint_connector

from graphormer_sepnorm.errors import CheckpointError, ConfigError, GraphormerError, Interrupted
from graphormer_sepnorm.process import ending_with


@contextmanager
def explaining() -> Iterator[None]:
    """Turn what Lightning says of a mistake in its options into one line.

    Raises:
        ConfigError: With what it says.
    """
    try:
        yield
    except (MisconfigurationException, ValueError) as error:
        if not (isinstance(error, MisconfigurationException) or _of_lightning(error)):
            raise
        raise ConfigError(" ".join(str(error).split())) from error


def _of_lightning(error: Exception) -> bool:
    """Whether it is Lightning itself that raised an error, as it does for some options."""
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    return str(innermost.f_globals.get("__name__", "")).startswith("lightning.")


@contextmanager
def interruptible(trainer: Trainer, what_was_saved: Callable[[], str]) -> Iterator[None]:
    """Turn Lightning's way of ending after Ctrl-C into ours.

    Lightning lets its callbacks save the state, then exits with status 1. Outside of its loops
    there is a KeyboardInterrupt, or an end at once while something is imported.

    Raises:
        Interrupted: With what `what_was_saved` says.
    """
    with ending_with(what_was_saved):
        try:
            yield
        except KeyboardInterrupt:
            raise Interrupted(what_was_saved()) from None
        except SystemExit:
            if not trainer.interrupted:
                raise
            raise Interrupted(what_was_saved()) from None


@contextmanager
def restorable(file: object) -> Iterator[None]:
    """Say which checkpoint it is that Lightning cannot put back.

    What callbacks, optimizers and loops keep of themselves is checked by nobody before.

    Raises:
        CheckpointError: It failed in restoring the state of training.
    """
    try:
        yield
    except (GraphormerError, MisconfigurationException):
        raise
    except Exception as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        names = [
            frame.f_code.co_name.lstrip("_")
            for frame in frames
            if frame.f_globals.get("__name__") == checkpoint_connector.__name__
        ]
        if not any(name.startswith(("restore", "resume")) for name in names):
            raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise CheckpointError(
            f"{file} cannot be restored ({reason}): it is damaged, or of another version of "
            "Lightning or torch"
        ) from error
