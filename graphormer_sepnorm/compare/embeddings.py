"""The embeddings that a model has after each layer, for [CLS] and a sample of the atoms.

G graphs · M sampled atoms · B graphs and A atoms of one batch · C channels
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphormer_sepnorm.graphs.loading import in_order, make_loader
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.model.graphormer import Graphormer

MAX_ATOMS = 10_000
OUTPUT = "output"


@dataclass(frozen=True)
class LayerEmbeddings:
    """The embeddings at one place of a model.

    Attributes:
        name: ``layer 1`` and so on, or ``output``.
        graph_token: ``[G, C]``, [CLS] of each graph.
        atoms: ``[M, C]``, the sampled atoms; the same atoms at every place.
        graph_of_atom: int64 ``[M]``, row of `graph_token` that each belongs to.
    """

    name: str
    graph_token: np.ndarray
    atoms: np.ndarray
    graph_of_atom: np.ndarray


@dataclass(frozen=True)
class ModelEmbeddings:
    """The embeddings of some graphs throughout a model.

    Attributes:
        layers: One per encoder layer, in order, then the output. With ``norm_position: pre`` a
            layer gives the residual stream, which no norm has touched yet; the output is what the
            last norm made of it. With ``post`` the output is the last layer again.
        graph_ids: int64 ``[G]``, number of each graph in its store, in the order of the rows.
        num_atoms: int64 ``[G]``, atoms of each graph, sampled or not.
    """

    layers: tuple[LayerEmbeddings, ...]
    graph_ids: np.ndarray
    num_atoms: np.ndarray


def collect_embeddings(
    model: Graphormer,
    store: GraphStore,
    vocabulary: GraphVocabulary,
    numbers: np.ndarray,
    *,
    batch_size: int = 64,
    max_atoms: int = MAX_ATOMS,
    seed: int = 0,
) -> ModelEmbeddings:
    """Run a model in evaluation mode and keep its embeddings.

    Which atoms are sampled depends on `seed`, `max_atoms` and the set of graphs alone, not on the
    model, so that arms are compared on the same atoms.

    Args:
        model: The network (`GraphormerModule.model`), on any device; set to evaluation mode.
        store: The graphs.
        vocabulary: What the model knows of them.
        numbers: int64 ``[G]``, which of them, at least one. [CLS] is kept for all: (layers + 1) *
            G * C numbers.
        batch_size: Graphs that are computed at once.
        max_atoms: Largest M. All atoms are kept if there are no more.
        seed: Of the sample.

    Returns:
        Rows in the order of `numbers`, in the floating type of the model (float32 at least).
    """
    num_atoms = store.num_atoms(numbers)
    chosen = _sample(numbers, num_atoms, max_atoms, seed)
    places = len(model.layers) + 1
    tokens: list[list[np.ndarray]] = [[] for _ in range(places)]
    atoms: list[list[np.ndarray]] = [[] for _ in range(places)]
    after_layers: list[Tensor] = []  # packed rows [B + A, C]

    def record(layer: nn.Module, given: Any, rows: Tensor) -> None:
        after_layers.append(rows)

    hooks = [layer.register_forward_hook(record) for layer in model.layers]
    device = next(model.parameters()).device
    model.eval()
    first = 0
    try:
        with torch.no_grad():
            for batch in make_loader(store, vocabulary, in_order(store, numbers, batch_size)):
                after_layers.clear()
                outputs = torch.cat(model.encode(batch.to(device)))
                end = first + len(batch.graph_of_atom)
                rows_of_atoms = batch.num_graphs + np.flatnonzero(chosen[first:end])
                first = end
                for token, atom, rows in zip(tokens, atoms, [*after_layers, outputs], strict=True):
                    token.append(_to_numpy(rows[: batch.num_graphs]))
                    atom.append(_to_numpy(rows[torch.from_numpy(rows_of_atoms).to(device)]))
    finally:
        for hook in hooks:
            hook.remove()
    graph_of_atom = np.repeat(np.arange(len(numbers)), num_atoms)[chosen]
    names = [*(f"layer {place}" for place in range(1, places)), OUTPUT]
    layers = tuple(
        LayerEmbeddings(name, np.concatenate(token), np.concatenate(atom), graph_of_atom)
        for name, token, atom in zip(names, tokens, atoms, strict=True)
    )
    return ModelEmbeddings(layers, np.asarray(numbers), num_atoms)


def _sample(numbers: np.ndarray, num_atoms: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Choose the atoms with the smallest of random numbers: bool, one per atom of the graphs.

    They are drawn from (seed, number of the graph, place in the graph).
    """
    keys = np.concatenate(
        [
            np.random.default_rng([seed, number]).random(count)
            for number, count in zip(numbers.tolist(), num_atoms.tolist(), strict=True)
        ]
    )
    chosen = np.zeros(len(keys), dtype=bool)
    chosen[np.argsort(keys, kind="stable")[:most]] = True
    return chosen


def _to_numpy(rows: Tensor) -> np.ndarray:
    wide = rows if rows.dtype == torch.float64 else rows.float()
    # A copy: what is kept of a batch must not keep all of it alive.
    return wide.cpu().numpy().copy()
