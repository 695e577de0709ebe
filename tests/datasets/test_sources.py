"""Raw and processed files, where several processes want them at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphormer_sepnorm.datasets.sources import prepare, require_files


def at_once(work: Callable[[], Any]) -> list[Any]:
    """Do it in four threads; each has a lock of its own on the file, as a process would."""
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(work())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_one_downloads_and_the_others_wait(tmp_path: Path) -> None:
    folder, calls = tmp_path / "raw", []

    def fetch(staging: Path) -> Path:
        calls.append(staging)
        time.sleep(0.2)
        for name in ("a", "b"):
            (staging / name).write_text(name)
        return staging

    done = at_once(lambda: require_files("data", folder, ("a", "b"), fetch, "fetch them"))
    assert done == [None] * 4
    assert len(calls) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


def test_one_prepares_and_the_others_wait(tmp_path: Path) -> None:
    folder, processed, calls = tmp_path / "raw", tmp_path / "processed", []
    folder.mkdir()
    (folder / "a").write_text("raw")

    def build(staging: Path) -> None:
        calls.append(staging)
        time.sleep(0.2)
        (staging / "graphs").write_text("processed")

    fingerprints = at_once(lambda: prepare("data", folder, ("a",), processed, build))
    assert len(fingerprints) == 4
    assert len(set(fingerprints)) == 1
    assert len(calls) == 1
    assert sorted(path.name for path in processed.iterdir()) == ["graphs", "source.json"]
