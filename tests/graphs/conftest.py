"""Graphs and a small store that the tests of structure and of batches share."""

import pytest
from reference import models
from reference.molecules import TIED, molecule
from torch_geometric.data import Data

from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary

SMILES = ["CCO", "N", TIED["benzene"], "CC(C)Cl", "C.C", "CC#N", TIED["caffeine"], "O", "C=C"]


@pytest.fixture(scope="session")
def given() -> list[Data]:
    """The graphs of `stored`; their target is their number."""
    return [molecule(smiles, y) for y, smiles in enumerate(SMILES)]


@pytest.fixture(scope="session")
def stored(given: list[Data]) -> tuple[GraphStore, GraphVocabulary]:
    return models.stored(given)
