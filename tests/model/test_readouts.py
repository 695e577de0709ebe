"""Numbers beside a graph, joined to what the network reads; log-odds of classes."""

import math
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from reference.models import batch_of, batch_of_smiles, relative_error, small_config, small_model
from reference.molecules import molecule
from reference.passes import EXACT
from torch.nn import functional

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.model.config import ReadoutName
from graphormer_sepnorm.model.graphormer import Graphormer, log_odds

SMILES = ("CCO", "c1ccccc1", "N")
# Of three numbers the second has no factor.
MEAN, FACTOR = torch.tensor([300.0, 5.0, -1.0]), torch.tensor([0.125, 0.0, 2.0])
NUMBERS = torch.tensor([[292.0, 7.0, 3e38], [math.nan, math.nan, -1.5], [304.0, -3e38, 0.0]])
SCORES = [[-1.0, 0.0, 6.0], [0.0, 0.0, -1.0], [0.5, 0.0, 2.0]]


@pytest.fixture(scope="module")
def given() -> tuple[GraphBatch, GraphVocabulary]:
    vocabulary, batch = batch_of_smiles(*SMILES)
    return replace(batch, extra=NUMBERS), vocabulary


def reads_numbers(vocabulary: GraphVocabulary, **options: Any) -> Graphormer:
    """A model that reads three numbers, scaled."""
    model = small_model(vocabulary, extra_inputs=3, **options)
    model.extra_readout.standardize_by(MEAN, FACTOR)
    return model


@pytest.mark.parametrize("readout", get_args(ReadoutName))
def test_prediction_restated(given: tuple[GraphBatch, GraphVocabulary], readout: str) -> None:
    batch, vocabulary = given
    model = reads_numbers(vocabulary, readout=readout, mean_atoms=2.5)
    of = model.state_dict()
    with torch.no_grad():
        token, atoms = model.encode(batch)
        is_mean = "mean" in readout
        parts = atoms.split([3, 6, 1])
        pooled = torch.stack([part.mean(0) if is_mean else part.sum(0) / 2.5 for part in parts])
        read = pooled if readout in ("sum", "mean") else token
        z = torch.tensor(SCORES, dtype=torch.float64)
        inner = (
            read @ of["extra_readout.read.weight"].T
            + z @ of["extra_readout.numbers.weight"].T
            + of["extra_readout.numbers.bias"]
        )
        gelu = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        read = read + gelu @ of["extra_readout.hidden.weight"].T + of["extra_readout.hidden.bias"]
        wanted = read @ of["readout.weight"].T + of["readout.bias"]
        if readout in ("both", "graph_token+mean"):
            wanted = wanted + pooled @ of["atom_readout.weight"].T
        assert relative_error(model(batch), wanted) < EXACT


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_in_float32_for_a_model_of_another_precision(given, dtype):
    batch, vocabulary = given
    predictions = []
    for kind in (torch.float32, dtype):
        predictions.append(reads_numbers(vocabulary).to(kind)(batch))
    assert predictions[1].dtype == dtype
    assert relative_error(predictions[1].float(), predictions[0]) < 0.1


@pytest.mark.parametrize("width", [0, 1, 2, 4])
def test_other_numbers_than_the_model_reads(given, width):
    batch, vocabulary = given
    model = small_model(vocabulary, extra_inputs=3)
    message = rf"^the model reads 3 extra features .* holds \[3, {width}\]: give extra"
    with pytest.raises(ConfigError, match=message):
        model(replace(batch, extra=torch.zeros(3, width)))


def test_dropout_of_the_graph_is_as_without(given: tuple[GraphBatch, GraphVocabulary]) -> None:
    """What is drawn for the numbers is drawn last: runs with and without stay paired."""
    batch, vocabulary = given
    tokens = []
    for count in (0, 3):
        config = small_config(extra_inputs=count, dropout=0.3, input_dropout=0.3)
        model = Graphormer(config.for_vocabulary(vocabulary)).train()
        torch.manual_seed(1)
        token, atoms = model.encode(batch)
        model.read_out(token, atoms, batch).sum().backward()
        tokens.append(token)
    assert torch.equal(*tokens)


def test_in_training_numbers_and_what_is_made_of_them_are_dropped(given):
    batch, vocabulary = given
    model = reads_numbers(vocabulary, dropout=0.25, input_dropout=0.75)
    assert torch.equal(model(batch), reads_numbers(vocabulary)(batch))
    readout = model.extra_readout
    read = torch.randn(3, 12, dtype=torch.float64)
    torch.manual_seed(1)
    joined = readout.train()(read, NUMBERS)
    torch.manual_seed(1)
    scores = functional.dropout(torch.tensor(SCORES, dtype=torch.float64), 0.25)
    hidden = functional.gelu(readout.read(read) + readout.numbers(scores))
    hidden = functional.dropout(hidden, 0.25)
    assert relative_error(joined, read + readout.hidden(hidden)) < EXACT


def test_values_do_not_depend_on_company(given: tuple[GraphBatch, GraphVocabulary]) -> None:
    batch, vocabulary = given
    model = reads_numbers(vocabulary)
    with torch.no_grad():
        together = model(batch)
        for place, smiles in enumerate(SMILES):
            alone = batch_of([molecule(smiles)], vocabulary)
            value = model(replace(alone, extra=NUMBERS[place : place + 1]))
            assert relative_error(value, together[place : place + 1]) < EXACT


def test_a_sigmoid_of_the_log_odds_is_the_softmax() -> None:
    logits = 3 * torch.randn(7, 5, dtype=torch.float64)
    expected = logits.softmax(dim=1)
    torch.testing.assert_close(log_odds(logits).sigmoid(), expected)
    torch.testing.assert_close(log_odds(logits), (expected / (1 - expected)).log())
    # Two classes: the difference of the two, and its negative.
    two = log_odds(logits[:, :2])
    torch.testing.assert_close(two[:, 0], logits[:, 0] - logits[:, 1])
    torch.testing.assert_close(two[:, 0], -two[:, 1])


def test_large_logits_leave_finite_gradients() -> None:
    logits = torch.tensor([[300.0, -300.0, 0.0], [1e4, 1e4, -1e4]], requires_grad=True)
    values = log_odds(logits)
    assert values.isfinite().all()
    values.square().sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


def test_only_the_outputs_of_a_network_differ() -> None:
    plain = Graphormer(small_config(atom_rows=20, bond_rows=5, num_targets=3))
    exclusive = Graphormer(small_config(atom_rows=20, bond_rows=5, num_targets=3, exclusive=True))
    exclusive.load_state_dict(plain.state_dict())
    token, atoms = torch.randn(4, plain.config.width), torch.randn(9, plain.config.width)
    outputs = plain.read_out(token, atoms, None)  # type: ignore[arg-type]
    found = exclusive.read_out(token, atoms, None)  # type: ignore[arg-type]
    torch.testing.assert_close(found, log_odds(outputs))
    torch.testing.assert_close(found.sigmoid().sum(dim=1), torch.ones(4))
