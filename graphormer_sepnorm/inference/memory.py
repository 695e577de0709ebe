"""Gives memory back that the C library keeps."""

from __future__ import annotations

import ctypes
import itertools
from functools import lru_cache

_CALLS = 8
_calls = itertools.count(1)


def trim_now_and_then() -> None:
    """Return freed memory to the system, at every eighth call.

    Batches of ever new sizes leave gaps between what is in use. The C library keeps them, and a
    process that predicts a long table would grow by hundreds of megabytes. Not at every call: the
    memory has to be had back from the system, page by page.
    """
    if next(_calls) % _CALLS == 0 and (trim := _malloc_trim()):
        trim(0)


@lru_cache(maxsize=1)
def _malloc_trim() -> ctypes._NamedFuncPointer | None:
    """Return glibc's function, or None where the C library is another one."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
