"""What each method says of atoms, held against the literal network and the methods' definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from reference.extensions import LiteralWithExtensions
from reference.literal import PlainGraph
from reference.models import EVERYTHING, literal_of, name_of, small_model, stored
from reference.molecules import molecule

from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.inference import explanation_methods
from graphormer_sepnorm.inference.explanation_methods import (
    METHODS,
    Subject,
    attention_rollout,
    gradient_times_input,
    integrated_gradients,
    leave_one_atom_out,
    leave_one_fragment_out,
)

SMILES = ["CC(=O)N", "c1ccsc1", "C"]
FRAGMENTS = [[[3, 1], [0, 2]], [[0, 1, 2, 3, 4]], [[0]]]
TARGET = 1
UNKNOWN = 99
OPTIONS = [{}, {"norm": "bn+bn"}, {"norm_position": "post"}, EVERYTHING]


class Case:
    """A random network, some molecules, and the same network restated literally."""

    def __init__(self, **options):
        data = [molecule(text) for text in SMILES]
        store, vocabulary = stored(data)
        network = small_model(vocabulary, **options)
        self.graphs = [PlainGraph.of(one) for one in data]
        sizes = np.array([len(graph.atoms) for graph in self.graphs])
        collate = Collator(store, vocabulary)
        self.subject = Subject(network, TARGET, sizes, FRAGMENTS, collate, batch_size=3)
        self.literal = literal_of(network, vocabulary)

    def value(self, number, amounts):
        """What the literal network says when an atom has this share of its features."""
        graph, literal = self.graphs[number], self.literal
        tokens = LiteralWithExtensions.tokens
        whole = tokens(literal, graph)
        codes = [(UNKNOWN,) * len(atom) for atom in graph.atoms]
        nothing = tokens(literal, PlainGraph(codes, graph.bonds))
        shares = torch.tensor([0.0, *amounts], dtype=torch.float64)[:, None]
        literal.tokens = lambda graph: nothing + shares * (whole - nothing)
        return literal.read_out(literal.encode([graph]))[0, TARGET].item()

    def split(self, contributions):
        return np.split(contributions, np.cumsum(self.subject.sizes)[:-1])


@pytest.fixture(params=OPTIONS, ids=lambda options: name_of(options) or "plain")
def case(request):
    return Case(**request.param)


def without(size, atoms):
    return [float(atom not in atoms) for atom in range(size)]


def test_whole_and_baseline_are_what_the_network_says(case):
    for number, size in enumerate(case.subject.sizes):
        assert case.subject.whole()[number] == pytest.approx(case.value(number, [1.0] * size))
        assert case.subject.baseline()[number] == pytest.approx(case.value(number, [0.0] * size))


def test_gradient_times_input_is_the_slope_along_an_atoms_features(case):
    step = 1e-5
    for number, found in enumerate(case.split(gradient_times_input(case.subject))):
        for atom, contribution in enumerate(found):
            more, less = (
                case.value(number, [1.0 + (place == atom) * by for place in range(len(found))])
                for by in (step, -step)
            )
            assert contribution == pytest.approx((more - less) / (2 * step), rel=1e-5, abs=1e-7)


def test_an_atom_left_out_has_none_of_its_features(case):
    for number, found in enumerate(case.split(leave_one_atom_out(case.subject))):
        size = len(found)
        whole = case.value(number, [1.0] * size)
        for atom, contribution in enumerate(found):
            alone = case.value(number, without(size, [atom]))
            assert contribution == pytest.approx(whole - alone, rel=1e-6, abs=1e-9)


def test_a_fragment_left_out_is_shared_out_over_its_atoms(case):
    found = case.split(leave_one_fragment_out(case.subject))
    for number, fragments in enumerate(FRAGMENTS):
        size = len(found[number])
        whole = case.value(number, [1.0] * size)
        for atoms in fragments:
            effect = whole - case.value(number, without(size, atoms))
            np.testing.assert_allclose(found[number][atoms], effect / len(atoms), rtol=1e-6)


def test_integrated_gradients_are_complete(case, monkeypatch):
    """Baseline and contributions add up to the value, the better the more points there are."""
    network = case.subject.network
    value, baseline = case.subject.whole(), case.subject.baseline()
    missing = {}
    for steps in (2, 32, 128):
        monkeypatch.setattr(explanation_methods, "STEPS", steps)
        sums = [own.sum() for own in case.split(integrated_gradients(case.subject))]
        missing[steps] = np.abs(value - baseline - sums).max()
    assert np.abs(value - baseline).max() > 0.5
    assert missing[2] > 1e-3
    assert missing[32] < 0.1 * missing[2]
    # Messages have a kink where a neighbour's channel changes its sign.
    assert missing[128] < (1e-2 if network.config.local_mpnn == "gine" else 1e-4)


def test_integrated_gradients_are_mean_slopes_on_the_way():
    case, step = Case(), 1e-5
    points, weights = np.polynomial.legendre.leggauss(explanation_methods.STEPS)
    size = case.subject.sizes[2]
    slopes = [
        (case.value(2, [point + step] * size) - case.value(2, [point - step] * size)) / (2 * step)
        for point in (points + 1) / 2
    ]
    [contribution] = case.split(integrated_gradients(case.subject))[2]
    assert contribution == pytest.approx(np.dot(weights / 2, slopes), rel=1e-6)


def test_attention_rollout_is_the_product_over_the_layers(case):
    """From the literal network's inputs of attention, graph by graph, token by token."""
    literal, layers = case.literal, []

    def recorded(name, tokens, bias):
        query, key = (
            torch.stack([literal.linear(f"{name}.{part}", row) for row in tokens]).detach()
            for part in ("query", "key")
        )
        heads = len(bias[0][0])
        size = tokens.shape[1] // heads
        mean = np.zeros((len(tokens), len(tokens)))
        for head in range(heads):
            own = slice(head * size, (head + 1) * size)
            for i in range(len(tokens)):
                logits = [
                    float(query[i][own] @ key[j][own]) / math.sqrt(size)
                    + float(bias[i][j][head].detach())
                    for j in range(len(tokens))
                ]
                powers = np.exp(np.array(logits) - max(logits))
                mean[i] += powers / powers.sum() / heads
        layers.append(mean)
        return LiteralWithExtensions.attention(literal, name, tokens, bias)

    literal.attention = recorded
    for number, found in enumerate(case.split(attention_rollout(case.subject))):
        layers.clear()
        literal.encode([case.graphs[number]])
        flow = np.eye(len(found) + 1)
        for weights in layers:
            flow = (weights + np.eye(len(flow))) / 2 @ flow
        np.testing.assert_allclose(found, flow[0, 1:] / flow[0, 1:].sum(), rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_the_network_is_left_as_it_was(method):
    case = Case()
    network = case.subject.network
    before = {name: value.clone() for name, value in network.state_dict().items()}
    first = METHODS[method](case.subject)
    np.testing.assert_array_equal(METHODS[method](case.subject), first)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())
