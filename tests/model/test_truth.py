"""The model against the published equations written out literally, forward and gradients."""

import pytest
import torch
from reference.literal import PlainGraph, distances, has_ties
from reference.models import (
    EVERYTHING,
    VARIANTS,
    batch_of,
    literal_of,
    name_of,
    relative_error,
    small_model,
    stored,
)
from reference.molecules import TIE_FREE, TIED, molecule

from graphormer_sepnorm.graphs.store import GraphStore

EXACT = 1e-9
# Shares such as 1/3 are kept in float32; halves and the like, and so graphs without ties, exactly.
ROUNDED = 1e-6


def compare(graphs, model, vocabulary, tolerance: float, one_path: bool = False) -> None:
    """Hold predictions, atoms, all gradients and running statistics against the literal form."""
    generator = torch.Generator().manual_seed(1)
    literal = literal_of(model, vocabulary, one_path)
    states = literal.encode([PlainGraph.of(data) for data in graphs])
    true_output = literal.read_out(states)
    true_atoms = torch.cat([tokens[1:] for tokens in states])
    before = {name: tensor.clone() for name, tensor in model.named_buffers()}

    batch = batch_of(graphs, vocabulary, model.config.max_path_length)
    token, atoms = model.encode(batch)
    output = model.read_out(token, atoms, batch)
    assert output.shape == (len(graphs), model.config.num_targets)
    assert relative_error(output, true_output) < tolerance
    assert relative_error(atoms, true_atoms) < tolerance

    # A random direction through everything, so that every parameter gets a gradient.
    weights = [
        torch.randn(part.shape, generator=generator, dtype=torch.float64)
        for part in (output, atoms)
    ]
    sum((w * part).sum() for w, part in zip(weights, (output, atoms), strict=True)).backward()
    truth = sum((w * p).sum() for w, p in zip(weights, (true_output, true_atoms), strict=True))
    truth.backward()
    for name, parameter in model.named_parameters():
        expected = literal.parameters[name].grad
        assert parameter.grad is not None, name
        assert expected is not None, name
        assert relative_error(parameter.grad, expected) < 100 * tolerance, name
    assert max(float(p.grad.abs().max()) for p in model.parameters()) > 1e-2

    for name, (mean, variance) in literal.statistics.items():
        for part, new in (("running_mean", mean), ("running_var", variance)):
            key = f"{name}.{part}"
            now = dict(model.named_buffers())[key]
            assert relative_error(now, 0.9 * before[key] + 0.1 * new) < tolerance, key


@pytest.mark.parametrize(
    ("position", "training"),
    [("pre", True), ("post", False)],
    ids=["pre-training", "post-evaluation"],
)
@pytest.mark.parametrize("options", VARIANTS, ids=name_of)
def test_molecules_without_ties_agree_with_the_one_path_form(options, training, position):
    names = ("alanine", "isobutane", "thiophene")
    graphs = [molecule(TIE_FREE[name]) for name in names]
    _, vocabulary = stored(graphs)
    model = small_model(vocabulary, norm_position=position, **options).train(training)
    compare(graphs, model, vocabulary, EXACT, one_path=True)


def test_molecules_have_the_ties_that_their_lists_say():
    assert not any(has_ties(PlainGraph.of(molecule(smiles))) for smiles in TIE_FREE.values())
    assert all(has_ties(PlainGraph.of(molecule(smiles))) for smiles in TIED.values())


@pytest.mark.parametrize("hops", [1, 5, 20])
def test_number_of_hops_that_count(hops):
    graphs = [molecule("CC(N)C=CCC#N"), molecule(TIE_FREE["cyclopropyl methyl sulfone"])]
    _, vocabulary = stored(graphs, hops)
    model = small_model(vocabulary, max_path_length=hops).train()
    compare(graphs, model, vocabulary, EXACT, one_path=True)


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize(
    ("names", "tolerance"),
    [
        (("benzene", "pyridine", "cubane"), EXACT),
        (("naphthalene", "caffeine", "adamantane"), ROUNDED),
    ],
    ids=["benzene, pyridine, cubane", "naphthalene, caffeine, adamantane"],
)
def test_molecules_with_ties_agree_with_the_average_over_all_paths(names, tolerance, training):
    graphs = [molecule(TIED[name]) for name in names]
    _, vocabulary = stored(graphs)
    model = small_model(vocabulary, norm="bn+ln").train(training)
    compare(graphs, model, vocabulary, tolerance)


@pytest.mark.parametrize(("norm", "hops"), [("bn+ln", 20), ("shared-bn", 5)])
def test_zinc_molecules_agree_with_the_average_over_all_paths(zinc_graphs, norm, hops):
    graphs = sorted(zinc_graphs, key=lambda data: len(data.x))[:3]
    _, vocabulary = stored(graphs, hops)
    model = small_model(vocabulary, norm=norm, max_path_length=hops, layers=1).train()
    compare(graphs, model, vocabulary, ROUNDED)


def test_long_distances_share_a_row_and_unreachable_pairs_have_their_own():
    """40 rows as published: 0 to 37 hops, 38 and more, no path."""
    graphs = [molecule("C" * 45 + ".CO")]
    _, vocabulary = stored(graphs)
    model = small_model(vocabulary, layers=1)
    assert model.config.spatial_rows == 40
    bias = model.bias(batch_of(graphs, vocabulary))[0][0, :, 1:, 1:]
    plain = PlainGraph.of(graphs[0])
    distance = distances(plain)
    literal = literal_of(model, vocabulary)
    rows = []
    for end in range(47):
        true = literal.pair_bias(plain, distance, 0, end)
        assert relative_error(bias[:, 0, end], true) < EXACT
        rows.append(true)
    spatial = model.bias.spatial.weight.detach()
    assert torch.allclose(rows[46], spatial[39])
    # Beyond D hops of a chain of equal bonds only the distance differs.
    assert torch.allclose(rows[44] - rows[37], spatial[38] - spatial[37])
    assert torch.equal(rows[38], rows[44])


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "bn+ln"},
        {"norm": "shared-ln"},
        EVERYTHING | {"walk_steps": 4},
        {"encodings": "paths", "walk_steps": 6},
    ],
    ids=["bn+ln", "shared-ln", "every extension", "paths"],
)
def test_several_fragments_small_tables_and_directed_bonds(options):
    """Degrees and distances beyond the tables, no path, in-degree unlike out-degree."""
    graphs = [molecule(text) for text in ("C.CC(C)(C)CCCCO", "[Na+].[Cl-]", "N", "C1CC1N")]
    one_way = molecule("CC(N)O")
    one_way.edge_index, one_way.edge_attr = one_way.edge_index[:, ::2], one_way.edge_attr[::2]
    graphs.append(one_way)
    _, vocabulary = stored(graphs)
    model = small_model(vocabulary, **options, spatial_rows=5, degree_rows=3).train()
    compare(graphs, model, vocabulary, EXACT)


def test_features_unseen_in_training_contribute_nothing():
    known = [molecule("CCO"), molecule("CC=O")]
    _, vocabulary = stored(known)
    model = small_model(vocabulary).train()
    compare([molecule("CCO"), molecule("CC#N"), molecule("CP(Br)C")], model, vocabulary, EXACT)


@pytest.mark.parametrize("one_dimensional", [True, False])
def test_graphs_of_one_atom_feature_and_without_bond_features(one_dimensional):
    graphs = [molecule(smiles) for smiles in ("CC(=O)O", "CCN", "O")]
    for data in graphs:
        data.x = data.x[:, 0] if one_dimensional else data.x[:, :1]
        data.edge_attr = None
    _, vocabulary = stored(graphs)
    assert vocabulary.bonds.seen == ((0,),)
    compare(graphs, small_model(vocabulary).train(), vocabulary, EXACT)


def test_more_hops_may_be_stored_than_the_model_counts():
    graphs = [molecule(smiles) for smiles in ("CC(=O)OCCN=C", "C=CC")]
    store, vocabulary = stored(graphs, 20)
    assert isinstance(store, GraphStore)
    model = small_model(vocabulary, max_path_length=2)
    with torch.no_grad():
        output = [model(batch_of(graphs, vocabulary, hops)) for hops in (2, 20)]
    assert relative_error(*output) < EXACT
