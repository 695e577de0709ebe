"""The file results.json of a comparison, from which its report is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphormer_sepnorm.compare.comparison import other_format
from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import read_json

FORMAT_VERSION = 1
RESULTS = "results.json"


def read_results(directory: Path) -> dict[str, Any] | None:
    """Read the results in a directory; None if there are none, or they are not whole.

    Raises:
        DataError: They are of another version.
    """
    path = directory / RESULTS
    results = read_json(path)
    if results is not None and results.get("format_version") != FORMAT_VERSION:
        raise DataError(other_format(path, results.get("format_version"), FORMAT_VERSION))
    return results
