"""Rounds in which every side has a turn, in an order that rotates, and what their ratios say.

The speed of a shared machine changes by the minute, so seconds of different rounds are not
comparable; the ratio of two sides within a round is.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """Median and quartiles."""

    low: float
    median: float
    high: float


def rotated(count: int, number: int) -> list[int]:
    """Return the order in which `count` sides work in round `number`: each is first in turn."""
    return [(number + place) % count for place in range(count)]


def take_turns(
    sides: Sequence[Callable[[], float]], rounds: int, after_round: Callable[[int], None]
) -> list[list[float]]:
    """Let all sides work in every round.

    Args:
        sides: Each takes its turn and returns its seconds.
        rounds: How often.
        after_round: Is told the number of rounds done.

    Returns:
        Seconds of each side, in the order of the rounds.
    """
    seconds: list[list[float]] = [[] for _ in sides]
    for number in range(rounds):
        for place in rotated(len(sides), number):
            seconds[place].append(sides[place]())
        after_round(number + 1)
    return seconds


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles, interpolated between the values."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def ratios(of: Sequence[float], to: Sequence[float]) -> Spread:
    """Return the spread of ``of / to`` within each round."""
    return spread([one / other for one, other in zip(of, to, strict=True)])
