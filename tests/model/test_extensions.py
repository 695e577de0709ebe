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

from graphormer_sepnorm.model.config import ReadoutName
from graphormer_sepnorm.model.encodings import PathEncoding, RingEncoding, path_counts
from graphormer_sepnorm.model.graphormer import Graphormer

SMILES = ("CCO", "c1ccccc1C(=O)O", "N", "C.CC(C)Cl")


@pytest.fixture(scope="module")
def molecules():
    graphs = [molecule(smiles) for smiles in SMILES]
    store, vocabulary = stored(graphs)
    return store, vocabulary, batch_of(graphs, vocabulary)


@pytest.mark.parametrize("options", [*EXTENSIONS, {"extra_inputs": 3}], ids=name_of)
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
