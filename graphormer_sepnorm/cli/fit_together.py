"""Several runs of ``fit`` in one process, for ``compare --seeds-together``.

    python -m graphormer_sepnorm.cli.fit_together [--allow-code] LOG OPTIONS [LOG OPTIONS ...]

OPTIONS are the words after ``fit``, as a JSON list. Each run is a thread, prints to its log, and
ends as it would in a process of its own; their captured steps are taken together
(training/captured/together.py).
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, TextIO

from graphormer_sepnorm.cli import train
from graphormer_sepnorm.cli.foreign_code import OPTION, without_option
from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.cli.main import EXIT_INTERRUPTED, answered_by
from graphormer_sepnorm.compare.process_lifetime import end_with_the_command

_EXIT_DEFECT = 1


class _Routed:
    """A stream that hands what a thread prints to the log of its run.

    Args:
        otherwise: Where all other threads print.
    """

    def __init__(self, otherwise: TextIO) -> None:
        self._otherwise = otherwise
        self._own = threading.local()

    def route(self, log: TextIO) -> None:
        """Let this thread print to a log."""
        self._own.log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(getattr(self._own, "log", self._otherwise), name)


def main(arguments: list[str] | None = None) -> int:
    """Train the runs; return 0 if all have ended well, else the status of one that has not.

    Args:
        arguments: Those of the process if None.
    """
    end_with_the_command()
    words, any_code = without_option(sys.argv[1:] if arguments is None else arguments)
    more = [OPTION] if any_code else []
    runs = [
        (Path(log), [*more, *json.loads(options)])
        for log, options in zip(words[::2], words[1::2], strict=True)
    ]
    statuses: list[int] = []
    with _routed() as streams:
        # Lightning is loaded here: its loggers keep the stream that they find.
        silence_known_noise()
        from graphormer_sepnorm.training.callbacks.stopping import STOP_ALL
        from graphormer_sepnorm.training.captured.together import Together

        together = Together(len(runs))

        def fit(log: Path, options: list[str]) -> None:
            with (
                together.training(),
                log.open("a", encoding="utf-8", buffering=1) as file,
            ):
                for stream in streams:
                    stream.route(file)
                statuses.append(EXIT_INTERRUPTED if STOP_ALL.is_set() else _fit(options))

        threads = [threading.Thread(target=fit, args=run) for run in runs]
        with _stopped_together():
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    return max(statuses, default=_EXIT_DEFECT)


def _fit(options: list[str]) -> int:
    """Do what a process of its own would do."""
    # A run notes the command that started it, before another one has its turn.
    sys.argv = ["train.py", "fit", *options]
    try:
        return train.main(["fit", *options])
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else _EXIT_DEFECT
    except BaseException:
        traceback.print_exc()
        return _EXIT_DEFECT


@contextmanager
def _routed() -> Iterator[list[_Routed]]:
    """Let threads have logs of their own in the place of this process's output."""
    kept = sys.stdout, sys.stderr, sys.argv
    streams = [_Routed(sys.stdout), _Routed(sys.stderr)]
    sys.stdout, sys.stderr = streams  # type: ignore[assignment]
    try:
        yield streams
    finally:
        sys.stdout, sys.stderr, sys.argv = kept


@contextmanager
def _stopped_together() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM, which threads do not get, stop all runs between two steps.

    However often they come: the command that has started this process kills it if need be.
    """
    from lightning.pytorch.trainer import call

    from graphormer_sepnorm.training.callbacks.stopping import STOP_ALL

    def stop(number: int, frame: FrameType | None) -> None:
        STOP_ALL.set()

    # Lightning would ignore further signals while it ends, which only the main thread may ask for.
    without = SimpleNamespace(
        SIGINT=signal.SIGINT, SIG_IGN=signal.SIG_IGN, signal=lambda number, handler: None
    )
    names: dict[str, Any] = call.__dict__
    with answered_by(stop):
        lightnings, names["signal"] = names["signal"], without
        try:
            yield
        finally:
            names["signal"] = lightnings
            STOP_ALL.clear()


if __name__ == "__main__":
    sys.exit(main())
