"""Files that are whole or not there, whatever ends the program that writes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside a file; what is written there takes its place at the end.

    After an error the file that was there stays, and nothing is left beside it.

    Args:
        path: Of the file.

    Raises:
        OSError: The file cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
