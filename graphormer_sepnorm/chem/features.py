"""Featurisers by name.

A featuriser's name is the version of its vocabulary and travels with every data set and checkpoint
made with it. What a name means never changes; a new table gets a new name.
"""

from __future__ import annotations

from graphormer_sepnorm.chem.featuriser import Featuriser
from graphormer_sepnorm.chem.molecule_features import MOLECULE_1
from graphormer_sepnorm.chem.zinc_features import ZINC_1
from graphormer_sepnorm.errors import ConfigError, did_you_mean

# What a user's SMILES become.
OF_SMILES = MOLECULE_1.name
_FEATURISERS: dict[str, Featuriser] = {one.name: one for one in (MOLECULE_1, ZINC_1)}


def get_featuriser(name: str) -> Featuriser:
    """Return the featuriser called `name`.

    Raises:
        ConfigError: There is none of this name.
    """
    if name not in _FEATURISERS:
        raise ConfigError(
            f"there is no featuriser {name!r}{did_you_mean(name, _FEATURISERS)}; "
            f"there are: {', '.join(sorted(_FEATURISERS))}"
        )
    return _FEATURISERS[name]
