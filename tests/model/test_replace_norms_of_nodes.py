"""`replace_norms` in message passing: the virtual node is [CLS]."""

import copy

import pytest
import torch
from reference.models import randomize
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import GIN, GINEConv, GPSConv, LayerNorm
from torch_geometric.transforms import VirtualNode
from torch_geometric.utils import from_smiles

from graphormer_sepnorm import replace_norms
from graphormer_sepnorm.errors import ConfigError

WIDTH = 8
MOLECULES = ("CCO", "c1ccccc1O", "CC(=O)N", "CCN(C)C#N")


def graphs(*smiles: str) -> Batch:
    return Batch.from_data_list([VirtualNode()(from_smiles(text)) for text in smiles])


class Network(nn.Module):
    """GPS, called with a batch of PyG; returns the virtual nodes."""

    def __init__(self, norm: str = "batch_norm", **options: str) -> None:
        super().__init__()
        self.atoms, self.bonds = nn.Embedding(120, WIDTH), nn.Embedding(30, WIDTH)
        self.layers = nn.ModuleList(
            GPSConv(
                WIDTH, GINEConv(nn.Linear(WIDTH, WIDTH)), heads=2, norm=norm, norm_kwargs=options
            )
            for _ in range(2)
        )

    def forward(self, data: Batch) -> Tensor:
        nodes, bonds = self.atoms(data.x[:, 0]), self.bonds(data.edge_attr[:, 0])
        for layer in self.layers:
            nodes = layer(nodes, data.edge_index, data.batch, edge_attr=bonds)
        return nodes[data.ptr[1:] - 1]


def model(*kinds: str, shared: bool = False, norm: str = "batch_norm") -> Network:
    torch.manual_seed(0)
    made = Network(norm)
    randomize(made)
    replace_norms(made, *kinds, shared=shared, virtual_nodes="last", example=graphs(*MOLECULES))
    return made


@pytest.mark.parametrize("training", [True, False])
def test_one_batch_norm_is_the_original(training: bool) -> None:
    torch.manual_seed(0)
    original = Network().train(training)
    randomize(original)
    replaced = model("bn", "bn", shared=True).train(training)
    for _ in range(2):
        expected, found = (one(graphs(*MOLECULES)) for one in (original, replaced))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_virtual_nodes_have_a_norm_of_their_own() -> None:
    replaced, met = model("bn", "ln").train(), {}
    norm = replaced.layers[1].norm2.module
    norm.register_forward_hook(lambda _, given, made: met.update(given=given[0], made=made))
    data = graphs(*MOLECULES)
    replaced(data)
    last = torch.zeros(data.num_nodes, dtype=torch.bool)
    last[data.ptr[1:] - 1] = True
    own, others = norm.cls_norm_layer, norm.tok_norm_layer
    cls, atoms = met["given"][last], met["given"][~last]
    expected = (cls - cls.mean(0)) / (cls.var(0, unbiased=False) + 1e-5).sqrt()
    torch.testing.assert_close(met["made"][last], expected * own.weight + own.bias)
    centered = atoms - atoms.mean(1, keepdim=True)
    expected = centered / (atoms.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(met["made"][~last], expected * others.weight + others.bias)


def test_other_graphs_change_nothing_in_evaluation() -> None:
    replaced = model("bn", "bn").eval()
    alone, together = replaced(graphs(MOLECULES[1])), replaced(graphs(*MOLECULES))
    torch.testing.assert_close(together[1:2], alone)


def test_state_dicts_of_the_original_load_and_copies_work_alone() -> None:
    replaced, original = model("bn", "ln"), Network()
    randomize(original)
    state = original.state_dict()
    other = copy.deepcopy(replaced)
    other.load_state_dict(state)
    loaded = other.layers[0].norm1.module
    for branch in (loaded.cls_norm_layer, loaded.tok_norm_layer):
        torch.testing.assert_close(branch.weight, state["layers.0.norm1.module.weight"])
    mean = loaded.cls_norm_layer.running_mean
    torch.testing.assert_close(mean, state["layers.0.norm1.module.running_mean"])
    assert replaced.layers[0].norm1.module.cls_norm_layer is not loaded.cls_norm_layer
    del replaced
    assert other(graphs(*MOLECULES)).shape == (4, WIDTH)


def test_layer_norms_of_pyg() -> None:
    names = [f"layers.{layer}.norm{norm}" for layer in range(2) for norm in (1, 2, 3)]
    call = {"virtual_nodes": "last", "example": graphs(*MOLECULES)}
    found = replace_norms(Network("layer_norm", mode="node"), "bn", "ln", **call)
    assert found.replaced == dict.fromkeys(names, "bn+ln")
    whole = Network("layer_norm", mode="graph")
    with pytest.raises(ConfigError, match="force=True"):
        replace_norms(whole, "bn", "ln", **call)
    replace_norms(whole, "bn", "ln", force=True, **call)
    assert not any(isinstance(one, LayerNorm) for one in whole.modules())
    assert whole(graphs(*MOLECULES)).shape == (4, WIDTH)


def test_batch_norms_without_running_averages_stay() -> None:
    network, call = Network(), {"virtual_nodes": "last", "example": graphs(*MOLECULES)}
    network.layers[0].norm1.module = nn.BatchNorm1d(WIDTH, track_running_stats=False)
    network.layers[1].norm1.module = nn.BatchNorm1d(WIDTH, momentum=None)
    kept = replace_norms(network, "bn", "ln", **call).kept
    assert kept == {f"layers.{at}.norm1.module": "keeps no running averages" for at in (0, 1)}


def test_a_model_that_is_called_with_tensors() -> None:
    data = graphs(*MOLECULES)
    data.x = torch.randn(data.num_nodes, WIDTH)
    gin = GIN(WIDTH, WIDTH, 2, norm="batch_norm")
    call = {"x": data.x, "edge_index": data.edge_index, "batch": data.batch}
    short = {name: call[name] for name in ("x", "edge_index")}
    with pytest.raises(ConfigError, match="virtual_nodes="):
        replace_norms(gin, virtual_nodes="last", example=short)
    assert gin(**call).isfinite().all()  # as it was
    found = replace_norms(gin, virtual_nodes="last", example=call)
    assert found.replaced["norms.0.module"] == "bn+ln"
    assert gin(**call).isfinite().all()
    with pytest.raises(ConfigError, match="where="):
        gin.norms[0](data.x)


def test_graphs_without_virtual_nodes_are_refused() -> None:
    plain = Batch.from_data_list([from_smiles(text) for text in MOLECULES])
    with pytest.raises(ConfigError, match="VirtualNode"):
        replace_norms(Network(), virtual_nodes="last", example=plain)
    with pytest.raises(ConfigError, match="VirtualNode"):
        model("bn", "ln")(plain)
    with pytest.raises(ConfigError, match="'first'"):
        replace_norms(Network(), virtual_nodes="first", example=plain)  # type: ignore[arg-type]
