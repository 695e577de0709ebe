"""What a model knows of its errors, made up: small, with everything in it."""

from functools import cache
from typing import Literal

import numpy as np
from rdkit import Chem
from scipy.special import softmax

from graphormer_sepnorm.chem.fingerprints import morgan_bits
from graphormer_sepnorm.uncertainty.domain import Neighbors, TokenDistance
from graphormer_sepnorm.uncertainty.uncertainty import Inputs, Uncertainty

# Molecules of C, N and O, which `make_checkpoint` knows.
TRAINED = [
    *("C" * size + "O" for size in range(1, 9)),
    *("C" * size + "N" for size in range(1, 9)),
    *("c1ccccc1" + "C" * size + "O" for size in range(9)),
    *("c1ccccc1" + "C" * size + "N" for size in range(9)),
]


def fingerprints(smiles: list[str]) -> np.ndarray:
    return morgan_bits([Chem.MolFromSmiles(text) for text in smiles])


def sketch_of(smiles: list[str]) -> Neighbors:
    return Neighbors.of(fingerprints(smiles), np.arange(len(smiles)))


def of_three_classes(
    count: int, factor: float, seed: int = 0, shift: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities whose log-odds are `factor` times too large, and classes as 0 and 1.

    Those of the first class are also too large by `shift`.
    """
    random = np.random.default_rng(seed)
    odds = random.standard_normal((count, 3)) * 1.5
    labels = [random.multinomial(1, row) for row in softmax(odds, axis=1)]
    return softmax(factor * odds + [shift, 0, 0], axis=1), np.array(labels, float)


@cache
def confidence(
    kind: Literal["regression", "binary"] = "regression",
    targets: int = 1,
    spread: bool = False,
    apart: bool = False,
    tokens: int = 0,
) -> Uncertainty:
    """Measured on 34 molecules of training out of fold, labels and SMILES kept.

    With [CLS] of so many channels, drawn by chance, of one network; 0: without.
    """
    random = np.random.default_rng(0)
    shape = len(TRAINED), targets
    values = random.random(shape)
    labels = values + 0.3 * random.standard_normal(shape)
    if kind == "binary":
        labels = (random.random(shape) < values).astype(float)
    inputs = Inputs(
        values,
        random.random(shape) if spread else None,
        random.random(shape) if apart else None,
        None,
        fingerprints(TRAINED),
    )
    folds, measure = np.arange(len(TRAINED)) % 4, None
    if tokens:
        seen, unseen = random.standard_normal((2, 1, len(TRAINED), tokens)).astype(np.float32)
        measure, distance = TokenDistance.fit(seen, unseen)
        inputs = inputs._replace(distance=distance)
    sketch = Neighbors.of(fingerprints(TRAINED), np.arange(len(TRAINED)), TRAINED, labels)
    std = np.ones(targets)
    places = np.arange(len(TRAINED))
    return Uncertainty.fit(kind, labels, inputs, folds, std, sketch, folds, places, tokens=measure)
