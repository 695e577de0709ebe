"""Finds the compiled functions and shares their work among threads.

They are plain C, compiled when the package is installed if there is a C compiler. The structure of
graphs is computed by nothing else; all other functions have a form in torch, 1.2 to 3 times slower.

The environment variable ``GRAPHORMER_KERNELS`` chooses a form: ``plain`` is torch (structure stays
C), ``basic`` C for any processor, ``avx2`` and ``avx512`` C for x86 processors that have these
instructions; ``auto``, the default, is the best one that the processor has.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from graphormer_sepnorm.errors import ConfigError

# Compiled forms, from the one that any processor has: C numbers them so.
FORMS = ("basic", "avx2", "avx512")

_switched_off = False
_Structure = TypeVar("_Structure", bound=ctypes.Structure)


def library() -> ctypes.CDLL | None:
    """Return the compiled functions, or None if there are none or they are switched off.

    Raises:
        ConfigError: ``GRAPHORMER_KERNELS`` names no form, or one that this processor lacks; or the
            file cannot be used (`load_library`).
    """
    return None if _switched_off else _chosen()


def required_library() -> ctypes.CDLL:
    """Return the compiled functions for what has no other form, switched off or not.

    Raises:
        ConfigError: As `library`, or there are none.
    """
    compiled = _load()
    if compiled is None:
        raise ConfigError(
            "graphormer_sepnorm was installed without its compiled part, which computes the "
            "structure of graphs: install a C compiler (gcc), then the package again with pip"
        )
    return compiled


def _wanted() -> str:
    return os.environ.get("GRAPHORMER_KERNELS", "").lower() or "auto"


@contextlib.contextmanager
def switched_off() -> Iterator[None]:
    """Compute in torch meanwhile, in this process."""
    global _switched_off
    before, _switched_off = _switched_off, True
    try:
        yield
    finally:
        _switched_off = before


@lru_cache(maxsize=1)
def _chosen() -> ctypes.CDLL | None:
    return None if _wanted() == "plain" else _load()


@lru_cache(maxsize=1)
def _load() -> ctypes.CDLL | None:
    wanted = _wanted()
    if wanted not in ("auto", "plain", *FORMS):
        raise ConfigError(f"GRAPHORMER_KERNELS={wanted}: give plain, {', '.join(FORMS)} or auto")
    file = Path(__file__).with_name("_kernels.so")  # on Windows too, see setup.py
    compiled = load_library(file) if file.is_file() else None
    if compiled is not None and wanted in FORMS:
        has = compiled.best_form()
        if FORMS.index(wanted) > has:
            raise ConfigError(
                f"GRAPHORMER_KERNELS={wanted}: this processor has {FORMS[has]}; give auto"
            )
        compiled.limit_form(FORMS.index(wanted))
    return compiled


def load_library(file: Path) -> ctypes.CDLL:
    """Load compiled functions, beside whose file a checkout has their source.

    Raises:
        ConfigError: The machine cannot load them, or they are older than their source: they may
            then understand their arguments differently.
    """
    newest = max((path.stat().st_mtime for path in file.parent.glob("*.[ch]")), default=0.0)
    if newest > file.stat().st_mtime:
        raise ConfigError(f"{file} is older than its source: install the package again")
    try:
        return ctypes.CDLL(str(file))
    except OSError as error:
        reason = f"the compiled part of graphormer_sepnorm cannot be used ({error})"
        raise ConfigError(f"{reason}: install the package again") from error


def pointers(*names: str) -> tuple[tuple[str, type], ...]:
    """Fields of a `ctypes.Structure` that are pointers in C."""
    return tuple((name, ctypes.c_void_p) for name in names)


def integers(*names: str) -> tuple[tuple[str, type], ...]:
    """Fields of a `ctypes.Structure` that are ``int64_t`` in C."""
    return tuple((name, ctypes.c_int64) for name in names)


def point(arguments: _Structure, **tensors: Any) -> _Structure:
    """Have pointers of a structure point to contiguous tensors, which are kept by the caller.

    Args:
        arguments: The structure.
        **tensors: By the name of the pointer; None is NULL.
    """
    for name, tensor in tensors.items():
        setattr(arguments, name, None if tensor is None else tensor.data_ptr())
    return arguments


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
    if sys.platform == "win32":  # which cannot be asked about the whole process
        return None
    parallel = getattr(ctypes.CDLL(None), "GOMP_parallel", None)
    return ctypes.cast(parallel, ctypes.c_void_p) if parallel else None
