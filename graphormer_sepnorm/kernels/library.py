"""Finds the compiled functions and shares their work among threads.

They are plain C, compiled when the package is installed if there is a C compiler. Without them,
or with the environment variable ``GRAPHORMER_KERNELS=off``, the same is computed in torch and
numpy, several times more slowly.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

log = logging.getLogger(__name__)

_switched_off = False


def library() -> ctypes.CDLL | None:
    """Return the compiled functions, or None if there are none or they are switched off."""
    return None if _switched_off else _load()


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
    if os.environ.get("GRAPHORMER_KERNELS", "").lower() == "off":
        return None
    folder = Path(__file__).parent
    files = [folder / f"_kernels{suffix}" for suffix in EXTENSION_SUFFIXES]
    return next((load_library(file, folder) for file in files if file.is_file()), None)


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


def in_threads(work: Callable[[int, int], None], bounds: list[int]) -> None:
    """Call ``work(first, last)`` for each pair of neighbouring `bounds`, all at the same time.

    The compiled functions let other Python threads run meanwhile. The calling thread takes the
    last part itself.
    """
    parts = list(itertools.pairwise(bounds))
    others = [_threads().submit(work, *part) for part in parts[:-1]]
    work(*parts[-1])
    for other in others:
        other.result()


@lru_cache(maxsize=1)
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="kernels")


# A forked process has none of the threads of its parent.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)
