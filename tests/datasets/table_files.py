"""Small tables for tests."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.datasets.user_table.load import load_table
from graphormer_sepnorm.datasets.user_table.report import DataReport
from graphormer_sepnorm.errors import ConfigError, DataError, GraphormerError

# Twelve molecules with twelve scaffolds (one of them "no ring").
RINGS = (
    *("CCO", "c1ccccc1O", "C1CCCCC1", "c1ccncc1C", "C1CCNCC1", "c1ccoc1C=O", "c1ccsc1"),
    *("C1CC1N", "C1CCC1", "c1ccc2ccccc2c1", "c1c[nH]cn1", "C1CCOC1"),
)


# A split of them of which no part is empty.
SPLIT: dict[str, Any] = {"split": "random", "split_fractions": (0.5, 0.25, 0.25)}


def write_csv(path: Path, rows: Iterable[Sequence[Any]], header: str = "smiles,value") -> Path:
    """Write a table of cells that need no quotes."""
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def four_each(folder: Path, values: Sequence[object], header: str = "smiles,value,set") -> Path:
    """Write a table of `RINGS` with these labels, four in each split of a column that says it."""
    sets = ("train", "valid", "test")
    rows = [(smiles, values[n], sets[n // 4]) for n, smiles in enumerate(RINGS)]
    return write_csv(folder / "a.csv", rows, header)


def plain_rows(count: int = len(RINGS)) -> list[tuple[str, float]]:
    """Molecules of `RINGS`, with labels that are no row count."""
    return [(smiles, 0.5 * n - 1) for n, smiles in enumerate(RINGS[:count])]


def load(path: Path, **options: Any) -> DatasetSplits:
    return load_table(DataConfig(table=str(path), **options))


def report_of(splits: DatasetSplits) -> DataReport:
    assert splits.report is not None
    return splits.report


def failure(path: Path, kind: type[GraphormerError] = DataError, /, **options: Any) -> str:
    """The one line that loading fails with, which names the file."""
    with pytest.raises(kind) as caught:
        load(path, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert kind is ConfigError or path.name in message
    return message


def everything(splits: DatasetSplits) -> Iterator[tuple[str, list[float]]]:
    """SMILES and labels of all splits."""
    for name, part in splits.parts.items():
        yield from zip(splits.smiles[name], part.y.tolist(), strict=True)
