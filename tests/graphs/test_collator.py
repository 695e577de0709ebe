"""The arrays of a batch, against loops over graphs, atoms and pairs."""

import numpy as np
import pytest

from graphormer_sepnorm.graphs.batch import FIRST_ATOM_PAIR, PADDING_PAIR, TOKEN_PAIR, Collator


@pytest.mark.parametrize("ids", [range(9), [2, 1, 4], [6], [1], [8, 0, 8, 3, 5]])
@pytest.mark.parametrize("attention_blocks", [1, 2, 4, 20])
def test_blocks(stored, ids, attention_blocks):
    ids, (store, vocabulary) = list(ids), stored
    batch = Collator(store, vocabulary, attention_blocks)(ids)
    sizes = store.num_atoms(np.array(ids)).tolist()
    types = [store.pair_type[store.first_pair[i] : store.first_pair[i + 1]].tolist() for i in ids]
    known = sorted({number for part in types for number in part})

    order = sorted(range(len(ids)), key=lambda place: sizes[place])
    if attention_blocks == 1:
        order = list(range(len(ids)))
    seen, flat = [], 0
    unpad = batch.unpad.tolist()
    for block in batch.blocks:
        members = order[len(seen) : len(seen) + len(block.rows)]
        tokens = max(sizes[member] for member in members) + 1
        assert block.rows.shape == (len(members), tokens)
        assert block.pair_type.shape == (len(members), tokens, tokens)
        for place, member in enumerate(members):
            n = sizes[member]
            first_row = len(ids) + sum(sizes[:member])
            rows = [member, *range(first_row, first_row + n)]
            assert block.rows[place].tolist() == rows + [0] * (tokens - n - 1)
            assert [unpad[row] for row in rows] == list(range(flat, flat + n + 1))
            for i in range(tokens):
                for j in range(tokens):
                    expected = PADDING_PAIR if j > n else TOKEN_PAIR
                    if 0 < i <= n and 0 < j <= n:
                        number = types[member][(i - 1) * n + j - 1]
                        expected = known.index(number) + FIRST_ATOM_PAIR
                    assert block.pair_type[place, i, j] == expected
            flat += tokens
        seen += members
    assert len(batch.blocks) == min(attention_blocks, len(ids))
    assert seen == order
    assert len(unpad) == len(ids) + sum(sizes)
