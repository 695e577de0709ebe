"""The one exception tree: what a user can mend is a `GraphormerError` of one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GraphormerError(Exception):
    """Something a user can mend: what happened, where, and what to do, in one line."""


class DataError(GraphormerError):
    """A data file, a graph or a molecule is missing, damaged or not of the expected form."""


class ConfigError(GraphormerError):
    """An option has a value that does not exist or contradicts another one."""


class CheckpointError(GraphormerError):
    """A checkpoint cannot be read or does not fit what it is asked for."""


class Interrupted(Exception):
    """Ctrl-C, SIGTERM or SIGHUP during a run; the message says what was saved."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the closest of `choices`, or the empty string."""
    spellings = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word.lower(), list(spellings), n=1, cutoff=0.5)
    return f" (did you mean '{spellings[close[0]]}'?)" if close else ""
