"""Codes seen in training have rows, all others row 0."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.molecules import molecule

from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary, Vocabulary

CODES = np.array([[6, -1], [8, 2**60], [6, 3]])


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2), min_size=1, max_size=8),
    st.lists(st.tuples(*[st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)] * 2), max_size=8),
)
def test_rows_are_numbered_without_gaps_and_tell_all_seen_codes_apart(seen, asked):
    vocabulary = Vocabulary.fit(np.array(seen))
    rows = vocabulary.rows(np.array(seen))
    assert set(rows.flat) == set(range(1, vocabulary.num_rows))
    for column in range(2):
        pairs = {(code[column], row[column]) for code, row in zip(seen, rows.tolist(), strict=True)}
        assert len(pairs) == len({code for code, _ in pairs}) == len({row for _, row in pairs})
    found = vocabulary.rows(np.array(asked, dtype=np.int64).reshape(-1, 2))
    for codes, own in zip(asked, found.tolist(), strict=True):
        for column in range(2):
            assert (own[column] > 0) == (codes[column] in vocabulary.seen[column])


def test_only_the_training_graphs_count():
    graphs = [molecule("CCO"), molecule("CC=O"), molecule("C#N")]
    store = GraphStore.from_graphs(graphs, 5)
    vocabulary = GraphVocabulary.fit(store, np.array([0, 1]))
    assert vocabulary.atoms.seen == ((6, 8), (0, 1, 2, 3))
    assert vocabulary.bonds.seen == ((1, 2), (0,))
    assert GraphVocabulary.fit(store, np.array([2])).bonds.seen == ((3,), (0,))


def test_only_the_first_column_says_the_element():
    vocabulary = GraphVocabulary(Vocabulary.fit(CODES), Vocabulary(()))
    assert vocabulary.new_elements(np.array([[6, 99], [9, 6], [8, -1]])).tolist() == [0, 1, 0]


def test_the_digest_tells_vocabularies_apart():
    one, other = Vocabulary(((6, 8),)), Vocabulary(((6,), (8,)))
    made = [GraphVocabulary(atoms, bonds) for atoms in (one, other) for bonds in (one, other)]
    assert len({vocabulary.digest for vocabulary in made}) == 4
    assert made[0].digest == GraphVocabulary.from_plain(made[0].to_plain()).digest
