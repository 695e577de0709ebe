"""Graphormer as estimators of scikit-learn: molecules are SMILES, one for each row.

They go where scikit-learn's own go: `cross_val_score`, `GridSearchCV`, `Pipeline`. A pickled one
holds its network as the bytes of a checkpoint, which is read as plain values and tensors.
"""

from graphormer_sepnorm.estimators.estimators import GraphormerClassifier, GraphormerRegressor
from graphormer_sepnorm.estimators.inputs import InputError, ParameterError

__all__ = ["GraphormerClassifier", "GraphormerRegressor", "InputError", "ParameterError"]
