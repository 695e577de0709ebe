"""Files that are whole or not there, whatever ends the program that writes them; their values."""

from __future__ import annotations

import csv
import errno
import functools
import hashlib
import json
import math
import os
import sys
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from graphormer_sepnorm.errors import DataError

# Other names of the output that ``-`` is.
STANDARD_OUTPUTS = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def is_stream(path: str | Path) -> bool:
    """Whether an output is standard output, a device or a pipe: it has no place beside it."""
    if str(path) in STANDARD_OUTPUTS:
        return True
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def behind_link(path: Path) -> Path:
    """Return what a symbolic link points to, so that a file takes that place and not the link's."""
    return Path(os.path.realpath(path)) if path.is_symlink() and not is_stream(path) else path


def beside(path: Path, suffix: str, prefix: str = "") -> Path:
    """Return the name of a file beside another one, which is that with something added."""
    return path.with_name(f"{prefix}{path.name}{suffix}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside a file; what is written there takes its place at the end.

    After an error the file that was there stays, and nothing is left beside it. A device or a pipe
    gives its own name: nothing can take its place.

    Raises:
        OSError: The file cannot be written.
    """
    if is_stream(path):
        yield path
        return
    path = behind_link(path)
    partial = beside(path, ".partial", ".")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of what a file holds, in hexadecimal, or raise OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_full(error: BaseException | None) -> bool:
    """Tell whether there was no room on the disk for what was written, or for a file so large.

    numpy and torch raise errors of their own: numpy's has no number, torch's has that of the system
    behind it.
    """
    while error is not None:
        if isinstance(error, OSError):
            short = error.errno is None and str(error).endswith(" written")
            if short or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                return True
        error = error.__cause__ or error.__context__
    return False


def cannot_be_written(
    what: str | Path, error: OSError, otherwise: str = "choose another place"
) -> str:
    """Say in one line that something cannot be written, why, and what to do."""
    full = is_full(error)
    reason = error.strerror or (os.strerror(errno.ENOSPC) if full else error)
    advice = f"make room, or {otherwise}" if full else otherwise
    return f"{what} cannot be written ({reason}): {advice}"


def write_json(path: Path, content: dict[str, Any], indent: int | None = 2) -> None:
    """Write a JSON file under a temporary name and rename it; without `indent` a single line.

    A number that is not finite becomes null, since JSON has no such numbers.
    """
    with replacing(path) as partial:
        partial.write_text(json.dumps(_finite(content), indent=indent) + "\n", encoding="utf-8")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [*map(_finite, value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def read_json(path: Path) -> dict[str, Any] | None:
    """Read what `write_json` wrote; None if there is no such file or it is not whole."""
    try:
        return require_json(path)
    except DataError:
        return None


def require_json(path: Path) -> dict[str, Any]:
    """Read a JSON object that has to be there, or raise a DataError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is damaged ({error}): remove it or put it back") from error
    if not isinstance(content, dict):
        raise DataError(f"{path} is damaged (no JSON object): remove it or put it back")
    return content


def typed(kind: Any, plain: Any) -> Any:
    """Make what a type hint says, as a dataclass, of what JSON or a checkpoint holds.

    Null for a float is nan; lists become float64 arrays, tensors arrays of their type. A dataclass
    takes the entries that it has fields for.
    """
    members = typing.get_args(kind)
    if isinstance(kind, types.UnionType):  # of the first one, or None
        return None if plain is None else typed(members[0], plain)
    if kind is float:
        return math.nan if plain is None else plain
    if getattr(kind, "__name__", "") == "ndarray":  # of numpy, which its type has loaded
        dtype = None if hasattr(plain, "dtype") else float
        return sys.modules[kind.__module__].asarray(plain, dtype)
    if is_dataclass(kind):
        hints = hints_of(kind)
        found = {name: typed(hints[name], plain[name]) for name in hints if name in plain}
        return kind(**found)  # type: ignore[operator]
    if typing.get_origin(kind) is tuple:
        return tuple(typed(members[0], one) for one in plain or ())
    return plain


hints_of = functools.cache(typing.get_type_hints)


def write_columns(path: Path, columns: Mapping[str, Iterable[object]]) -> None:
    """Write columns of one length as CSV, under a temporary name, and rename the file.

    Bytes of a table that are no UTF-8 go back as they were.

    Raises:
        OSError: It cannot be written.
    """
    with (
        replacing(path) as partial,
        partial.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def write_text(path: Path, text: str) -> None:
    """Write a file and the folders that it needs, whole or not at all (a DataError)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            partial.write_text(text, encoding="utf-8")
    except OSError as error:
        raise DataError(cannot_be_written(path, error)) from error


def plain(value: Any) -> Any:
    """Return a number of numpy's or torch's as Python's, also within dicts, lists and tuples.

    Searches draw such numbers, and a checkpoint that holds one cannot be read without running code.
    """
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [*map(plain, value)] if isinstance(value, list) else (*map(plain, value),)
    return value.item() if getattr(value, "ndim", None) == 0 else value
