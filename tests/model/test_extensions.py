"""What may be added to Graphormer: where it starts, and cases whose result is known beforehand."""

import itertools
import math
from typing import Any, get_args

import pytest
import torch
from reference.models import (
    EVERYTHING,
    EXTENSIONS,
    batch_of,
    batch_of_smiles,
    name_of,
    small_config,
    small_model,
    stored,
)
from reference.molecules import C60, graph, molecule
from torch import Tensor

from graphormer_sepnorm.graphs.resident import BatchShape, ResidentGraphs
from graphormer_sepnorm.model.config import ReadoutName
from graphormer_sepnorm.model.encodings import (
    PathEncoding,
    RandomWalkEncoding,
    RingEncoding,
    path_counts,
)
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.model.layers import log_degrees, mean_over_atoms, sum_over_atoms

SMILES = ("CCO", "c1ccccc1C(=O)O", "N", "C.CC(C)Cl")


@pytest.fixture(scope="module")
def molecules():
    graphs = [molecule(smiles) for smiles in SMILES]
    store, vocabulary = stored(graphs)
    return store, vocabulary, batch_of(graphs, vocabulary)


@pytest.mark.parametrize("options", EXTENSIONS, ids=name_of)
def test_graphormers_own_parameters_start_as_in_graphormer(options):
    sizes = {"atom_rows": 9, "bond_rows": 7}
    plain = Graphormer(small_config(**sizes, norm=options.get("norm", "bn+ln"))).state_dict()
    state = Graphormer(small_config(**sizes, **options)).state_dict()
    missing = plain.keys() - state.keys()
    local = [f"layers.{place}." for place in range(options.get("local_layers", 0))]
    assert all(name.startswith((*local, "layers.1.attention_norm.")) for name in missing)
    assert bool(missing) == bool(local)
    for name in plain.keys() - missing:
        assert torch.equal(state[name], plain[name]), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
def test_neutral_values_give_graphormer_bit_for_bit(molecules, training, dtype):
    """Mixing, scaler and rings start neutral; the others are once what they add is zero."""
    _, vocabulary, batch = molecules
    options: dict[str, Any] = {"width": 24, "heads": 3, "attention_dropout": 0.2}
    plain = Graphormer(small_config(**options).for_vocabulary(vocabulary))
    model = Graphormer(small_config(**options, **EVERYTHING).for_vocabulary(vocabulary))
    added = {*model.state_dict()} - {*plain.state_dict()}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in added and not any(part in name for part in ("mixing", "scaler", "rings")):
                assert parameter.abs().sum() > 0
                parameter.zero_()
    outputs = []
    for network in (plain, model):
        torch.manual_seed(7)
        outputs.append(network.to(dtype).train(training)(batch))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("norm", ["shared-bn", "bn+ln"])
@pytest.mark.parametrize("readout", get_args(ReadoutName))
@pytest.mark.parametrize("smiles", [SMILES, ("N", "C")], ids=["molecules", "without bonds"])
def test_every_parameter_has_a_gradient(molecules, smiles, norm, readout):
    """Several processes wait for the gradient of every parameter, even if it is 0."""
    _, vocabulary, _ = molecules
    batch = batch_of([molecule(text) for text in smiles], vocabulary)
    options = EVERYTHING | {"norm": norm, "readout": readout, "drop_path": 0.3}
    model = small_model(vocabulary, **options).train()
    model(batch).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_sums_means_and_degrees_leave_out_filler_rows(molecules):
    store, vocabulary, _ = molecules
    resident = ResidentGraphs(store, vocabulary, "cpu")
    batch = resident.batch(torch.tensor([3, 0]), BatchShape(14, ((2, 9),)))
    values = torch.arange(28.0).reshape(14, 2) + 1
    sums = sum_over_atoms(values, batch)
    assert torch.equal(sums, torch.stack([values[:5].sum(0), values[5:8].sum(0)]))
    means = mean_over_atoms(values, batch)
    torch.testing.assert_close(means, torch.stack([values[:5].mean(0), values[5:8].mean(0)]))
    degrees = [5, 3, 0, 1, 3, 1, 1, 1, 2, 1]
    logs = log_degrees(batch, torch.float64)
    assert logs.shape == (16, 1)
    expected = torch.tensor([math.log(1 + d) for d in degrees], dtype=torch.float64)
    torch.testing.assert_close(logs[:10, 0], expected)


def test_walks_on_a_chain_of_three_atoms_and_an_atom_alone():
    graphs = [graph(3, [(0, 1), (1, 2)]), graph(1, [])]
    _, vocabulary = stored(graphs)
    batch = batch_of(graphs, vocabulary)
    (block,) = batch.blocks
    bonds = torch.zeros(2, 4, 4)
    bonds[0, 1, 2] = bonds[0, 2, 1] = bonds[0, 2, 3] = bonds[0, 3, 2] = 1
    found = RandomWalkEncoding(4, 4, 2).ways(bonds, block)
    step = torch.tensor([[0, 1, 0], [0.5, 0, 0.5], [0, 1, 0]])
    two = torch.tensor([[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]])
    assert torch.equal(found[:, 0, 1:, 1:], torch.stack([torch.eye(3), step, two, step]))
    # The atom alone is where it is, and nowhere after a step; tokens and padding are nowhere.
    assert found[0, 1, 1, 1] == 1
    assert found[:, 1].sum() == 1
    assert not found[:, 0, 0].any()
    assert not found[:, 0, :, 0].any()


def test_all_of_the_hundred_thousand_paths_of_eight_atoms_are_counted():
    """Of which each is bonded to each: k - 1 of the six others lie in between, in any order."""
    graphs = [graph(8, list(itertools.combinations(range(8), 2)))]
    _, vocabulary = stored(graphs)
    batch = batch_of(graphs, vocabulary)
    (block,) = batch.blocks
    bonds = (block.pair_type > 2).double()  # the first type is an atom with itself
    encoding = PathEncoding(8, 4, 2)
    found = encoding.ways(bonds, block)[1:, 0, 1, 2].tolist()
    wanted = [math.log(1 + math.perm(6, k - 1)) for k in range(1, 8)]
    assert found == pytest.approx(wanted)
    # Also by a model in bfloat16, which itself counts no further than 256.
    torch.nn.init.ones_(encoding.bfloat16().pairs.weight)
    given = torch.zeros(9, 4).bfloat16(), [torch.zeros(1, 2, 9, 9).bfloat16()], batch
    assert encoding(*given)[1][0][0, 0, 1, 2].item() == pytest.approx(sum(wanted), rel=0.01)


def test_paths_of_a_ring_of_four_with_a_bond_across():
    """Atoms 0 to 3 in a ring, 0 and 2 bonded: what there is can be counted by hand."""
    graphs = [graph(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]), graph(1, [])]
    _, vocabulary = stored(graphs)
    batch = batch_of(graphs, vocabulary)
    (block,) = batch.blocks
    bonds = torch.zeros(2, 5, 5)
    for i, j in ((0, 1), (1, 2), (2, 3), (3, 0), (0, 2)):
        bonds[0, 1 + i, 1 + j] = bonds[0, 1 + j, 1 + i] = 1
    found = path_counts(bonds, block, 6, most=100)
    counts = found[:, 0, 1:, 1:]
    assert torch.equal(counts[0], torch.eye(4))
    assert torch.equal(counts[1], bonds[0, 1:, 1:])
    # To the atom across: of 1 and 3 by both others, of 0 and 2 likewise.
    assert counts[2].tolist() == [[0, 1, 2, 1], [1, 0, 1, 2], [2, 1, 0, 1], [1, 2, 1, 0]]
    # Triangles 012 and 023; from 1 to 3 by 02 and 20, from 0 to 1 by 32 and back.
    assert counts[3].tolist() == [[2, 1, 0, 1], [1, 1, 1, 2], [0, 1, 2, 1], [1, 2, 1, 1]]
    assert torch.equal(counts[4], torch.eye(4))  # the ring
    assert not counts[5].any()
    assert found[:, 1].sum() == 1
    assert not found[:, 0, 0].any()
    assert not found[:, 0, :, 0].any()


@pytest.mark.parametrize("smiles", ["c1ccccc1C(=O)O", C60, "CCO"])
def test_graphs_with_too_many_paths_know_the_short_ones(smiles):
    """As many lengths as have no more paths in all, whatever is beside the graph in the batch."""
    middle = molecule(smiles)
    molecules = [molecule("CC1CC1"), middle, molecule("C1CCC2CC2C1")]
    _, vocabulary = stored(molecules)
    tokens = middle.num_nodes + 1

    def counts(most: int, graphs: list, place: int) -> Tensor:
        batch = batch_of(graphs, vocabulary)
        (block,) = batch.blocks
        is_bond = torch.cat([torch.zeros(2), batch.type_distance]) == 1
        found = path_counts(is_bond[block.pair_type].float(), block, 9, most)
        return found[:, place, :tokens, :tokens]

    whole = counts(10**9, [middle], 0)
    paths = [float((table - table.diag().diag()).sum()) for table in whole]
    totals = [int(total) for total in itertools.accumulate(paths)]
    for most in (300, totals[2], totals[2] - 1):
        known = sum(total <= most for total in totals)
        assert most != 300 or known == {"CCO": 9, C60: 2}.get(smiles, known) > 0
        for part in (counts(most, [middle], 0), counts(most, molecules, 1)):
            assert torch.equal(part[:known], whole[:known])
            assert not part[known:].any()


def test_walks_bring_nothing_to_graph_tokens(molecules):
    _, vocabulary, batch = molecules
    model = small_model(vocabulary, encodings="rrwp", walk_steps=5)
    assert model.walks is not None
    rows, biases = model.embedding(batch), model.bias(batch)
    new_rows, new_biases = model.walks(rows, biases, batch)
    assert torch.equal(new_rows[: len(SMILES)], rows[: len(SMILES)])
    assert (new_rows[len(SMILES) :] != rows[len(SMILES) :]).any(1).all()
    assert torch.equal(new_biases[0][:, :, 0], biases[0][:, :, 0])
    assert torch.equal(new_biases[0][:, :, :, 0], biases[0][:, :, :, 0])
    assert not torch.equal(new_biases[0], biases[0])


def test_rings_of_unseen_sizes_are_between_their_neighbors_or_the_largest():
    """Trained on sizes 5 and 9: each gradient step moves the rows between alike, none beyond."""
    sizes = [5, 7, 9, 20, 40]
    graphs = [molecule("C1" + "C" * (size - 2) + "C1") for size in sizes]
    _, vocabulary = stored(graphs)
    rings = RingEncoding(4)
    seen, everything = batch_of([graphs[0], graphs[2]], vocabulary), batch_of(graphs, vocabulary)
    rows = torch.zeros(len(seen.unpad), 4)
    target = torch.linspace(-1, 1, 4) * torch.tensor([3.0] * 5 + [1.0] * 9)[:, None]
    for _ in range(20):
        (rings(rows, seen)[2:] - target).square().sum().backward()
        with torch.no_grad():
            for table in (rings.smallest, rings.largest):
                table -= 0.01 * table.grad
                table.grad = None
    with torch.no_grad():
        added = rings(torch.zeros(len(everything.unpad), 4), everything)
    first = [5 + sum(sizes[:place]) for place in range(5)]
    five, seven, nine, twenty, forty = (added[place] for place in first)
    assert (five - nine).abs().max() > 0.1
    torch.testing.assert_close(seven, (five + nine) / 2)
    assert torch.equal(twenty, nine)
    assert torch.equal(forty, nine)
    assert not added[:5].any()  # graph tokens


def test_messages_tell_bonds_apart():
    """In Graphormer a bond changes where an atom looks, not what it sees."""
    one, other = molecule("CC"), molecule("C=C")
    other.x = one.x  # atoms that only their bond tells apart
    _, vocabulary = stored([one, other])
    batch = batch_of([one, other], vocabulary)
    model = small_model(vocabulary, local_mpnn="gine")
    told, states = model.layers[0].local(torch.zeros(6, 12, dtype=torch.float64), batch)
    assert states is None
    assert not told[:2].any()
    assert torch.equal(told[2], told[3])
    assert not torch.allclose(told[2], told[4])


def test_messages_tell_rings_apart_up_to_ten_atoms_and_take_larger_ones_for_ten():
    """From atoms of zeros: two hear along a bond, all others of the ring without one."""
    sizes = (8, 9, 10, 40)
    vocabulary, batch = batch_of_smiles(*("C1" + "C" * (size - 2) + "C1" for size in sizes))
    model = small_model(vocabulary, local_mpnn="gine+rings")
    local = model.layers[0].local
    with torch.no_grad():
        local.output.weight.zero_()
        rows = torch.zeros(len(batch.unpad), 12, dtype=torch.float64)
        told, _ = local(rows, batch.with_ring_pairs())
        for size, first in zip(sizes, (4, 12, 21, 31), strict=True):
            steps = min(size, 10) - 2
            far = local.rings.any[:steps].sum(0)
            near = far + local.rings.bonded[:steps].sum(0)
            mean = (2 * near.relu() + (size - 3) * far.relu()) / (size - 1)
            wanted = (local.ring_output.weight @ mean).expand(size, -1)
            torch.testing.assert_close(told[first : first + size], wanted)
