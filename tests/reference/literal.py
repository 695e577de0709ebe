"""Graphormer restated slowly and literally, to hold the package's fast one against.

Written from the papers' equations (Ying et al. 2021, Eq. 3 to 7; Chen et al. 2023, Eq. 2 and 5)
and from the published description of the reference implementation: loops over graphs, layers,
heads and pairs of atoms, every shortest path written out. Nothing here is shared with the package
but the names of the parameters, which are taken from a state dict.

    n atoms of a graph · T = n + 1 tokens, the graph token first · C channels · H heads · D hops
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor


# ----------------------------------------------------------------------------- shortest paths
@dataclass(frozen=True)
class PlainGraph:
    """A graph in plain Python: the codes of each atom, the codes of each directed bond."""

    atoms: list[tuple[int, ...]]
    bonds: dict[tuple[int, int], tuple[int, ...]]

    @classmethod
    def of(cls, data) -> Self:
        """Read a PyG Data; 1-D features are one column, missing bond features one constant."""
        x = data.x if data.x.dim() == 2 else data.x[:, None]
        edges = [tuple(pair) for pair in data.edge_index.T.tolist()]
        if getattr(data, "edge_attr", None) is None:
            codes = [(0,)] * len(edges)
        else:
            attributes = data.edge_attr if data.edge_attr.dim() == 2 else data.edge_attr[:, None]
            codes = [tuple(row) for row in attributes.tolist()]
        bonds = {edge: code for edge, code in zip(edges, codes, strict=True) if edge[0] != edge[1]}
        return cls([tuple(row) for row in x.tolist()], bonds)


def floyd_warshall(graph: PlainGraph) -> tuple[list[list[float]], list[list[int]]]:
    """Distances, math.inf where there is no path, and an atom in between, -1 where there is none.

    As the reference implementation describes it, with "no intermediate" being -1 and not an atom.
    """
    n = len(graph.atoms)
    distance = [[0 if i == j else math.inf for j in range(n)] for i in range(n)]
    between = [[-1] * n for _ in range(n)]
    for i, j in graph.bonds:
        distance[i][j] = 1
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if distance[i][j] > distance[i][k] + distance[k][j]:
                    distance[i][j] = distance[i][k] + distance[k][j]
                    between[i][j] = k
    return distance, between


def distances(graph: PlainGraph) -> list[list[float]]:
    """From every atom to every atom; math.inf where there is no path."""
    return floyd_warshall(graph)[0]


def one_path(graph: PlainGraph, start: int, end: int) -> list[int]:
    """The shortest path that Floyd-Warshall with stored intermediates follows."""
    between = floyd_warshall(graph)[1]

    def inner(i: int, j: int) -> list[int]:
        k = between[i][j]
        return [] if k == -1 else [*inner(i, k), k, *inner(k, j)]

    return [start, *inner(start, end), end]


def all_shortest_paths(
    graph: PlainGraph, distance: list[list[float]], start: int, end: int
) -> list[list[int]]:
    """Every shortest path from `start` to `end`, as lists of atoms. Explodes on fused systems."""
    if start == end:
        return [[start]]
    if distance[start][end] == math.inf:
        return []
    return [
        [*path, end]
        for before in range(len(graph.atoms))
        if (before, end) in graph.bonds and distance[start][before] + 1 == distance[start][end]
        for path in all_shortest_paths(graph, distance, start, before)
    ]


def has_ties(graph: PlainGraph) -> bool:
    """Whether some pair of atoms is joined by more than one shortest path."""
    distance = distances(graph)
    n = len(graph.atoms)
    return any(
        len(all_shortest_paths(graph, distance, i, j)) > 1 for i in range(n) for j in range(n)
    )


def path_shares(
    graph: PlainGraph, distance: list[list[float]], start: int, end: int, hops: int
) -> dict[tuple[int, tuple[int, ...]], Fraction]:
    """Of the first `hops` hops: share of all shortest paths whose hop is a bond of these codes."""
    paths = all_shortest_paths(graph, distance, start, end)
    shares: dict[tuple[int, tuple[int, ...]], Fraction] = {}
    for path in paths:
        for hop, bond in enumerate(pairwise(path)):
            if hop < hops:
                key = (hop, graph.bonds[bond])
                shares[key] = shares.get(key, Fraction(0)) + Fraction(1, len(paths))
    return shares


def counted_path_shares(
    graph: PlainGraph, distance: list[list[int]], start: int, hops: int
) -> list[dict[tuple[int, tuple[int, ...]], Fraction]]:
    """The same from exact numbers of paths, for graphs with too many to write them out.

    The share of paths start -> end that go over bond (u, v) is
    paths(start, u) * paths(v, end) / paths(start, end), if it lies on a shortest one.

    Args:
        graph: The graph.
        distance: From every atom to every atom.
        start: Where the paths begin.
        hops: Hops that count.

    Returns:
        One dictionary per end.
    """
    n = len(graph.atoms)
    to = {v: [u for (u, w) in graph.bonds if w == v] for v in range(n)}
    number = [[0] * n for _ in range(n)]
    for i in range(n):
        number[i][i] = 1
        for j in sorted(range(n), key=lambda j, i=i: distance[i][j]):
            if i != j and distance[i][j] < math.inf:
                number[i][j] = sum(
                    number[i][u] for u in to[j] if distance[i][u] + 1 == distance[i][j]
                )
    result = []
    for end in range(n):
        shares: dict[tuple[int, tuple[int, ...]], Fraction] = {}
        for (u, v), codes in graph.bonds.items():
            hop = distance[start][u]
            if hop < hops and hop + 1 + distance[v][end] == distance[start][end] < math.inf:
                part = Fraction(number[start][u] * number[v][end], number[start][end])
                shares[hop, codes] = shares.get((hop, codes), Fraction(0)) + part
        result.append(shares)
    return result


# ----------------------------------------------------------------------------- the model
@dataclass
class Literal:
    """Graphormer with the parameters of a state dict.

    Attributes:
        parameters: By the package's names; float64, with gradients if those are wanted.
        norm: Norm arm, [CLS] + atoms.
        norm_position: pre or post.
        layers: Number of layers.
        heads: H.
        max_path_length: D.
        atom_codes: Per atom feature, the codes that have an embedding row, ascending.
        bond_codes: The same of bonds.
        training: Whether BatchNorm takes the statistics of the batch.
        one_path: Follow one shortest path as the reference does, instead of averaging over all.
        statistics: Set by a forward pass in training: mean and unbiased variance that each
            BatchNorm saw, by the name of its module.
    """

    parameters: dict[str, Tensor]
    norm: str
    norm_position: str
    layers: int
    heads: int
    max_path_length: int
    atom_codes: tuple[tuple[int, ...], ...]
    bond_codes: tuple[tuple[int, ...], ...]
    training: bool
    one_path: bool = False
    statistics: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)

    @property
    def local_layers(self) -> int:
        """First layers without attention: Graphormer has none."""
        return 0

    # -- encodings
    def embedded(self, table: str, seen: tuple[tuple[int, ...], ...], codes) -> list[Tensor]:
        """Embeddings of each feature; nothing (zero) for a code without a row."""
        weight = self.parameters[table]
        vectors = []
        first = 1
        for code, known in zip(codes, seen, strict=True):
            if code in known:
                vectors.append(weight[first + known.index(code)])
            else:
                vectors.append(torch.zeros_like(weight[0]))
            first += len(known)
        return vectors

    def tokens(self, graph: PlainGraph) -> Tensor:
        """Embedded tokens [T, C]: features + in-degree + out-degree (Eq. 5), graph token first."""
        in_table = self.parameters["embedding.in_degree.weight"]
        out_table = self.parameters["embedding.out_degree.weight"]
        rows = [self.parameters["embedding.graph_token"][0]]
        for atom, codes in enumerate(graph.atoms):
            in_degree = sum(1 for (_, target) in graph.bonds if target == atom)
            out_degree = sum(1 for (source, _) in graph.bonds if source == atom)
            row = in_table[min(in_degree, len(in_table) - 1)]
            row = row + out_table[min(out_degree, len(out_table) - 1)]
            for vector in self.embedded("embedding.atom.weight", self.atom_codes, codes):
                row = row + vector
            rows.append(row)
        return torch.stack(rows)

    def pair_bias(self, graph: PlainGraph, distance: list[list[float]], i: int, j: int) -> Tensor:
        """Spatial (Eq. 6) and edge encoding (Eq. 7, multi-hop form) of an ordered pair, [H]."""
        spatial = self.parameters["bias.spatial.weight"]
        weights = self.parameters["bias.path_weight"]
        spd = distance[i][j]
        if spd == math.inf:
            return spatial[len(spatial) - 1]
        bias = spatial[min(int(spd), len(spatial) - 2)]
        if self.one_path:
            paths = [one_path(graph, i, j)] if i != j else [[i]]
        else:
            paths = all_shortest_paths(graph, distance, i, j)
        divisor = min(max(int(spd), 1), self.max_path_length)
        for path in paths:
            bonds = list(pairwise(path))[: self.max_path_length]
            for position, bond in enumerate(bonds):
                features = self.embedded("bias.bond.weight", self.bond_codes, graph.bonds[bond])
                mean = sum(features) / len(features)
                bias = bias + mean @ weights[position] / (divisor * len(paths))
        return bias

    def bias(self, graph: PlainGraph) -> list[list[Tensor]]:
        """Bias of each pair of tokens, [H]; the same in every layer."""
        virtual = self.parameters["bias.graph_token"][0]
        distance = distances(graph)
        n = len(graph.atoms)
        table = [[virtual] * (n + 1)]
        for i in range(n):
            table.append([virtual, *(self.pair_bias(graph, distance, i, j) for j in range(n))])
        return table

    # -- layers
    def linear(self, name: str, row: Tensor) -> Tensor:
        """W x + b."""
        return self.parameters[f"{name}.weight"] @ row + self.parameters[f"{name}.bias"]

    def attention(self, name: str, tokens: Tensor, bias: list[list[Tensor]]) -> Tensor:
        """Softmax attention with a bias (Eq. 3, 4 and 6), [T, C]."""
        query, key, value = (
            [self.linear(f"{name}.{part}", row) for row in tokens]
            for part in ("query", "key", "value")
        )
        size = tokens.shape[1] // self.heads
        rows = []
        for i in range(len(tokens)):
            parts = []
            for head in range(self.heads):
                own = slice(head * size, (head + 1) * size)
                logits = torch.stack(
                    [
                        query[i][own] @ key[j][own] / math.sqrt(size) + bias[i][j][head]
                        for j in range(len(tokens))
                    ]
                )
                powers = (logits - logits.max().detach()).exp()  # or they may overflow
                weights = powers / powers.sum()
                parts.append(sum(weights[j] * value[j][own] for j in range(len(tokens))))
            rows.append(self.linear(f"{name}.output", torch.cat(parts)))
        return torch.stack(rows)

    def mix(self, name: str, graph: PlainGraph, tokens: Tensor, bias: list[list[Tensor]]) -> Tensor:
        """What a layer adds to its tokens before the feed-forward network, [T, C]."""
        return self.attention(f"{name}.attention", tokens, bias)

    def ffn(self, name: str, tokens: Tensor) -> Tensor:
        """W2 GELU(W1 x + b1) + b2, with GELU(x) = x Phi(x)."""
        rows = []
        for row in tokens:
            inner = self.linear(f"{name}.0", row)
            inner = inner * 0.5 * (1 + torch.erf(inner / math.sqrt(2)))
            rows.append(self.linear(f"{name}.2", inner))
        return torch.stack(rows)

    # -- norms
    def layer_norm(self, name: str, row: Tensor) -> Tensor:
        """(h - mean) / sigma over the channels of one token, scaled and shifted."""
        mean = row.mean()
        variance = ((row - mean) ** 2).mean()
        normal = (row - mean) / torch.sqrt(variance + 1e-5)
        return normal * self.parameters[f"{name}.weight"] + self.parameters[f"{name}.bias"]

    def batch_norm(self, name: str, rows: list[Tensor]) -> list[Tensor]:
        """Normalize each channel over the rows of the batch, or by the running statistics."""
        if self.training:
            mean = sum(rows) / len(rows)
            variance = sum((row - mean) ** 2 for row in rows) / len(rows)
            unbiased = variance.detach() * len(rows) / (len(rows) - 1)
            self.statistics[name] = (mean.detach(), unbiased)
        else:
            mean = self.parameters[f"{name}.running_mean"]
            variance = self.parameters[f"{name}.running_var"]
        weight, bias = self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]
        return [(row - mean) / torch.sqrt(variance + 1e-5) * weight + bias for row in rows]

    def _apply(self, kind: str, name: str, rows: list[Tensor]) -> list[Tensor]:
        if kind == "ln":
            return [self.layer_norm(name, row) for row in rows]
        return self.batch_norm(name, rows)

    def normalize(self, name: str, graphs: list[Tensor], first: bool = False) -> list[Tensor]:
        """A norm arm over the tokens of all graphs.

        The first norm of a model has LayerNorm on its token branch, whatever the arm, and so have
        all before the first attention: there the token is still the same for every graph.
        """
        token_rows = [tokens[0] for tokens in graphs]
        atom_rows = [row for tokens in graphs for row in tokens[1:]]
        shared = {"shared-ln": "ln", "shared-bn": "bn"}.get(self.norm)
        if shared is not None and not (first and shared == "bn"):
            rows = self._apply(shared, f"{name}.norm", token_rows + atom_rows)
            token_rows, atom_rows = rows[: len(graphs)], rows[len(graphs) :]
        else:
            token, atom = (shared, shared) if shared else self.norm.split("+")
            token = "ln" if first else token
            token_rows = self._apply(token, f"{name}.graph_token_norm", token_rows)
            atom_rows = self._apply(atom, f"{name}.atom_norm", atom_rows)
        result = []
        for token_row, tokens in zip(token_rows, graphs, strict=True):
            own = [atom_rows.pop(0) for _ in range(len(tokens) - 1)]
            result.append(torch.stack([token_row, *own]))
        return result

    # -- the whole
    def encode(self, graphs: list[PlainGraph]) -> list[Tensor]:
        """The tokens of each graph after the last norm, [T, C]."""
        biases = [self.bias(graph) for graph in graphs]
        states = [self.tokens(graph) for graph in graphs]
        pre = self.norm_position == "pre"
        if not pre:
            states = self.normalize("input_norm", states, first=True)
        for layer in range(self.layers):
            name, local = f"layers.{layer}", layer < self.local_layers
            before = states
            if pre:
                first = layer <= self.local_layers
                before = self.normalize(f"{name}.attention_norm", states, first=first)
            mixed = [
                self.mix(name, graph, tokens, bias)
                for graph, tokens, bias in zip(graphs, before, biases, strict=True)
            ]
            states = [tokens + update for tokens, update in zip(states, mixed, strict=True)]
            if not pre:
                states = self.normalize(f"{name}.attention_norm", states, first=local)
            before = self.normalize(f"{name}.ffn_norm", states, first=local) if pre else states
            states = [
                tokens + self.ffn(f"{name}.ffn", inner)
                for tokens, inner in zip(states, before, strict=True)
            ]
            if not pre:
                states = self.normalize(f"{name}.ffn_norm", states, first=local)
        return self.normalize("output_norm", states) if pre else states

    def read_out(self, states: list[Tensor]) -> Tensor:
        """Predictions [B, targets] from the graph tokens."""
        return torch.stack([self.linear("readout", tokens[0]) for tokens in states])
