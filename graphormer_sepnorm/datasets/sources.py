"""Source files of a data set: which are missing, where to get them, what they hash to.

Both published data sets go the same way: raw files are found or downloaded (`require_files`), and
a processed folder is brought up to date with them (`prepare`). A small JSON file beside the
processed files, ``source.json``, says which raw contents they were made from, so that stale or
damaged ones are noticed and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import socket
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from filelock import FileLock

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import cannot_be_written, read_json, sha256_of, write_json

STAMP = "source.json"
DOWNLOAD_TIMEOUT_SECONDS = 30.0


def one_line(error: BaseException) -> str:
    """Return an exception as ``Type: first line of its message``."""
    text = str(error).strip()
    first = text.splitlines()[0] if text else ""
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def require_files(
    label: str,
    folder: Path,
    names: Sequence[str],
    fetch: Callable[[Path], Path],
    instead: str,
    published: Mapping[str, str] | None = None,
) -> None:
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

    Raises:
        DataError: Files are missing and cannot be had.
    """
    lock = folder / ".download.lock"  # there while a download is under way
    under_way = lock.exists()  # asked first: it may end, all files being there, at any moment
    missing = _missing(folder, names)
    if not missing:
        return
    if len(missing) < len(names) and not under_way:
        raise DataError(
            f"{label}: {', '.join(missing)} missing in {folder}, while the other raw files are "
            f"there; {instead}"
        )
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Of several processes one downloads, and the others wait for it.
        with FileLock(lock):
            try:
                if _missing(folder, names):
                    _download(folder, names, fetch, published or {})
            finally:
                lock.unlink(missing_ok=True)
    except (OSError, EOFError, http.client.HTTPException, zipfile.BadZipFile) as error:
        # A mistyped root leaves no empty folders behind.
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise DataError(
            f"{label}: no raw files in {folder}, and the download failed "
            f"({one_line(error)}); {instead}"
        ) from error


def _missing(folder: Path, names: Sequence[str]) -> list[str]:
    return [name for name in names if not (folder / name).is_file()]


def _download(
    folder: Path,
    names: Sequence[str],
    fetch: Callable[[Path], Path],
    published: Mapping[str, str],
) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix="download.") as staging:
        with _socket_timeout(DOWNLOAD_TIMEOUT_SECONDS):
            fetched = fetch(Path(staging))
        lacking = _missing(fetched, names)
        if lacking:
            raise OSError(f"{', '.join(lacking)} not among the files")
        other = [name for name, known in published.items() if sha256_of(fetched / name) != known]
        if other:
            raise OSError(f"{', '.join(other)} not as published: the SHA-256 is another one")
        for path in sorted(fetched.rglob("*")):
            target = folder / path.relative_to(fetched)
            if path.is_file() and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)


@contextlib.contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    # PyG's download sets no time limit: a network that swallows packets would hang it for good.
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def prepare(
    label: str,
    folder: Path,
    raw_names: Sequence[str],
    processed: Path,
    build: Callable[[Path], None],
    effort: str = "",
) -> str:
    """Bring a processed folder up to date with its raw files.

    The processed files are built in a temporary folder and moved into place one by one, the stamp
    last: an interrupted run leaves files that the next run makes again.

    Args:
        label: The data set's name, for messages.
        folder: Where the raw files lie.
        raw_names: Their names, relative to `folder`.
        processed: The folder of the processed files.
        build: Writes the processed files into the folder it is given; raises `DataError` where
            the raw files are damaged.
        effort: What it takes, for the message, where that is much.

    Returns:
        The fingerprint: a SHA-256 over the names and contents of the raw files.

    Raises:
        DataError: The raw files are damaged or cannot be read, or nothing can be written.
    """
    raw, current = _look(label, folder, raw_names, processed)
    if not current:
        try:
            processed.mkdir(parents=True, exist_ok=True)
            lock = processed / ".building.lock"
            # Of several processes one builds, and the others wait for it.
            with FileLock(lock):
                try:
                    raw, current = _look(label, folder, raw_names, processed)
                    if not current:
                        _build(f"{label} from {folder}", raw, processed, build, effort)
                finally:
                    lock.unlink(missing_ok=True)
        except OSError as error:
            what, root = f"{label}: the processed files in {processed}", "give another --data.root"
            raise DataError(cannot_be_written(what, error, root)) from error
    joined = "".join(f"{name}\0{entry['sha256']}\n" for name, entry in raw.items())
    return hashlib.sha256(joined.encode()).hexdigest()


def _look(
    label: str, folder: Path, raw_names: Sequence[str], processed: Path
) -> tuple[dict[str, dict], bool]:
    """Return what the raw files are, and whether the processed ones were made from them."""
    stamp = _read_stamp(processed / STAMP)
    try:
        raw = {name: _digest(folder / name, stamp["raw"].get(name)) for name in raw_names}
    except OSError as error:
        raise DataError(f"{label}: cannot read the raw files ({one_line(error)})") from error
    current = _is_current(processed, stamp, raw)
    if current and raw != stamp["raw"]:  # same contents, other times: say so, if the folder lets us
        with contextlib.suppress(OSError):
            write_json(processed / STAMP, {"raw": raw, "processed": stamp["processed"]})
    return raw, current


def _build(
    what: str, raw: dict[str, dict], processed: Path, build: Callable[[Path], None], effort: str
) -> None:
    stale = (processed / STAMP).exists()
    why = "again: its processed files are stale or damaged" if stale else "once"
    notes = f"{why}; {effort}" if effort else why
    print(f"Preparing {what} ({notes})", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=processed, prefix="building.") as staging:
        build(Path(staging))
        (processed / STAMP).unlink(missing_ok=True)
        digests = {}
        for path in sorted(Path(staging).iterdir()):
            digests[path.name] = sha256_of(path)
            os.replace(path, processed / path.name)
    write_json(processed / STAMP, {"raw": raw, "processed": digests})


def _is_current(processed: Path, stamp: dict, raw: dict[str, dict]) -> bool:
    # The processed files are always hashed, not trusted by size and time: torch does not verify
    # the checksums inside its files, and 0.3 s for the largest set is a small price.
    if not stamp["processed"] or stamp["raw"].keys() != raw.keys():
        return False
    if any(stamp["raw"][name]["sha256"] != entry["sha256"] for name, entry in raw.items()):
        return False
    try:
        return all(
            sha256_of(processed / name) == value for name, value in stamp["processed"].items()
        )
    except OSError:
        return False


def _digest(path: Path, known: dict | None) -> dict:
    # A raw file whose size and time of change are as they were is not read again.
    status = path.stat()
    entry = {"size": status.st_size, "mtime_ns": status.st_mtime_ns}
    if known and all(known[key] == value for key, value in entry.items()):
        return known
    return {**entry, "sha256": sha256_of(path)}


def _read_stamp(path: Path) -> dict:
    nothing: dict = {"raw": {}, "processed": {}}
    stamp = read_json(path) or nothing
    try:
        complete = all(
            {"size", "mtime_ns", "sha256"} <= entry.keys() for entry in stamp["raw"].values()
        )
        names = all(isinstance(value, str) for value in stamp["processed"].values())
        return stamp if complete and names else nothing
    except (KeyError, AttributeError):
        return nothing  # damaged: as if the folder had never been prepared
