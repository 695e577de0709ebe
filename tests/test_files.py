"""Writing a file that is whole or not there."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest
import torch

from graphormer_sepnorm.files import is_full, plain, replacing


def test_file_takes_its_place_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as partial:
        partial.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_after_an_error_the_old_file_stays_and_no_other(
    error: type[BaseException], tmp_path: Path
) -> None:
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
    assert found == {
        "a": [3, (0.5, None)],
        "b": {"c": True, "d": "x", "e": 0.25},
        "f": ("text", 2, 7),
    }
    numbers = [found["a"][0], found["a"][1][0], *found["b"].values(), found["f"][2]]
    assert [*map(type, numbers)] == [int, float, bool, str, float, int]
    assert plain(several := np.zeros(2)) is several
