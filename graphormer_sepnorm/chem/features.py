"""Featurisers by name.

A featuriser's name is the version of its vocabulary and travels with every data set and checkpoint
made with it. What a name means never changes; a new table gets a new name.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable

from graphormer_sepnorm.chem.featuriser import Featuriser
from graphormer_sepnorm.chem.molecule_features import MOLECULE_1
from graphormer_sepnorm.chem.zinc_features import ZINC_1
from graphormer_sepnorm.errors import ConfigError, did_you_mean

# What SMILES of a user's become.
OF_SMILES = MOLECULE_1.name
FEATURISERS: dict[str, Featuriser] = {
    featuriser.name: featuriser for featuriser in (MOLECULE_1, ZINC_1)
}


def get_featuriser(name: str) -> Featuriser:
    """Return the featuriser called `name`.

    Raises:
        ConfigError: There is none of this name.
    """
    if name not in FEATURISERS:
        raise ConfigError(
            f"there is no featuriser {name!r}{did_you_mean(name, FEATURISERS)}; "
            f"there are: {', '.join(sorted(FEATURISERS))}"
        )
    return FEATURISERS[name]


def _by_name(featuriser: Featuriser) -> tuple[Callable[[str], Featuriser], tuple[str]]:
    return get_featuriser, (featuriser.name,)


# In another process it is found by its name: RDKit's functions cannot be pickled.
copyreg.pickle(Featuriser, _by_name)
