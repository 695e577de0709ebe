"""The data sets that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.errors import ConfigError, did_you_mean


def _loader(module: str, function: str, **options: Any) -> Callable[[Path], DatasetSplits]:
    """Return what loads a data set, whose module is imported when it is loaded."""

    def load(root: Path) -> DatasetSplits:
        found = getattr(import_module(f"graphormer_sepnorm.datasets.{module}"), function)
        return found(root, **options)

    return load


DATASETS: dict[str, Callable[[Path], DatasetSplits]] = {
    "zinc-subset": _loader("zinc", "load_zinc", subset=True),
    "zinc": _loader("zinc", "load_zinc", subset=False),
    "ogbg-molhiv": _loader("molhiv", "load_molhiv"),
    "sample": _loader("sample", "load_sample"),
}

# A file of the user's: it has options of its own, so it is not loaded by name alone.
TABLE = "table"
# Molecules of the user's, without labels.
PRETRAINING = "pretraining"

# Other names the same data sets go by; "_" and capitals are already taken care of.
ALIASES = {
    "zinc12k": "zinc-subset",
    "zinc-12k": "zinc-subset",
    "zinc-full": "zinc",
    "zinc250k": "zinc",
    "zinc-250k": "zinc",
    "molhiv": "ogbg-molhiv",
    "ogb-molhiv": "ogbg-molhiv",
    "hiv": "ogbg-molhiv",
}


def canonical_name(name: str) -> str:
    """Return the canonical spelling of a data set's name.

    Raises:
        ConfigError: No data set goes by this name.
    """
    plain = _plain(name)
    plain = ALIASES.get(plain, plain)
    known = {_plain(one): one for one in (*DATASETS, TABLE, PRETRAINING)}
    if plain not in known:
        raise ConfigError(
            f"unknown data set '{name}'{did_you_mean(plain, [*DATASETS, *ALIASES, TABLE])}; "
            f"there are {', '.join(DATASETS)}; a file of your own is given by --data.table FILE"
        )
    return known[plain]


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def load_dataset(name: str, root: str | Path) -> DatasetSplits:
    """Load a data set in its published splits.

    Args:
        name: One of `DATASETS`; capitals, underscores and a few other spellings are accepted.
        root: The data root. Raw files that lie there are used (``ZINC/raw``, ``ogbg_molhiv``),
            others are downloaded to it.

    Raises:
        ConfigError: No data set goes by this name.
        DataError: Raw files are missing and cannot be downloaded, or are damaged.
    """
    plain = canonical_name(name)
    if plain == TABLE:
        raise ConfigError("a table is loaded by load_table, which takes its options")
    if plain == PRETRAINING:
        raise ConfigError("molecules without labels are for train.py pretrain")
    return DATASETS[plain](Path(root).expanduser())
