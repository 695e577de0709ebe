"""Raw files of a data set: which are missing, where to get them, what they hash to."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import socket
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import sha256_of

DOWNLOAD_TIMEOUT_SECONDS = 30.0


def one_line(error: BaseException) -> str:
    """Return an exception as ``Type: first line of its message``."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


@contextlib.contextmanager
def readable(label: str, files: object, again: str) -> Iterator[None]:
    """Turn what fails while the files of a data set are read into a DataError with advice."""
    try:
        yield
    except Exception as error:  # unpackers, parsers and pickles raise nearly anything
        message = f"{label}: {files} cannot be read ({one_line(error)}); {again}"
        raise DataError(message) from error


def require_files(
    label: str,
    folder: Path,
    names: Sequence[str],
    fetch: Callable[[Path], Path],
    instead: str,
    published: Mapping[str, str] | None = None,
) -> str:
    """Make sure that the raw files are there, downloading them if none of them is.

    Where some are there and others are not, nothing is downloaded or removed: they are the user's.

    Args:
        label: The data set's name, for messages.
        folder: Where the files belong.
        names: Their names, relative to `folder`.
        fetch: Downloads into the empty folder it is given and returns the folder, in it, whose
            contents are to be moved to `folder`.
        instead: What to do without a network, for the message.
        published: SHA-256 of those of which it is known; a download of others is refused.

    Returns:
        A SHA-256 over their names and contents.
    """
    before, missing = socket.getdefaulttimeout(), _missing(folder, names)
    try:
        if missing:
            folder.mkdir(parents=True, exist_ok=True)
            # PyG's download sets no time limit: some networks would hang it for good.
            socket.setdefaulttimeout(DOWNLOAD_TIMEOUT_SECONDS)
            # Of several processes one downloads, and the others wait for it.
            with FileLock(folder / ".download.lock"):
                missing = _missing(folder, names)
                if 0 < len(missing) < len(names):
                    raise DataError(
                        f"{label}: {', '.join(missing)} missing in {folder}, while the other raw "
                        f"files are there; {instead}"
                    )
                if missing:
                    _download(folder, names, fetch, published or {})
        digests = "".join(f"{name}\0{sha256_of(folder / name)}\n" for name in names)
    except (OSError, EOFError, http.client.HTTPException, zipfile.BadZipFile) as error:
        what = f"no raw files in {folder}, and the download failed" if missing else "unreadable"
        raise DataError(f"{label}: {what} ({one_line(error)}); {instead}") from error
    finally:
        socket.setdefaulttimeout(before)
    return hashlib.sha256(digests.encode()).hexdigest()


def _missing(folder: Path, names: Sequence[str]) -> list[str]:
    return [name for name in names if not (folder / name).is_file()]


def _download(
    folder: Path, names: Sequence[str], fetch: Callable[[Path], Path], published: Mapping[str, str]
) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix="download.") as staging:
        fetched = fetch(Path(staging))
        if lacking := _missing(fetched, names):
            raise OSError(f"{', '.join(lacking)} not among the files")
        other = [name for name, known in published.items() if sha256_of(fetched / name) != known]
        if other:
            raise OSError(f"{', '.join(other)} not as published: the SHA-256 is another one")
        for path in sorted(fetched.rglob("*")):
            target = folder / path.relative_to(fetched)
            if path.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
