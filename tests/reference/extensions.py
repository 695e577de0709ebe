"""Ideas beyond Graphormer, written out atom by atom on top of its literal form."""

import itertools
import math
from dataclasses import dataclass, field

import networkx
import torch
from torch import Tensor

from graphormer_sepnorm.model.config import GraphormerConfig
from reference.literal import Literal, PlainGraph


def ring_of_bond(graph: PlainGraph, bond: tuple[int, int]) -> int | None:
    """Atoms of the smallest ring that a bond lies in: without it, the way back and it."""
    source, target = bond
    network = networkx.DiGraph(one for one in graph.bonds if one != (target, source))
    if not network.has_node(source) or not networkx.has_path(network, target, source):
        return None
    return networkx.shortest_path_length(network, target, source) + 1


def shared_rings(graph: PlainGraph) -> dict[tuple[int, int], int]:
    """Atoms of the smallest ring of any bond that two atoms lie in: of all of its ways back."""
    shared: dict[tuple[int, int], int] = {}
    for source, target in graph.bonds:
        size = ring_of_bond(graph, (source, target))
        if size is None:
            continue
        network = networkx.DiGraph(one for one in graph.bonds if one != (target, source))
        for ring in networkx.all_shortest_paths(network, target, source):
            for pair in itertools.permutations(ring, 2):
                shared[pair] = min(size, shared.get(pair, size))
    return shared


@dataclass
class LiteralWithExtensions(Literal):
    """A `Literal` that does what a configuration says beyond Graphormer."""

    config: GraphormerConfig = field(default_factory=GraphormerConfig)
    # Of the bonds of each graph, after the layers so far.
    states: dict[int, dict[tuple[int, int], Tensor]] = field(default_factory=dict)

    @property
    def local_layers(self) -> int:
        """First layers without attention."""
        return self.config.local_layers

    def walks(self, graph: PlainGraph) -> list[list[list[float]]]:
        """Probability of being at j after k steps from i: [K][n][n], each step along a bond."""
        n = len(graph.atoms)
        neighbors = [[j for j in range(n) if (i, j) in graph.bonds] for i in range(n)]
        powers = [torch.eye(n, dtype=torch.float64).tolist()]
        for _ in range(1, self.config.walk_steps):
            after = [[0.0] * n for _ in range(n)]
            for i in range(n):
                for here in range(n):
                    for there in neighbors[here]:
                        share = powers[-1][i][here] / len(neighbors[here])
                        after[i][there] += share
            powers.append(after)
        return powers

    def paths(self, graph: PlainGraph) -> list[list[list[float]]]:
        """log(1 + n) of the n simple paths of k bonds, of cycles for i = j: [K][n][n]."""
        n, steps = len(graph.atoms), self.config.walk_steps
        network = networkx.DiGraph([*graph.bonds])
        network.add_nodes_from(range(n))
        counts = [[[0.0] * n for _ in range(n)] for _ in range(steps)]
        for i, j in itertools.permutations(range(n), 2):
            for path in networkx.all_simple_paths(network, i, j, cutoff=steps - 1):
                if len(path) <= steps:
                    counts[len(path) - 1][i][j] += 1
        for cycle in networkx.simple_cycles(network):
            for atom in cycle:
                if 3 <= len(cycle) < steps:
                    counts[len(cycle)][atom][atom] += 0.5  # it is found both ways
        logs = [[[math.log(1 + x) for x in row] for row in table] for table in counts]
        return [torch.eye(n, dtype=torch.float64).tolist(), *logs[1:]]

    def ways(self, graph: PlainGraph) -> tuple[str, list[list[list[float]]]] | None:
        """Which numbers of ways between atoms there are, and they."""
        if "rrwp" in self.config.encodings:
            return "walks", self.walks(graph)
        return ("paths", self.paths(graph)) if "paths" in self.config.encodings else None

    def walked(self, name: str, powers: list[list[list[float]]], i: int, j: int) -> Tensor:
        """A linear layer of the numbers of a pair."""
        numbers = torch.tensor([power[i][j] for power in powers], dtype=torch.float64)
        return self.parameters[f"{name}.weight"] @ numbers

    def tokens(self, graph: PlainGraph) -> Tensor:
        """Embedded tokens, with the ways of coming back."""
        token, *atoms = super().tokens(graph)
        if ways := self.ways(graph):
            name, powers = ways
            atoms = [
                row + self.walked(f"{name}.atoms", powers, i, i) for i, row in enumerate(atoms)
            ]
        if "rings" in self.config.encodings:
            atoms = [row + self.ringed(graph, i) for i, row in enumerate(atoms)]
        return torch.stack([token, *atoms])

    def ringed(self, graph: PlainGraph, atom: int) -> Tensor:
        """Rows of U up to the smallest ring of the atom's bonds, of V up to the largest."""
        rings = [ring_of_bond(graph, bond) for bond in graph.bonds if bond[0] == atom]
        rings = [ring for ring in rings if ring is not None]
        total = torch.zeros_like(self.parameters["rings.smallest"][0])
        for name, choose in (("smallest", min), ("largest", max)):
            table = self.parameters[f"rings.{name}"]
            for size in range(3, 33):
                if rings and choose(rings) >= size:
                    total = total + table[size - 3]
        return total

    def bias(self, graph: PlainGraph) -> list[list[Tensor]]:
        """Bias of each pair of tokens, with the ways between atoms."""
        table = super().bias(graph)
        if ways := self.ways(graph):
            name, powers = ways
            for i in range(len(graph.atoms)):
                for j in range(len(graph.atoms)):
                    bias = self.walked(f"{name}.pairs", powers, i, j)
                    table[i + 1][j + 1] = table[i + 1][j + 1] + bias
        if self.config.ring_bias:
            for (i, j), size in shared_rings(graph).items():
                bias = self.shared("bias.rings", graph, (i, j), size)
                table[i + 1][j + 1] = table[i + 1][j + 1] + bias
        return table

    def shared(self, name: str, graph: PlainGraph, pair: tuple[int, int], size: int) -> Tensor:
        """Rows of U up to the ring that two atoms share, of V too where a bond joins them."""
        tables = [self.parameters[f"{name}.any"]]
        if pair in graph.bonds:
            tables.append(self.parameters[f"{name}.bonded"])
        return torch.stack([table[: size - 2].sum(0) for table in tables]).sum(0)

    def mix(self, name: str, graph: PlainGraph, tokens: Tensor, bias: list[list[Tensor]]) -> Tensor:
        """Attention, scaled by degrees, and what atoms hear along their bonds."""
        if int(name.split(".")[1]) < self.local_layers:
            return self.bond_messages(f"{name}.local", graph, tokens)
        if self.config.bias_mixing:
            mixing = self.parameters[f"{name}.bias_mixing.weight"]
            heads = range(self.heads)
            bias = [
                [
                    torch.stack([sum(mixing[h, g] * one[g] for g in heads) for h in heads])
                    for one in row
                ]
                for row in bias
            ]
        update = self.attention(f"{name}.attention", tokens, bias)
        if self.config.degree_scaler:
            update = self.scaled(f"{name}.degree_scaler", graph, update)
        if self.config.local_mpnn != "none":
            update = update + self.bond_messages(f"{name}.local", graph, tokens)
        return update

    def scaled(self, name: str, graph: PlainGraph, update: Tensor) -> Tensor:
        """x theta_1 + log(1 + d) x theta_2; a graph token has as many neighbors as atoms."""
        plain = self.parameters[f"{name}.plain"]
        by_degree = self.parameters[f"{name}.by_degree"]
        degrees = [len(graph.atoms), *([0] * len(graph.atoms))]
        for _, target in graph.bonds:
            degrees[1 + target] += 1
        return torch.stack(
            [
                row * plain + math.log(1 + degree) * row * by_degree
                for row, degree in zip(update, degrees, strict=True)
            ]
        )

    def bond_messages(self, name: str, graph: PlainGraph, tokens: Tensor) -> Tensor:
        """W times the sum of ReLU(h_j + e_ji) over bonds, W' times the mean over rings; [T, C].

        With states the message is ReLU(h_j + s_ji).
        """
        sums = [torch.zeros_like(row) for row in tokens]
        if name.startswith("layers.0."):
            self.states[id(graph)] = {}
        for (source, target), codes in graph.bonds.items():
            of_kind = self.embedded(f"{name}.bond.weight", self.bond_codes, codes)
            beside = torch.stack(list(of_kind)).sum(0)
            if self.config.bond_states:
                both = tokens[1 + source] + tokens[1 + target]
                news = (self.parameters[f"{name}.ends.weight"] @ both + beside).clamp(min=0)
                beside = self.states[id(graph)].get((source, target), 0) + news
                self.states[id(graph)][source, target] = beside
            sums[1 + target] = sums[1 + target] + (tokens[1 + source] + beside).clamp(min=0)
        told = torch.stack([self.parameters[f"{name}.output.weight"] @ row for row in sums])
        if self.config.local_mpnn == "gine+rings":
            heard: dict[int, list[Tensor]] = {}
            for (source, target), size in shared_rings(graph).items():
                row = self.shared(f"{name}.rings", graph, (source, target), size)
                heard.setdefault(target, []).append((tokens[1 + source] + row).clamp(min=0))
            for target, messages in heard.items():
                mean = torch.stack(messages).mean(0)
                told[1 + target] += self.parameters[f"{name}.ring_output.weight"] @ mean
        return told

    def read_out(self, states: list[Tensor]) -> Tensor:
        """Predictions from the graph token, from a sum or mean of the atoms, or from both."""
        predictions = []
        for tokens in states:
            is_mean = self.config.readout in ("mean", "graph_token+mean")
            pooled = sum(tokens[1:]) / (len(tokens) - 1 if is_mean else self.config.mean_atoms)
            if self.config.readout in ("sum", "mean"):
                predictions.append(self.linear("readout", pooled))
                continue
            prediction = self.linear("readout", tokens[0])
            if self.config.readout in ("both", "graph_token+mean"):
                prediction = prediction + self.parameters["atom_readout.weight"] @ pooled
            predictions.append(prediction)
        return torch.stack(predictions)
