"""Where the parameters of a model are, as a table for people."""

from __future__ import annotations

from itertools import groupby

from torch import nn

from graphormer_sepnorm.formatting import aligned
from graphormer_sepnorm.model.graphormer import Graphormer

_PARTS = {
    "embedding.atom": "atom features",
    "embedding.in_degree": "in-degree (centrality)",
    "embedding.out_degree": "out-degree (centrality)",
    "embedding.graph_token": "graph token",
    "bias.spatial": "distance (spatial encoding)",
    "bias.bond": "bond features (edge encoding)",
    "bias.path_weight": "hop weights (edge encoding)",
    "bias.graph_token": "graph token's distance",
    "bias.rings": "rings that pairs share",
    "walks": "random walks (RRWP)",
    "paths": "simple paths",
    "rings": "sizes of rings",
    "input_norm": "input norm",
    "output_norm": "output norm",
    "readout": "read-out",
    "atom_readout": "read-out of the atoms",
    "extra_readout": "numbers beside the graph",
}
_LAYER_PARTS = {
    "norms": {"attention_norm", "ffn_norm"},
    "attention and FFN": {"attention", "ffn"},
    "messages along bonds": {"local"},
    "degree scaler": {"degree_scaler"},
    "mixing of the bias": {"bias_mixing"},
}


def count_parameters(module: nn.Module) -> int:
    """Number of parameters that are trained."""
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


def parameter_table(model: Graphormer) -> str:
    """Return one line per part of the model: name, shapes, parameters; then the total."""
    lines: list[tuple[str, str, int]] = []
    for prefix, label in _PARTS.items():
        named = [
            (name, parameter)
            for name, parameter in model.named_parameters()
            if name == prefix or name.startswith(f"{prefix}.")
        ]
        if named:
            shapes = " + ".join("x".join(map(str, parameter.shape)) for _, parameter in named)
            lines.append((label, shapes, sum(parameter.numel() for _, parameter in named)))
    for label, parts in _LAYER_PARTS.items():
        each = [
            sum(p.numel() for name, p in layer.named_parameters() if name.split(".")[0] in parts)
            for layer in model.layers
        ]
        # The first layer's first norm may be another than the rest's (see make_norm).
        runs = [(len(list(run)), number) for number, run in groupby(each) if number]
        if runs:
            shape = " + ".join(f"{count} x {number:,}" for count, number in runs)
            lines.append((f"layers: {label}", shape, sum(each)))
    lines.append(("total", "", count_parameters(model)))
    rows = [(label, shape, f"{number:,}") for label, shape, number in lines]
    return aligned(rows, numbers_from=2)
