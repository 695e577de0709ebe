"""Graphs and a small store that the tests of structure and of batches share."""

import numpy as np
import pytest
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
    store = GraphStore.from_graphs(given, 5)
    return store, GraphVocabulary.fit(store, np.arange(store.num_graphs))
