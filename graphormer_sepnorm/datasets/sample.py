"""The bundled sample: 7,000 recombined drugs with their penalized logP, nothing to download."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from graphormer_sepnorm.data_config import DataConfig
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.datasets.user_table.load import load_table
from graphormer_sepnorm.resources import sample_path


def load_sample(root: Path | None = None) -> DatasetSplits:
    """Load the sample as any table, split by scaffold 80 : 10 : 10, without a report.

    It comes with the package: no data root is needed.

    Raises:
        DataError: The file is missing or damaged.
    """
    del root
    path = sample_path()
    options = {"target_columns": ["penalized_logp"], "task": "regression", "on_invalid": "error"}
    splits = load_table(DataConfig(table=str(path), **options))
    return dataclasses.replace(splits, name="sample", report=None)
