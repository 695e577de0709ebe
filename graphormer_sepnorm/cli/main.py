"""What both commands share: a user's mistake is one line on stderr and exit status 2."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import FrameType
from typing import Any, NoReturn

from graphormer_sepnorm.errors import ConfigError, GraphormerError, Interrupted
from graphormer_sepnorm.files import cannot_be_written
from graphormer_sepnorm.process import answered_by, is_first_process
from graphormer_sepnorm.streams import to_nowhere, usable

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130


class OneLineParser(argparse.ArgumentParser):
    """A parser that raises instead of printing its usage; `run` makes one line of it.

    Options are given by their whole names, as ``--a-b`` or ``--a_b``, and texts keep their lines.
    """

    def __init__(self, **options: Any) -> None:
        shape = argparse.RawDescriptionHelpFormatter
        super().__init__(formatter_class=shape, allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments: a ConfigError."""
        raise ConfigError(f"{message}; see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse what is known, as argparse does."""
        return super().parse_known_args(self._spelled(args), namespace)

    def parse_known_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse what is known, options between other arguments, as argparse does."""
        return super().parse_known_intermixed_args(self._spelled(args), namespace)

    def _spelled(self, words: Sequence[str]) -> list[str]:
        """Return the words, options in the spelling that this parser has."""
        names = [name for action in self._actions for name in action.option_strings]
        known = {name.replace("_", "-"): name for name in names}
        parts = [word.partition("=") for word in words]
        return [
            known.get(name.replace("_", "-"), name) + rest + value for name, rest, value in parts
        ]


def check_least(options: argparse.Namespace, least: Mapping[str, int]) -> None:
    """Raise a ConfigError if a number that was given is smaller than it may be."""
    for name, bound in least.items():
        value = getattr(options, name.replace("-", "_"), None)
        if value is not None and value < bound:
            raise ConfigError(f"--{name} is {value}: it must be {bound} or more")


def run(
    name: str,
    command: Callable[[list[str]], int | None],
    argv: list[str] | None = None,
    *,
    unread: bool = False,
) -> int:
    """Run a command and turn what goes wrong into a message and an exit status.

    Args:
        name: Name of the command, put before messages.
        command: Takes the arguments without ``--debug``; may return an exit status.
        argv: Arguments; those of the process if None.
        unread: Whether it goes on when nobody reads its output any more (`| head`).

    Returns:
        What the command returns, or 0; 2 after a user's mistake (one line on stderr); 130
        after Ctrl-C, SIGTERM or SIGHUP. Any other exception is a defect of the program and passes
        through with its traceback. With ``--debug`` a user's mistake shows its traceback too.
    """
    with usable(unread):
        status = _run(name, command, list(sys.argv[1:] if argv is None else argv))
        try:
            sys.stdout.flush()
        except OSError as error:
            to_nowhere(sys.stdout)
            # Who wrote more than fits into a buffer has said it already.
            if not isinstance(error, BrokenPipeError) and status != EXIT_USER_ERROR:
                said = cannot_be_written("standard output", error, "name a file")
                return _fail(name, said, EXIT_USER_ERROR)
        return status


def _run(name: str, command: Callable[[list[str]], int | None], arguments: list[str]) -> int:
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    interrupted = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.default_int_handler(number, frame)

    try:
        # SIGTERM (of a batch system, say) and SIGHUP mean what Ctrl-C does. Other threads get none.
        main = threading.current_thread() is threading.main_thread()
        with answered_by(interrupt) if main else nullcontext():
            return command(arguments) or 0
    except (GraphormerError, argparse.ArgumentError) as error:
        if debug:
            raise
        return _fail(name, str(error), EXIT_USER_ERROR)
    except Interrupted as error:
        # Of several processes, all of which are interrupted, the first one says so.
        others = not is_first_process()
        return EXIT_INTERRUPTED if others else _fail(name, str(error), EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone (`train.py --help | head`): nothing is left to say.
        to_nowhere(sys.stdout)
    except (Exception, KeyboardInterrupt) as error:
        # Imports may swallow the interrupt (torch's of NumPy does) and fail by what is half loaded.
        if not isinstance(error, KeyboardInterrupt) and (debug or not interrupted.is_set()):
            raise
        return _fail(name, "interrupted; nothing was saved", EXIT_INTERRUPTED)
    return 0


def _fail(name: str, message: str, status: int) -> int:
    print(f"{name}: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return status
