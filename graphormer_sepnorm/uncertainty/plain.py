"""Dataclasses of numbers and arrays as the plain values that a checkpoint holds, and back."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar, cast, get_type_hints

import numpy as np

Made = TypeVar("Made")


def to_plain(one: Any) -> dict[str, Any]:
    """Return dictionaries, lists and numbers."""

    def lists(parts: list[tuple[str, Any]]) -> dict[str, Any]:
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in parts
        }

    return asdict(one, dict_factory=lists)


def from_plain(kind: type[Made], plain: dict[str, Any]) -> Made:
    """Make a dataclass of them, which may know more than this version; arrays are float64."""
    values: dict[str, Any] = {}
    for name, hint in get_type_hints(kind).items():
        if name not in plain:
            continue
        value = plain[name]
        if hint is np.ndarray:
            value = np.array(value, np.float64)
        elif is_dataclass(hint):
            value = from_plain(cast(Any, hint), value)
        values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)
