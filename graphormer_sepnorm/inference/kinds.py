"""Kinds of plain values, looked at one by one: what they are called, and where one is another.

A file may be damaged, or made to do damage: nothing here trusts a value before it has seen it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch

from graphormer_sepnorm.errors import CheckpointError

# Takes a value and the words for its place; raises CheckpointError where it is of another kind.
Kind = Callable[[Any, str], None]

_MAX_TEXT = 10_000
_MAX_WHOLE = 2**62


def refuse(value: Any, place: str, expected: str) -> CheckpointError:
    """Return the error that says what a value is, where it stands, and what was expected."""
    if value is None or isinstance(value, bool | int | float | str):
        shown = repr(value)
        shown = shown if len(shown) <= 40 else f"{shown[:40]}..."
    else:
        shown = f"of type {type(value).__name__}"
    return CheckpointError(f"{place or 'the checkpoint'} is {shown}, expected {expected}")


def require(fits: Any, said: str) -> None:
    """Raise an error that says what does not fit, if it does not."""
    if not fits:
        raise CheckpointError(said)


def requirement(place: str) -> Callable[[Any, str], None]:
    """Return `require` for what stands in a place, which its errors name first."""
    return lambda fits, said: require(fits, f"{place} {said}")


def simple(expected: str, fits: Callable[[Any], bool]) -> Kind:
    """A value that `fits`; `expected` says of what kind that is."""

    def check(value: Any, place: str) -> None:
        if not fits(value):
            raise refuse(value, place, expected)

    return check


def _is_real(value: Any) -> bool:
    """Tell whether it is a number, of which nan and inf are some."""
    return type(value) is float or is_whole(value)


def is_whole(value: Any) -> bool:
    """Tell whether it is a whole number that other code can reckon with."""
    return type(value) is int and abs(value) < _MAX_WHOLE


def _is_finite(value: Any) -> bool:
    return _is_real(value) and math.isfinite(value)


def is_text(value: Any) -> bool:
    """Tell whether it is text of a length that messages can bear."""
    return isinstance(value, str) and len(value) <= _MAX_TEXT


def is_weight(value: Any) -> bool:
    """Tell whether it is a dense tensor of real numbers."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and not (value.is_meta or value.is_quantized or value.is_complex())
    )


def tensor_of(kind: str, dimensions: int = 1) -> Kind:
    """A tensor of so many dimensions."""
    return simple(
        f"a {'row' if dimensions == 1 else 'table'} of {kind}",
        lambda value: (
            is_weight(value) and value.ndim == dimensions and str(value.dtype) == f"torch.{kind}"
        ),
    )


def _is_increasing(value: Any) -> bool:
    return (
        isinstance(value, list | tuple)
        and all(is_whole(code) for code in value)
        and all(one < other for one, other in itertools.pairwise(value))
    )


def among(*choices: str) -> Kind:
    """One of some texts."""
    return simple(" or ".join(choices), lambda value: isinstance(value, str) and value in choices)


def list_of(kind: Kind) -> Kind:
    """A list of values of one kind."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, list | tuple):
            raise refuse(value, place, "a list")
        for number, one in enumerate(value):
            kind(one, f"{place}[{number}]")

    return check


def dictionary_of(kind: Kind) -> Kind:
    """Names, and values that are all of one kind."""

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise refuse(value, place, "a dictionary")
        for name, one in value.items():
            if not is_text(name):
                raise refuse(name, f"a name in {place}", "text")
            kind(one, f"{place}.{name[:80]}")

    return check


def record(needed: dict[str, Kind], other: dict[str, Kind] | None = None) -> Kind:
    """A dictionary that has the `needed` entries, may have the `other` ones, and more."""
    kinds = needed | (other or {})

    def check(value: Any, place: str) -> None:
        if not isinstance(value, dict):
            raise refuse(value, place, "a dictionary")
        for name, kind in kinds.items():
            if name in value:
                kind(value[name], f"{place}.{name}" if place else name)
            else:
                require(name not in needed, f"{place}.{name} is missing".removeprefix("."))

    return check


def optional(kind: Kind) -> Kind:
    """A value of a kind, or None."""

    def check(value: Any, place: str) -> None:
        if value is not None:
            kind(value, place)

    return check


TEXT = simple(f"text of at most {_MAX_TEXT:,} characters", is_text)
FLAG = simple("True or False", lambda value: type(value) is bool)
WHOLE = simple("a whole number", is_whole)
COUNT = simple("a whole number of at least 0", lambda value: is_whole(value) and value >= 0)
REAL = simple("a number", _is_real)
FINITE = simple("a finite number", _is_finite)
POSITIVE = simple("a positive number", lambda value: _is_finite(value) and value > 0)
PLAIN = simple(
    "a number or text",
    lambda value: value is None or type(value) is bool or _is_real(value) or is_text(value),
)
CODES = simple("a list of increasing whole numbers", _is_increasing)
NOT_NEGATIVE = simple("a number of at least 0", lambda value: _is_finite(value) and value >= 0)
SHARE = simple("a number from 0 to 1", lambda value: _is_finite(value) and 0 <= value <= 1)
WEIGHTS = dictionary_of(simple("a dense tensor of real numbers", is_weight))
TARGETS = list_of(TEXT)


def pair_of(kind: Kind) -> Kind:
    """A list of two values of a kind."""

    def check(value: Any, place: str) -> None:
        list_of(kind)(value, place)
        require(len(value) == 2, f"{place} has {len(value)} numbers, expected 2")

    return check
