"""Every way to put a wrong value into a checkpoint."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import torch


def _nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


WRONG: dict[str, Any] = {
    "none": None,
    "no text": "",
    "text": "x",
    "long text": "x" * 100_000,
    "true": True,
    "minus one": -1,
    "zero": 0,
    "a thousand million": 10**9,
    "beyond a machine's integers": 10**300,
    "half": 0.5,
    "inf": math.inf,
    "nan": math.nan,
    "no list": [],
    "list in a list": [[]],
    "numbers": [1, 1.5, -1],
    "no dictionary": {},
    "a dictionary": {"a": {1: None}},
    "deep": _nested(200),
    "tensor": torch.ones(3),
    "number for a tensor": torch.tensor(math.nan),
    "sparse": torch.eye(3).to_sparse(),
    "complex": torch.ones(2, dtype=torch.complex64),
}


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths to all that can be replaced; of the entries of a list the first."""
    if path:
        yield path
    if isinstance(value, dict):
        for name, one in value.items():
            yield from places(one, (*path, name))
    elif isinstance(value, list | tuple) and value:
        yield from places(value[0], (*path, 0))


def replaced(checkpoint: dict[str, Any], path: tuple, value: Any) -> dict[str, Any]:
    """A copy of a checkpoint with another value in one place; its tensors are shared."""
    whole = copy.copy(checkpoint)
    part: Any = whole
    for name in path[:-1]:
        inner = part[name]
        part[name] = list(inner) if isinstance(inner, tuple) else copy.copy(inner)
        part = part[name]
    part[path[-1]] = value
    return whole
