"""Dataclasses made again of what JSON keeps of them."""

from __future__ import annotations

import functools
import math
import typing
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any


def typed(kind: Any, plain: Any) -> Any:
    """Make what a type hint says of what JSON holds.

    Null for a float is nan. A dataclass takes the entries that it has fields for; of several the
    first one is made whose fields are all there.
    """
    members = typing.get_args(kind)
    if kind is float:
        return math.nan if plain is None else float(plain)
    if isinstance(kind, UnionType):
        fitting = (one for one in members if is_dataclass(one) and _fits(one, plain))
        return typed(next(fitting, None), plain)
    if is_dataclass(kind):
        hints = _hints(kind)
        found = {name: typed(hints[name], plain[name]) for name in hints if name in plain}
        return kind(**found)  # type: ignore[operator]
    if typing.get_origin(kind) is tuple:
        return tuple(typed(members[0], one) for one in plain or ())
    if typing.get_origin(kind) is dict:
        return {name: typed(members[1], one) for name, one in (plain or {}).items()}
    return plain


def _fits(kind: Any, plain: Any) -> bool:
    needed = {one.name for one in fields(kind) if one.default is MISSING}
    return isinstance(plain, dict) and needed <= plain.keys()


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)
