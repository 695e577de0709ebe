"""What must not change a result: numbering, listing of bonds, padding, company, filler rows."""

from dataclasses import replace

import pytest
import torch
from reference.literal import PlainGraph, has_ties
from reference.models import VARIANTS, batch_of, name_of, relative_error, small_model, stored
from reference.molecules import TIED, molecule, renumbered, shuffled_bonds
from reference.passes import EXACT, assert_same, run

from graphormer_sepnorm.graphs.batch import GraphBatch

SMILES = ("CCO", "c1ccccc1C(=O)O", "N", TIED["caffeine"], TIED["adamantane"], "C.CC(C)Cl", "C1CC1N")


@pytest.fixture(scope="module")
def molecules():
    graphs = [molecule(smiles) for smiles in SMILES]
    return graphs, stored(graphs)[1]


@pytest.mark.parametrize("options", VARIANTS, ids=name_of)
def test_atoms_may_be_numbered_in_any_order(zinc_graphs, options):
    graphs = zinc_graphs[:8]
    assert any(has_ties(PlainGraph.of(data)) for data in graphs[:3])
    _, vocabulary = stored(graphs, 20)
    model = small_model(vocabulary, **options, max_path_length=20).train()
    plain = run(model, batch_of(graphs, vocabulary, 20))
    for seed in range(2):
        generator = torch.Generator().manual_seed(seed)
        orders = [torch.randperm(len(data.x), generator=generator) for data in graphs]
        mixed = [renumbered(data, order) for data, order in zip(graphs, orders, strict=True)]
        other = run(model, batch_of(mixed, vocabulary, 20))
        start, back = 0, []
        for order in orders:
            back.append(start + torch.argsort(order))
            start += len(order)
        assert_same(plain, (other[0], other[1][torch.cat(back)], *other[2:]))


def test_bonds_may_be_listed_in_any_order(zinc_graphs):
    graphs = zinc_graphs[:8]
    _, vocabulary = stored(graphs)
    model = small_model(vocabulary).train()
    generator = torch.Generator().manual_seed(0)
    mixed = [
        shuffled_bonds(data, torch.randperm(data.edge_index.shape[1], generator=generator))
        for data in graphs
    ]
    assert any(
        not torch.equal(a.edge_index, b.edge_index) for a, b in zip(graphs, mixed, strict=True)
    )
    one, other = (run(model, batch_of(part, vocabulary)) for part in (graphs, mixed))
    assert_same(one, other)


@pytest.mark.parametrize("options", VARIANTS, ids=name_of)
def test_number_of_attention_blocks_changes_nothing(molecules, options):
    graphs, vocabulary = molecules
    model = small_model(vocabulary, **options).train()
    plain = run(model, batch_of(graphs, vocabulary))
    for blocks in (2, 3, 50):
        batch = batch_of(graphs, vocabulary, attention_blocks=blocks)
        assert len(batch.blocks) == min(blocks, len(graphs))
        assert_same(plain, run(model, batch))


@pytest.mark.parametrize("options", VARIANTS, ids=name_of)
def test_company_in_the_batch_changes_nothing_in_evaluation(molecules, options):
    graphs, vocabulary = molecules
    model = small_model(vocabulary, **options)
    large = molecule("CC(C)" * 20 + "C.N")
    with torch.no_grad():
        alone = torch.cat([model(batch_of([data], vocabulary)) for data in graphs])
        together = model(batch_of(graphs, vocabulary))
        with_large = model(batch_of([large, *graphs], vocabulary))[1:]
        backwards = model(batch_of(graphs[::-1], vocabulary)).flip(0)
    for other in (together, with_large, backwards):
        assert relative_error(other, alone) < EXACT


def test_company_matters_to_batch_norm_in_training(molecules):
    """What the test above would not see if evaluation mode were ignored."""
    graphs, vocabulary = molecules
    model = small_model(vocabulary, norm="bn+ln").train()
    with torch.no_grad():
        one = model(batch_of(graphs, vocabulary))[:2]
        other = model(batch_of(graphs[:2], vocabulary))
    assert relative_error(one, other) > 1e-3


def with_filler(batch: GraphBatch, number: int) -> GraphBatch:
    """The batch with rows that are no atoms behind the others, full of features."""
    extra = torch.arange(number)
    return replace(
        batch,
        atom_rows=torch.cat([batch.atom_rows, batch.atom_rows[:1].expand(number, -1)]),
        in_degree=torch.cat([batch.in_degree, extra % 5]),
        out_degree=torch.cat([batch.out_degree, extra % 3]),
        ring_sizes=torch.cat([batch.ring_sizes, extra[:, None].expand(-1, 2)]),
        graph_of_atom=torch.cat([batch.graph_of_atom, torch.zeros_like(extra)]),
        real_atoms=torch.cat(
            [torch.ones(len(batch.atom_rows), dtype=torch.bool), torch.zeros(number).bool()]
        ),
        unpad=torch.cat([batch.unpad, torch.zeros_like(extra)]),
    )


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("options", VARIANTS, ids=name_of)
def test_filler_rows_change_nothing(molecules, options, training):
    graphs, vocabulary = molecules
    model = small_model(vocabulary, **options).train(training)
    batch = batch_of(graphs, vocabulary)
    plain = run(model, batch)
    for number in (0, 17) if options == VARIANTS[0] else (17,):
        assert_same(plain, run(model, with_filler(batch, number)))


def test_padding_is_masked(molecules):
    """What stands at padding: no key of it has weight, and its queries are not used."""
    graphs, vocabulary = molecules
    batch = batch_of(graphs, vocabulary)
    bias = small_model(vocabulary).bias(batch)[0]
    (block,) = batch.blocks
    for place, data in enumerate(graphs):
        tokens = 1 + len(data.x)
        assert bias[place, :, :, tokens:].eq(float("-inf")).all()
        assert bias[place, :, :, :tokens].isfinite().all()
    # What padding slots hold does not reach any token: fill them with another graph's rows.
    rows = block.rows.clone()
    for place, data in enumerate(graphs):
        rows[place, 1 + len(data.x) :] = 5
    model = small_model(vocabulary)
    with torch.no_grad():
        other = model(replace(batch, blocks=(replace(block, rows=rows),)))
        assert relative_error(other, model(batch)) < EXACT
