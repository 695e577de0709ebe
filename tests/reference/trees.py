"""Small gradient boosting, for tests of what is done with it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor

from graphormer_sepnorm.baselines.features import FeatureColumns
from graphormer_sepnorm.baselines.fit import Fitted, Kind
from graphormer_sepnorm.baselines.trees import BoostedTrees

# Environments of an aliphatic CH3, an OH and others; and two descriptors.
COLUMNS = FeatureColumns((80, 222, 294, 807, 1057, 1750, 2040), ("MolWt", "TPSA"), (100.0, 40.0))
_FEATURES = len(COLUMNS.environments) + len(COLUMNS.descriptors)


def random_features(molecules: int, seed: int = 0) -> np.ndarray:
    random = np.random.default_rng(seed)
    counts = random.integers(0, 3, (molecules, _FEATURES - 2))
    return np.hstack([counts, random.normal(100, 40, (molecules, 2))]).astype(np.float32)


def boosted_trees(
    kind: Kind = "regression",
    targets: int = 1,
    count: int = 4,
    without: int | None = None,
    models: Sequence[Any] = (),
) -> tuple[BoostedTrees, list[Fitted]]:
    """Trees on made-up labels, as plain arrays and as scikit-learn's; or those of `models`.

    Of two boostings each, the second of which sees other molecules.
    """
    x = random_features(60)
    random = np.random.default_rng(1)
    scaled: list[Any] = [Fitted((one,)) for one in models]
    for target in range(0 if models else targets):
        y = x @ random.normal(size=x.shape[1]) / 40
        if target == without:
            scaled.append(None)
            continue
        of, labels, units = GradientBoostingRegressor, (y - y.mean()) / y.std(), (30.0, 7.0)
        if kind == "binary":
            of, labels, units = GradientBoostingClassifier, y > np.quantile(y, 0.3), ()
        both = (of(n_estimators=count, subsample=0.5, random_state=state) for state in range(2))
        scaled.append(Fitted(tuple(one.fit(x, labels) for one in both), *units))
    return BoostedTrees.from_fitted(COLUMNS, scaled, kind == "binary"), scaled
