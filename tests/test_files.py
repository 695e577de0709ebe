"""Writing a file that is whole or not there."""

import errno
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import (
    is_full,
    plain,
    read_json,
    replacing,
    require_json,
    write_json,
    write_text,
)


def test_file_takes_its_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_after_an_error_the_old_file_stays_and_no_other(error, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as partial:
            partial.write_text("half")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_what_it_points_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link"
    link.symlink_to("folder/a.txt")
    for text in ("new", "newer"):  # of a link to nothing, and to a file
        write_text(link, text)
        assert link.is_symlink()
        assert (tmp_path / "folder" / "a.txt").read_text() == text
    assert len([*tmp_path.rglob("*")]) == 3


def test_a_device_stays_one() -> None:
    write_text(Path("/dev/null"), "gone")
    assert not Path("/dev/null").is_file()


def test_numbers_that_json_does_not_know_are_null(tmp_path: Path) -> None:
    content = {"a": [1.5, math.nan, (math.inf, {"b": -math.inf})], "c": {"d": math.nan, "é": None}}
    write_json(tmp_path / "a.json", content)
    expected = {"a": [1.5, None, [None, {"b": None}]], "c": {"d": None, "é": None}}
    assert require_json(tmp_path / "a.json") == read_json(tmp_path / "a.json") == expected


@pytest.mark.parametrize("text", [None, "", "{", "[1]", "3"])
def test_what_is_no_json_object_is_damaged(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(DataError, match=r"a\.json is damaged"):
        require_json(path)
    assert read_json(path) is None


def test_a_text_gets_the_folders_that_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "b" / "c" / "a.txt"
    write_text(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    with pytest.raises(DataError, match=r"a\.txt/d cannot be written"):
        write_text(path / "d", "")


def behind(error: Exception) -> Exception:
    """What torch makes of an error of the file that it writes to."""
    made = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 704 vs 598")
    made.__context__ = error
    return made


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (OSError(errno.EFBIG, "File too large"), True),
        (OSError("1000000 requested and 131056 written"), True),  # numpy's
        (behind(OSError(errno.ENOSPC, "No space left on device")), True),
        (behind(OSError(errno.EIO, "Input/output error")), False),
        (OSError(errno.EACCES, "Permission denied"), False),
        (None, False),
    ],
)
def test_a_full_disk_is_known_by_what_libraries_say_of_it(error, full):
    assert is_full(error) == full


def test_numbers_become_those_of_python_wherever_they_stand() -> None:
    given = {
        "a": [np.int64(3), (np.float32(0.5), None)],
        "b": {"c": np.True_, "d": np.str_("x"), "e": torch.tensor(0.25)},
        "f": ("text", 2, np.array(7)),
    }
    found = plain(given)
    assert (found["a"], found["f"]) == ([3, (0.5, None)], ("text", 2, 7))
    assert found["b"] == {"c": True, "d": "x", "e": 0.25}
    numbers = [found["a"][0], found["a"][1][0], *found["b"].values(), found["f"][2]]
    assert [*map(type, numbers)] == [int, float, bool, str, float, int]
    assert plain(several := np.zeros(2)) is several
