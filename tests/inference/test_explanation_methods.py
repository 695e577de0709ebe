"""What each method says of atoms, held against the literal network and the methods' definitions."""

import numpy as np
import pytest
import torch
from reference.extensions import LiteralWithExtensions
from reference.literal import PlainGraph
from reference.models import EVERYTHING, literal_of, name_of, small_model, stored
from reference.molecules import molecule

from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.inference import explain
from graphormer_sepnorm.inference.explain import (
    Subject,
    integrated_gradients,
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


def test_whole_and_baseline_are_what_the_network_says(case):
    for number, size in enumerate(case.subject.sizes):
        assert case.subject.with_all(False)[number] == pytest.approx(
            case.value(number, [1.0] * size)
        )
        assert case.subject.with_all(True)[number] == pytest.approx(
            case.value(number, [0.0] * size)
        )


def test_a_fragment_left_out_is_shared_out_over_its_atoms(case):
    found = case.split(leave_one_fragment_out(case.subject))
    for number, fragments in enumerate(FRAGMENTS):
        size = len(found[number])
        whole = case.value(number, [1.0] * size)
        for atoms in fragments:
            effect = whole - case.value(number, [float(n not in atoms) for n in range(size)])
            np.testing.assert_allclose(found[number][atoms], effect / len(atoms), rtol=1e-6)


def test_integrated_gradients_are_complete(case, monkeypatch):
    """Baseline and contributions add up to the value, the better the more points there are."""
    network = case.subject.network
    value, baseline = case.subject.with_all(False), case.subject.with_all(True)
    missing = {}
    for steps in (2, 32, 128):
        monkeypatch.setattr(explain, "STEPS", steps)
        sums = [own.sum() for own in case.split(integrated_gradients(case.subject))]
        missing[steps] = np.abs(value - baseline - sums).max()
    assert np.abs(value - baseline).max() > 0.5
    assert missing[2] > 1e-3
    assert missing[32] < 0.1 * missing[2]
    # Messages have a kink where a neighbor's channel changes its sign.
    assert missing[128] < (1e-2 if network.config.local_mpnn == "gine" else 1e-4)


def test_integrated_gradients_are_mean_slopes_on_the_way():
    case, step = Case(), 1e-5
    points, weights = np.polynomial.legendre.leggauss(explain.STEPS)
    size = case.subject.sizes[2]
    slopes = [
        (case.value(2, [point + step] * size) - case.value(2, [point - step] * size)) / (2 * step)
        for point in (points + 1) / 2
    ]
    [contribution] = case.split(integrated_gradients(case.subject))[2]
    assert contribution == pytest.approx(np.dot(weights / 2, slopes), rel=1e-6)
