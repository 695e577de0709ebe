"""The data sets that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.errors import ConfigError, did_you_mean
from graphormer_sepnorm.resources import sample_path

if TYPE_CHECKING:
    from graphormer_sepnorm.datasets.splits import DatasetSplits


def _loader(module: str, **options: Any) -> Callable[[Path], DatasetSplits]:
    """Return what loads a data set, whose module is imported when it is loaded."""

    def load(root: Path) -> DatasetSplits:
        found = import_module(f"graphormer_sepnorm.datasets.{module}")
        return getattr(found, f"load_{module}")(root, **options)

    return load


def _sample(root: Path) -> DatasetSplits:
    """Load the bundled 7,000 recombined drugs with penalized logP; no data root is needed."""
    from graphormer_sepnorm.datasets.user_table.load import load_table

    del root
    options = {"target_columns": ["penalized_logp"], "task": "regression", "on_invalid": "error"}
    splits = load_table(DataConfig(table=str(sample_path()), **options))
    return replace(splits, name="sample", report=None)


DATASETS: dict[str, Callable[[Path], DatasetSplits]] = {
    "zinc-subset": _loader("zinc", subset=True),
    "zinc": _loader("zinc", subset=False),
    "ogbg-molhiv": _loader("molhiv"),
    "sample": _sample,
}
# Those of the user's, which have options of their own: a table, and molecules without labels.
TABLE, PRETRAINING = "table", "pretraining"


def canonical_name(name: str) -> str:
    """Return the canonical spelling of a data set's name.

    Raises:
        ConfigError: No data set goes by this name.
    """
    plain = _plain(name)
    known = {_plain(one): one for one in (*DATASETS, TABLE, PRETRAINING)}
    if plain not in known:
        raise ConfigError(
            f"unknown data set '{name}'{did_you_mean(plain, [*DATASETS, TABLE])}; "
            f"there are {', '.join(DATASETS)}; a file of your own is given by --data.table FILE"
        )
    return known[plain]


def dataset_of(config: DataConfig) -> str:
    """Return the canonical name of the data set that options name.

    Raises:
        ConfigError: There is none of this name, its file is not given, or an option is for another
            kind of data.
    """
    dataset = canonical_name(config.dataset or (TABLE if config.table else "zinc-subset"))
    default, of_table = DataConfig(), [*config.of_table()]
    file = {PRETRAINING: "molecules", TABLE: "table"}.get(dataset)
    if file and getattr(config, file) is None:
        raise ConfigError(f"which molecules? Give your file: --data.{file} FILE")
    layout = ["smiles_column", "sheet", "header_row"]
    own = {PRETRAINING: ["molecules", *layout], TABLE: of_table}.get(dataset, [])
    of_table.remove("label_transform")  # for graphs in memory, too
    for name in (*of_table, "molecules"):
        if name not in own and getattr(config, name) != getattr(default, name):
            kind = "train.py pretrain" if name == "molecules" else "a table of your own"
            raise ConfigError(f"--data.{name} is for {kind}, and this is {dataset}: leave it out")
    config.check_seed()
    return dataset


def _plain(name: str) -> str:
    return name.strip().lower().replace("_", "-")


def load_dataset(name: str, root: str | Path) -> DatasetSplits:
    """Load a data set in its published splits.

    Args:
        name: One of `DATASETS`; capitals and underscores are accepted.
        root: The data root. Raw files that lie there are used (``ZINC/raw``, ``ogbg_molhiv``),
            others are downloaded to it.

    Raises:
        ConfigError: No data set goes by this name.
        DataError: Raw files are missing and cannot be downloaded, or are damaged.
    """
    return DATASETS[canonical_name(name)](Path(root).expanduser())
