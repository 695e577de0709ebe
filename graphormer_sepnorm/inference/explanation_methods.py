"""Which atoms make a prediction: the ways to share it out over them.

Most of them compare a molecule with itself, some atoms masked. A masked atom has the row of an
unknown atom, which is zero, in place of the rows of its features. It keeps its place: its degree,
its bonds and their kinds, its distances. What the network says when all atoms are masked is the
baseline.

G graphs · M atoms of all of them · R = G + M packed rows · C channels · H heads · T tokens
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphormer_sepnorm.graphs.batch import GraphBatch
from graphormer_sepnorm.inference.batching import by_size
from graphormer_sepnorm.model.attention import GraphAttention
from graphormer_sepnorm.model.graphormer import Graphormer, Layer

# Points of the path of integrated gradients; docs/explaining.md has what more of them change.
STEPS = 32


@dataclass(frozen=True)
class Subject:
    """Graphs, and the network whose prediction for them is explained.

    Attributes:
        network: In evaluation mode.
        target: Which of its outputs.
        sizes: int64 ``[G]``, atoms of each graph.
        fragments: Of each graph the atoms of each of its fragments, numbered in the graph.
        collate: Gives a batch of the graphs with these numbers, one of them several times perhaps.
        batch_size: Graphs computed at once, where a method makes many of one.
    """

    network: Graphormer
    target: int
    sizes: np.ndarray
    fragments: Sequence[Sequence[Sequence[int]]]
    collate: Callable[[Sequence[int]], GraphBatch]
    batch_size: int

    @cached_property
    def batch(self) -> GraphBatch:
        """All graphs, each once."""
        return self.collate(range(len(self.sizes)))

    def outputs(self, graphs: Sequence[int], masks: Sequence[np.ndarray]) -> np.ndarray:
        """Return what the network says of graphs some of whose atoms are masked.

        Args:
            graphs: Their numbers; one may be there several times.
            masks: For each, which of its atoms are masked: bool ``[atoms]``.

        Returns:
            float64 ``[len(graphs)]``, standardised values or logits.
        """
        chosen = np.asarray(graphs, np.int64)
        outputs = np.empty(len(chosen))
        for places in by_size(self.sizes[chosen], self.batch_size):
            batch = self.collate(chosen[places].tolist())
            hidden = torch.from_numpy(np.concatenate([masks[place] for place in places]))
            with torch.inference_mode():
                values = self.network(_masked(batch, hidden.to(batch.atom_rows.device)))
            outputs[places] = _to_numpy(values[:, self.target])
        return outputs

    def whole(self) -> np.ndarray:
        """Return what the network says of the graphs as they are, ``[G]``."""
        return self._all_masked(False)

    def baseline(self) -> np.ndarray:
        """Return what it says when all atoms are masked, ``[G]``."""
        return self._all_masked(True)

    def _all_masked(self, masked: bool) -> np.ndarray:
        masks = [np.full(size, masked) for size in self.sizes]
        return self.outputs(range(len(masks)), masks)

    def paths(self) -> tuple[Tensor, Tensor]:
        """Return the embedded tokens when all atoms are masked, and what the atoms add: ``[R, C]``.

        Tokens are taken where they enter the network, before its first layer.
        """
        batch = self.batch
        hidden = torch.ones_like(batch.graph_of_atom, dtype=torch.bool)
        with torch.no_grad():
            start = self.network.embedding(_masked(batch, hidden))
            return start, self.network.embedding(batch) - start

    def gradient(self, rows: Tensor) -> Tensor:
        """Return the gradient of the output by the embedded tokens, ``[R, C]``, at these tokens."""
        rows = rows.detach().requires_grad_()
        with _embedded_as(self.network, rows):
            outputs = self.network(self.batch)[:, self.target]
        # In evaluation no graph hears of another: the gradient of the sum is that of each.
        [gradient] = torch.autograd.grad(outputs.sum(), [rows])
        return gradient

    def of_atoms(self, contributions: Tensor) -> np.ndarray:
        """Return the sums over the channels of the atoms' rows of ``[R, C]``: float64 ``[M]``."""
        return _to_numpy(contributions.sum(1)[self.batch.num_graphs :])


def gradient_times_input(subject: Subject) -> np.ndarray:
    """Return the gradient by an atom's embedded features, times these features.

    Shrikumar et al. 2016, "Not Just a Black Box: Learning Important Features Through Propagating
    Activation Differences" (arXiv 1605.01713), who hold their method against it. The input is what
    the features add to the token of a masked atom, so that 0 is the baseline here too.
    """
    start, features = subject.paths()
    return subject.of_atoms(features * subject.gradient(start + features))


def integrated_gradients(subject: Subject) -> np.ndarray:
    """Return an atom's features times the mean gradient on the way from the baseline.

    Sundararajan, Taly and Yan 2017, "Axiomatic Attribution for Deep Networks" (arXiv 1703.01365),
    Eq. 1, by Gauss-Legendre quadrature. Completeness: contributions and baseline add up to what the
    network says, but for the error of the quadrature.
    """
    start, features = subject.paths()
    points, weights = np.polynomial.legendre.leggauss(STEPS)
    mean = torch.zeros_like(features)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        mean += weight * subject.gradient(start + point * features)
    return subject.of_atoms(features * mean)


def leave_one_atom_out(subject: Subject) -> np.ndarray:
    """Return by how much the value is higher than without the atom, which is masked.

    Occlusion: Zeiler and Fergus 2014, "Visualizing and Understanding Convolutional Networks" (arXiv
    1311.2901), Section 4.2.
    """
    atoms = [[[atom] for atom in range(size)] for size in subject.sizes]
    return np.concatenate(_left_out(subject, atoms))


def leave_one_fragment_out(subject: Subject) -> np.ndarray:
    """Return by how much the value is higher than without a fragment, shared out over its atoms.

    As `leave_one_atom_out`, for rings and what is between them (`chem.fragments`): what is left of
    a ring may say what the atom must have been. After Wu et al. 2023, "Chemistry-intuitive
    explanation of graph neural networks for molecular property prediction with substructure
    masking" (Nature Communications 14, 2585).
    """
    contributions = [np.zeros(size) for size in subject.sizes]
    effects = _left_out(subject, subject.fragments)
    for values, fragments, each in zip(contributions, subject.fragments, effects, strict=True):
        for atoms, effect in zip(fragments, each, strict=True):
            values[list(atoms)] = effect / len(atoms)
    return np.concatenate(contributions)


def attention_rollout(subject: Subject) -> np.ndarray:
    """Return the share of each atom in what [CLS] attends to through all layers.

    Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers" (arXiv 2005.00928), Section
    3: the product over the layers of ``(A + I) / 2``, A the mean over the heads. The shares of the
    atoms of a molecule add up to 1. They have neither sign nor unit, and are the same for all
    targets. What atoms say beside attention, by messages along bonds or in a read-out of their own,
    is not in them.
    """
    network = copy.deepcopy(subject.network).double()  # attention with its weights at hand
    flows: list[Tensor] = []

    def roll(attention: GraphAttention, arguments: tuple[Any, ...]) -> None:
        for place, weights in enumerate(attention_weights(attention, *arguments)):
            mixed = (weights.mean(1) + torch.eye(weights.shape[-1]).to(weights)) / 2
            if place == len(flows):
                flows.append(mixed)
            else:
                flows[place] = mixed @ flows[place]

    for layer in network.layers:
        assert isinstance(layer, Layer)
        if layer.attention is not None:
            layer.attention.register_forward_pre_hook(roll)
    batch = subject.batch
    with torch.inference_mode():
        network(batch)
    of_tokens = torch.cat([flow[:, 0].flatten() for flow in flows])
    shares = _to_numpy(of_tokens[batch.unpad][batch.num_graphs :])
    graph = _to_numpy(batch.graph_of_atom).astype(np.int64)
    return shares / np.bincount(graph, shares)[graph]


def attention_weights(
    attention: GraphAttention, rows: Tensor, batch: GraphBatch, biases: Sequence[Tensor]
) -> Iterator[Tensor]:
    """Yield the attention of each block ``[b, H, T, T]``, query by key, from padded biases."""
    for block, bias in zip(batch.blocks, biases, strict=True):
        query, key = (
            layer(rows)[block.rows].unflatten(-1, (attention.heads, -1)).transpose(1, 2)
            for layer in (attention.query, attention.key)
        )
        yield (query @ key.mT * query.shape[-1] ** -0.5 + bias).softmax(-1)


METHODS: dict[str, Callable[[Subject], np.ndarray]] = {
    method.__name__: method
    for method in (
        leave_one_atom_out,
        leave_one_fragment_out,
        integrated_gradients,
        gradient_times_input,
        attention_rollout,
    )
}


def default_method(norm: str) -> str:
    """Return the method that found the truth best in networks of a norm (docs/explaining.md).

    In evaluation BatchNorm is linear. LayerNorm is not, least of all near a masked atom, where the
    way of `integrated_gradients` begins.
    """
    return (integrated_gradients if norm.endswith("bn") else leave_one_atom_out).__name__


def _left_out(subject: Subject, parts: Sequence[Sequence[Sequence[int]]]) -> list[np.ndarray]:
    """Return for each part of each graph what masking it takes from the value."""
    graphs, masks = [], []
    for graph, (size, own) in enumerate(zip(subject.sizes, parts, strict=True)):
        for atoms in own:
            mask = np.zeros(size, dtype=bool)
            mask[list(atoms)] = True
            graphs.append(graph)
            masks.append(mask)
    effects = subject.whole()[graphs] - subject.outputs(graphs, masks)
    return np.split(effects, np.cumsum([len(own) for own in parts])[:-1])


def _masked(batch: GraphBatch, hidden: Tensor) -> GraphBatch:
    """Return the batch with some atoms masked; `hidden` is bool ``[M]``."""
    return replace(batch, atom_rows=batch.atom_rows.masked_fill(hidden[:, None], 0))


@contextmanager
def _embedded_as(network: Graphormer, rows: Tensor) -> Iterator[None]:
    """Let the network take these rows for its embedded tokens."""
    hook = network.embedding.register_forward_hook(lambda *_: rows)
    try:
        yield
    finally:
        hook.remove()


def _to_numpy(values: Tensor) -> np.ndarray:
    return values.detach().double().cpu().numpy()
