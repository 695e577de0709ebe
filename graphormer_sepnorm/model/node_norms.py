"""SepNorm among the nodes of graphs: which rows are virtual nodes, and norms that know it.

In message passing the nodes of all graphs lie one after the other, ``[R, D]``, and a graph's
virtual node is its [CLS].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.model.norms import MaskedBatchNorm
from graphormer_sepnorm.model.sepnorm import SepNorm, ShareNorm, TokenNorm


def last_of_each_graph(*args: Any, batch: Any = None, **named: Any) -> Tensor:
    """Find the virtual nodes of PyG's `VirtualNode` transform: the last node of each graph.

    Args:
        args: Of a call of the model: one of them a batch of PyG.
        batch: The same, or int64 ``[R]``, the graph of each node, in rising order.
        named: Other arguments.

    Returns:
        bool ``[R]``, True for the virtual nodes.

    Raises:
        ConfigError: There is no batch.
    """
    batches = (getattr(one, "batch", None) for one in (batch, *args, *named.values()))
    graphs = next((one for one in (batch, *batches) if isinstance(one, Tensor)), None)
    if graphs is None:
        raise ConfigError(
            "the model was called without a batch of PyG and without batch=: pass batch by "
            "name, or give as virtual_nodes= a function of the arguments that returns bool [R]"
        )
    return torch.cat([graphs.diff() != 0, graphs.new_ones(1, dtype=torch.bool)])


class VirtualNodes:
    """The virtual nodes of the call under way, for all norms that share this object.

    Args:
        model: Notes them whenever it is called.
        find: Takes what the model is called with; returns bool ``[R]``.
    """

    def __init__(self, model: nn.Module, find: Callable[..., Tensor]) -> None:
        self.mask: Tensor | None = None
        self._find = find
        # Methods, not closures, so that they are copied with the model.
        begin = model.register_forward_pre_hook(self._begin, with_kwargs=True)
        self._hooks = begin, model.register_forward_hook(self._end, always_call=True)

    def of(self, rows: Tensor) -> Tensor | None:
        """Return the mask for rows ``[R, D]``; None for what is not the nodes of this call."""
        known = self.mask is not None and rows.dim() == 2 and len(rows) == len(self.mask)
        return self.mask if known else None

    def remove(self) -> None:
        """Note nothing any more."""
        for hook in self._hooks:
            hook.remove()

    def _begin(self, _: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self.mask = self._find(*args, **named)
        if self._find is not last_of_each_graph or torch.compiler.is_compiling():
            return
        graphs = next((one for one in args if hasattr(one, "edge_index")), None)
        edges = named.get("edge_index", getattr(graphs, "edge_index", None))
        if isinstance(edges, Tensor) and edges.device.type == "cpu":  # a GPU is not waited for
            # The transform joins each of them with all other nodes of its graph.
            from_virtual = int(self.mask[edges[0]].sum())
            if from_virtual < len(self.mask) - int(self.mask.sum()):
                raise ConfigError(
                    "the last nodes of the graphs are not joined with all others, so they are no "
                    "virtual nodes: apply PyG's VirtualNode() to the graphs"
                )

    def _end(self, *_: Any) -> None:
        self.mask = None


class _OfNodes(TokenNorm):
    """A norm of rows that knows the virtual ones; it may be called with ``batch`` as PyG's are."""

    nodes: VirtualNodes

    def forward(self, rows: Tensor, *_: Any, **__: Any) -> Tensor:
        """Normalize ``[R, D]``."""
        mask = self.nodes.of(rows)
        if mask is None:
            raise ConfigError(
                f"a norm met {list(rows.shape)}, which are not the nodes of a call of the model: "
                "leave it out with where="
            )
        return super().forward(rows, mask)


class NodeSepNorm(_OfNodes, SepNorm):
    """`SepNorm` for the nodes of graphs."""


class NodeShareNorm(_OfNodes, ShareNorm):
    """`ShareNorm` for the nodes of graphs."""


def is_norm_of_nodes(module: nn.Module) -> bool:
    """Whether a module is a norm over the last axis, of torch or of PyG."""
    if isinstance(module, nn.LayerNorm):
        return len(module.normalized_shape) == 1
    return isinstance(module, nn.BatchNorm1d) or _is_pyg_layer_norm(module)


def does_more(norm: nn.Module) -> bool:
    """Whether a norm is not one of each node or channel by itself: PyG's may be of whole graphs."""
    return _is_pyg_layer_norm(norm) and norm.mode != "node"


def _is_pyg_layer_norm(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ == "LayerNorm" and kind.__module__.startswith("torch_geometric.")


def node_norm(
    norm: nn.Module, cls_norm: str, tok_norm: str, shared: bool, nodes: VirtualNodes
) -> NodeSepNorm | NodeShareNorm:
    """Make a norm that begins with what another has; see `SepNorm.from_layer_norm`."""
    width = len(norm.weight)  # type: ignore[arg-type]
    new = NodeShareNorm(width, tok_norm) if shared else NodeSepNorm(width, cls_norm, tok_norm)
    new.nodes = nodes
    for branch in new.children():
        if isinstance(branch, MaskedBatchNorm) and getattr(norm, "momentum", None) is not None:
            branch.momentum = norm.momentum  # type: ignore[assignment]
    return new._begin_as(norm)
