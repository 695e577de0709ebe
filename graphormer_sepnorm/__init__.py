"""Graphormer with separate normalization of the graph token (SepNorm), for molecules.

Nothing heavy is imported here: ``import graphormer_sepnorm`` loads neither Lightning nor ogb nor
RDKit, and torch only when a name that needs it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphormer_sepnorm.config import FitConfig
    from graphormer_sepnorm.errors import CheckpointError, ConfigError, DataError, GraphormerError
    from graphormer_sepnorm.estimators import GraphormerClassifier, GraphormerRegressor
    from graphormer_sepnorm.graphs.batch import GraphBatch
    from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
    from graphormer_sepnorm.inference.predictor import Predictor
    from graphormer_sepnorm.model.config import GraphormerConfig
    from graphormer_sepnorm.model.graphormer import Graphormer
    from graphormer_sepnorm.model.replace_norms import replace_norms
    from graphormer_sepnorm.model.sepnorm import SepNorm
    from graphormer_sepnorm.pipeline.fit import fit

__version__ = "0.1.0"

_HOMES = {
    "Graphormer": "graphormer_sepnorm.model.graphormer",
    "GraphormerConfig": "graphormer_sepnorm.model.config",
    "GraphBatch": "graphormer_sepnorm.graphs.batch",
    "GraphVocabulary": "graphormer_sepnorm.graphs.vocabulary",
    "SepNorm": "graphormer_sepnorm.model.sepnorm",
    "replace_norms": "graphormer_sepnorm.model.replace_norms",
    "Predictor": "graphormer_sepnorm.inference.predictor",
    "FitConfig": "graphormer_sepnorm.config",
    "fit": "graphormer_sepnorm.pipeline.fit",
    "GraphormerRegressor": "graphormer_sepnorm.estimators",
    "GraphormerClassifier": "graphormer_sepnorm.estimators",
    "GraphormerError": "graphormer_sepnorm.errors",
    "DataError": "graphormer_sepnorm.errors",
    "ConfigError": "graphormer_sepnorm.errors",
    "CheckpointError": "graphormer_sepnorm.errors",
}

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "FitConfig",
    "GraphBatch",
    "GraphVocabulary",
    "Graphormer",
    "GraphormerClassifier",
    "GraphormerConfig",
    "GraphormerError",
    "GraphormerRegressor",
    "Predictor",
    "SepNorm",
    "__version__",
    "fit",
    "replace_norms",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
