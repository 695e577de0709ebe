"""A training inside somebody's program: quiet, with nothing left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from graphormer_sepnorm.config import FitConfig
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import Interrupted
from graphormer_sepnorm.estimators.options import in_memory
from graphormer_sepnorm.inference.checkpoint import read_checkpoint, save_for_prediction
from graphormer_sepnorm.pipeline.fit import fit

# torch's random numbers and the filters of warnings are of the whole process: of two trainings in
# threads of one, each would draw from the other's.
_one_at_a_time = threading.Lock()


def _forget_threads() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


# A child has none of the threads of its parent, one of which may have been training.
os.register_at_fork(after_in_child=_forget_threads)


def trained(config: FitConfig, splits: DatasetSplits) -> bytes:
    """Train a model on data in memory; return its checkpoint, see `save_for_prediction`.

    Nothing is written but to a temporary folder, which is gone afterwards; nothing is said, and
    torch's random numbers go on as if nothing had been trained. Threads of a process train one
    after the other.

    Raises:
        GraphormerError: Training is impossible with these options or data.
        KeyboardInterrupt: It was interrupted.
    """
    gpus = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    threads = torch.get_num_threads()
    with (
        _one_at_a_time,
        tempfile.TemporaryDirectory(prefix="graphormer-") as folder,
        torch.random.fork_rng(devices=gpus),
        _quiet(),
    ):
        if config.ensemble > 1:  # as members that train side by side, each with a thread
            torch.set_num_threads(1)
        try:
            outcome = fit(in_memory(config, Path(folder)), show=lambda _: None, splits=splits)
        except Interrupted:
            raise KeyboardInterrupt from None
        finally:
            torch.set_num_threads(threads)
        assert outcome is not None
        slim = Path(folder) / "model.ckpt"
        save_for_prediction(read_checkpoint(outcome.network.checkpoint), slim)
        return slim.read_bytes()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what Lightning says of devices, workers and other products, and give it back its voice.

    Warnings of this package are messages of its own loggers, and stay.
    """
    loggers = [logging.getLogger(f"lightning.{part}") for part in ("pytorch", "fabric")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        for category in (UserWarning, FutureWarning, DeprecationWarning):
            warnings.filterwarnings("ignore", category=category, module=r"(lightning|torch)\b")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
