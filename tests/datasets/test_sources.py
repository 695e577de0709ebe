"""Data sets by name, and their raw files, which several processes may want at once."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from graphormer_sepnorm.datasets.catalog import DATASETS, load_dataset
from graphormer_sepnorm.datasets.sources import require_files
from graphormer_sepnorm.errors import ConfigError, DataError


def test_one_downloads_and_the_others_wait(tmp_path: Path) -> None:
    folder, calls = tmp_path / "raw", []

    def fetch(staging: Path) -> Path:
        calls.append(staging)
        time.sleep(0.2)
        for name in ("a", "b"):
            (staging / name).write_text(name)
        return staging

    # Each thread has a lock of its own on the file, as a process would.
    with ThreadPoolExecutor(4) as pool:
        wanted = [(folder, ("a", "b"), fetch)] * 4
        done = {*pool.map(lambda of: require_files("data", *of, "fetch them"), wanted)}
    assert len(done) == 1
    assert len(calls) == 1
    assert sorted(path.name for path in folder.iterdir()) == [".download.lock", "a", "b"]


def test_a_download_leaves_what_else_lies_there(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")

    def fetch(staging: Path) -> Path:
        for name in ("a", "notes"):
            (staging / name).write_text("theirs")
        return staging

    first = require_files("data", tmp_path, ("a",), fetch, "fetch them")
    assert [(tmp_path / name).read_text() for name in ("a", "notes")] == ["theirs", "mine"]
    assert require_files("data", tmp_path, ("a",), fetch, "fetch them") == first
    with pytest.raises(DataError, match="data: b missing in"):
        require_files("data", tmp_path, ("a", "b"), fetch, "fetch them")
    (tmp_path / "a").write_text("changed")
    assert require_files("data", tmp_path, ("a",), fetch, "fetch them") != first


def test_capitals_and_underscores_of_a_name_do_not_matter(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setitem(DATASETS, "My_set", lambda root: root)  # type: ignore[arg-type]
    for spelling in ("My_set", " my-set ", "MY_SET"):
        assert load_dataset(spelling, tmp_path) == tmp_path
    with pytest.raises(ConfigError, match=r"'my-sett' \(did you mean 'My_set'\?\); .*ogbg-molhiv"):
        load_dataset("my-sett", tmp_path)
