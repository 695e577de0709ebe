"""Featurizers by name.

A featurizer's name is the version of its vocabulary and travels with every data set and checkpoint
made with it. What a name means never changes; a new table gets a new name.
"""

from __future__ import annotations

from graphormer_sepnorm.chem.featurizer import Featurizer
from graphormer_sepnorm.chem.molecule_features import MOLECULE_1
from graphormer_sepnorm.chem.zinc_features import ZINC_1
from graphormer_sepnorm.errors import ConfigError

# What a user's SMILES become.
OF_SMILES = MOLECULE_1.name
_FEATURIZERS: dict[str, Featurizer] = {one.name: one for one in (MOLECULE_1, ZINC_1)}


def get_featurizer(name: str) -> Featurizer:
    """Return the featurizer called `name`.

    Raises:
        ConfigError: There is none of this name.
    """
    if name not in _FEATURIZERS:
        raise ConfigError(f"there is no featurizer {name!r}; there are {', '.join(_FEATURIZERS)}")
    return _FEATURIZERS[name]
