"""Each kind of dropout acts where it is asked for: in training, and nowhere in evaluation."""

from __future__ import annotations

import pytest
import torch
from reference.models import batch_of, relative_error, small_model, stored
from reference.molecules import molecule


# In float32 the compiled functions drop, in float64 torch.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["dropout", "attention_dropout", "input_dropout", "drop_path"])
def test_each_dropout_acts_in_training_alone(kind: str, dtype: torch.dtype) -> None:
    graphs = [molecule(smiles) for smiles in ("CCO", "c1ccccc1", "CC(C)Cl")]
    _, vocabulary = stored(graphs)
    batch = batch_of(graphs, vocabulary)
    plain, dropping = (
        small_model(vocabulary, norm="ln+ln", width=24, **options).to(dtype)
        for options in ({}, {kind: 0.5})
    )
    with torch.no_grad():
        assert torch.equal(dropping(batch), plain(batch))
        truth = plain.train()(batch)
        dropping.train()
        draws = []
        for seed in (1, 2, 1):
            torch.manual_seed(seed)
            draws.append(dropping(batch))
    assert relative_error(draws[0], truth) > 1e-2
    assert relative_error(draws[0], draws[1]) > 1e-2
    assert torch.equal(draws[0], draws[2])
