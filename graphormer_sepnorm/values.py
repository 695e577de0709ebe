"""Options as dataclasses: types, ranges and choices stand at the field and are checked once."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import operator
from numbers import Integral, Real
from pathlib import PurePath
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, Union, get_args, get_origin

from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.files import hints_of, plain


def is_whole(value: object, least: float = -math.inf) -> bool:
    """Whether a value is a whole number, of at least so much; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: object) -> bool:
    """Whether a value is a finite real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


# How a value must stand to a limit of its range, and what is said of it.
_LIMITS = {
    "least": (operator.ge, "{:g} or more"),
    "above": (operator.gt, "above {:g}"),
    "most": (operator.le, "{:g} or less"),
    "below": (operator.lt, "below {:g}"),
}


def ranged(default: Any, **limits: float) -> Any:
    """Return a field of `Options` with its range: `least`, `above`, `most` and `below`."""
    return dataclasses.field(default=default, metadata={"range": limits})


class Options:
    """Base of frozen dataclasses whose fields are options.

    Numbers of numpy become Python's. A value is checked against the field's type (whole and real
    numbers, choices, None where it may be) and its range (`ranged`).

    Raises:
        ConfigError: A value is of another type, out of its range, or none of the choices.
    """

    section: ClassVar[str] = ""  # before the names of options in messages

    def __post_init__(self) -> None:
        hints = hints_of(type(self))
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = _as_meant(plain(getattr(self, field.name)), hints[field.name])
            object.__setattr__(self, field.name, value)
            wanted = _wrong(value, hints[field.name], field.metadata.get("range", {}))
            if wanted:
                shown = value if is_number(value) else repr(value)
                raise ConfigError(f"{self.section}{field.name} is {shown}: it must be {wanted}")

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Names of the options."""
        return tuple(field.name for field in dataclasses.fields(cls) if field.init)  # type: ignore[arg-type]

    def to_plain(self) -> dict[str, Any]:
        """Return the options by name, sections as dictionaries, tuples as lists."""
        return {name: _listed(getattr(self, name)) for name in self.names()}


def _as_meant(value: Any, hint: Any) -> Any:
    """Return a float for 1 and for 1e-3, which YAML takes for text; a tuple for a list."""
    kinds = get_args(hint) or (hint,)
    if type(value) in (str, int) and float in kinds and type(value) not in kinds:
        with contextlib.suppress(ValueError):
            return float(value)
    return tuple(value) if isinstance(value, list) and get_origin(hint) is tuple else value


def _listed(value: Any) -> Any:
    if isinstance(value, Options):
        return value.to_plain()
    if isinstance(value, PurePath):
        return str(value)
    return [*value] if isinstance(value, tuple) else value


def _wrong(value: Any, hint: Any, limits: dict[str, float]) -> str:
    """Say what a value should be; the empty string if it is."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if value is None and NoneType in kinds:
        return ""
    choices = [name for kind in kinds if get_origin(kind) is Literal for name in get_args(kind)]
    if choices:
        if value in choices and isinstance(value, str):
            return ""
        return f"{' or '.join(map(str, choices))}{did_you_mean(str(value), choices)}"
    if bool in kinds:
        return "" if isinstance(value, bool) or int in kinds else "true or false"
    if get_origin(kinds[0]) is tuple and get_args(kinds[0])[0] is float:
        count, given = len(get_args(kinds[0])), [*value] if isinstance(value, tuple | list) else []
        if len(given) == count and all(is_number(x) and not _outside(x, limits) for x in given):
            return ""
        return f"{count} numbers{_outside(math.nan, limits)}"
    if {*kinds} - {NoneType} == {str} and not isinstance(value, str | PurePath):
        return "text"
    if str in kinds or not {int, float} & {*kinds}:
        return ""
    fits = is_number(value) if float in kinds else is_whole(value)
    if fits and not _outside(value, limits):
        return ""
    word = "a number" if float in kinds else "a whole number"
    return word + _outside(math.nan, limits)


def _outside(value: Any, limits: dict[str, float]) -> str:
    """Name the range if a value is outside of it, as nan is."""
    found = [(_LIMITS[name], limit) for name, limit in limits.items()]
    if all(fits(value, limit) for (fits, _), limit in found):
        return ""
    return ", " + " and ".join(words.format(limit) for (_, words), limit in found)
