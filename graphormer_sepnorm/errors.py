"""The one exception tree: what a user can correct is a `GraphormerError` of one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class GraphormerError(Exception):
    """Something a user can correct: what happened, where, and what to do, in one line."""


class DataError(GraphormerError):
    """A data file, a graph or a molecule is missing, damaged or not of the expected form."""


class ConfigError(GraphormerError):
    """An option has a value that does not exist or contradicts another one."""


class CheckpointError(GraphormerError):
    """A checkpoint cannot be read or does not fit what it is asked for."""


class Interrupted(Exception):
    """Ctrl-C, SIGTERM or SIGHUP during a run; the message says what was saved."""


def closest(word: str, choices: Iterable[str], cutoff: float = 0.6) -> str:
    """Return the one of `choices` that is spelled nearly like a word; empty where none is."""
    spellings = {choice.lower().lstrip("-"): choice for choice in choices}
    found = difflib.get_close_matches(word.lower().lstrip("-"), list(spellings), 1, cutoff)
    return spellings[found[0]] if found else ""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the `closest` of `choices`, or the empty string."""
    meant = closest(word, choices)
    return f" (did you mean '{meant}'?)" if meant else ""
