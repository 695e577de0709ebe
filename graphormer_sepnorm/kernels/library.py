"""Finds the compiled functions and shares their work among threads.

They are plain C, compiled when the package is installed if there is a C compiler. Without them,
or with the environment variable ``GRAPHORMER_KERNELS=off``, the same is computed in torch and
numpy, more slowly (`SLOWER`).
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

log = logging.getLogger(__name__)

# What is said where they are missing; the more the wider the vectors of the processor.
SLOWER = (
    "without compiled kernels, training takes 1.2 to 2 times as long and prediction 2 to 3 times "
    "(docs/installing.md)"
)
_switched_off = False


def library() -> ctypes.CDLL | None:
    """Return the compiled functions, or None if there are none or they are switched off."""
    return None if _switched_off else _load()


def is_switched_off() -> bool:
    """Whether torch and numpy are to do all the work, on every device."""
    return _switched_off or os.environ.get("GRAPHORMER_KERNELS", "").lower() == "off"


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Compute in torch and numpy meanwhile, in this process."""
    global _switched_off
    before, _switched_off = _switched_off, True
    try:
        yield
    finally:
        _switched_off = before


@lru_cache(maxsize=1)
def _load() -> ctypes.CDLL | None:
    if is_switched_off():
        return None
    file = newest_library(Path(__file__).parent)
    return load_library(file, file.parent) if file else None


def newest_library(folder: Path) -> Path | None:
    """Return the library of the last installation, or None if there is none.

    Its name tells nothing of Python, whose version it does not depend on; in a checkout there may
    be older ones whose names do.
    """
    files = sorted(folder.glob("_kernels*.so"), key=lambda file: file.stat().st_mtime)
    return files[-1] if files else None


def load_library(file: Path, sources: Path) -> ctypes.CDLL | None:
    """Load compiled functions, if they can be trusted.

    Args:
        file: The library.
        sources: Folder that holds the C files, in a checkout.

    Returns:
        The functions; None, with a warning, if the machine cannot load them, or if they are older
        than their source: they may then understand their arguments differently.
    """
    newest = max((path.stat().st_mtime for path in sources.glob("*.[ch]")), default=0.0)
    if newest > file.stat().st_mtime:
        log.warning("%s is older than its source and is not used: install the package again", file)
        return None
    try:
        return ctypes.CDLL(str(file))
    except OSError as error:
        log.warning("compiled kernels cannot be used (%s): install the package again", error)
        return None


def pointers(*names: str) -> tuple[tuple[str, type], ...]:
    """Fields of a `ctypes.Structure` that are pointers in C."""
    return tuple((name, ctypes.c_void_p) for name in names)


def integers(*names: str) -> tuple[tuple[str, type], ...]:
    """Fields of a `ctypes.Structure` that are ``int64_t`` in C."""
    return tuple((name, ctypes.c_int64) for name in names)


def run(name: str, arguments: ctypes.Structure, count: int, share: int, threads: int = 1) -> None:
    """Call a compiled function that does items ``first`` to ``last - 1`` of many.

    Args:
        name: Of the function, ``int name(const arguments *, int64_t first, int64_t last)``.
        arguments: What it works on.
        count: Number of items.
        share: Items that a thread takes at a time.
        threads: Threads, if there is an OpenMP runtime (torch has brought one); otherwise one.

    Raises:
        MemoryError: The function had no memory to work in.
    """
    compiled = library()
    assert compiled is not None  # the caller has asked
    function = getattr(compiled, name)
    items = ctypes.c_int64(count), ctypes.c_int64(share)
    parallel = _openmp() if threads > 1 and count > share else None
    if parallel is None:
        failed = function(ctypes.byref(arguments), ctypes.c_int64(0), items[0])
    else:
        failed = compiled.in_team(parallel, threads, function, ctypes.byref(arguments), *items)
    if failed:
        raise MemoryError(f"no memory for {name.replace('_', ' ')}")


@lru_cache(maxsize=1)
def _openmp() -> ctypes.c_void_p | None:
    """Return the entry point of the OpenMP runtime of this process."""
    parallel = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    return ctypes.cast(parallel, ctypes.c_void_p) if parallel else None
