"""Data sets in three splits: ZINC, ZINC-subset, ogbg-molhiv, the sample, a user's own.

Nothing heavy is imported here; a data set's module is imported when the data set is loaded.
"""

from __future__ import annotations

from graphormer_sepnorm.datasets.catalog import DATASETS, load_dataset
from graphormer_sepnorm.datasets.splits import DatasetSplits

__all__ = ["DATASETS", "DatasetSplits", "load_dataset"]
