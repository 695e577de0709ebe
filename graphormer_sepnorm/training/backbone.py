"""Starting from a network that was trained on other molecules: all of it but the read-out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary, Vocabulary
from graphormer_sepnorm.inference.checkpoint import (
    KEY,
    build_network,
    model_weights,
    read_checkpoint,
)
from graphormer_sepnorm.model.config import FROM_DATA, REGULARISATION, GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer

# Parts that belong to the targets of a network and not to its molecules.
_READ_OUT = ("readout.", "atom_readout.", "extra_readout.")
# Ends of the names of tables whose rows are codes of atoms and of kinds of bond.
_ATOM_TABLES, _BOND_TABLES = (".atom.weight",), (".bond.weight",)


@dataclass(frozen=True)
class Backbone:
    """A trained network without its read-out.

    Attributes:
        options: Fields of its `GraphormerConfig`.
        vocabulary: Codes whose rows it has learned.
        feature_version: What the codes mean.
        weights: State dict of its `Graphormer`.
        name: As it was asked for.
    """

    options: dict[str, Any]
    vocabulary: GraphVocabulary
    feature_version: str
    weights: dict[str, Tensor]
    name: str

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a checkpoint of any training: a file, a run directory, a bundled model's name.

        Raises:
            CheckpointError: There is none, or it cannot be used.
        """
        checkpoint = read_checkpoint(path)
        facts = checkpoint[KEY]
        try:
            # A weight that is not there would keep its random value in one's own network.
            with torch.random.fork_rng(devices=[]):  # drawn from for values that are replaced
                network = build_network(facts["model"], model_weights(checkpoint))
        except CheckpointError as error:
            raise CheckpointError(f"{path}: {error}") from error
        return cls(
            facts["model"],
            GraphVocabulary.from_plain(facts["vocabulary"]),
            facts["feature_version"],
            network.state_dict(),
            str(path),
        )

    def architecture(self, **own: float) -> dict[str, Any]:
        """Return the options of a network that can take these weights.

        Args:
            own: Options of `REGULARISATION`, which are one's own.
        """
        decided = (*FROM_DATA, *REGULARISATION, "atom_rows", "bond_rows")
        kept = {name: value for name, value in self.options.items() if name not in decided}
        return kept | own

    def config(
        self, own: GraphormerConfig, num_targets: int, vocabulary: GraphVocabulary
    ) -> GraphormerConfig:
        """Return the configuration of the network for one's own targets."""
        sized = dataclasses.replace(own, num_targets=num_targets, atom_rows=None, bond_rows=None)
        # Sums over atoms stay divided by what they were divided by when the weights were learned.
        scale = self.options.get("mean_atoms", 1.0)
        return dataclasses.replace(sized, mean_atoms=scale).for_vocabulary(vocabulary)

    def extended_vocabulary(self, seen: GraphVocabulary, feature_version: str) -> GraphVocabulary:
        """Return its codes and those of one's own training molecules.

        Raises:
            CheckpointError: The two are codes of different things.
        """
        if self.feature_version != feature_version:
            raise CheckpointError(
                f"{self.name} knows molecules by {self.feature_version}, these data by "
                f"{feature_version}: take a backbone that was trained on such features"
            )
        return GraphVocabulary(
            _union(self.vocabulary.atoms, seen.atoms), _union(self.vocabulary.bonds, seen.bonds)
        )

    def load_into(self, model: Graphormer, vocabulary: GraphVocabulary) -> None:
        """Give a network these weights, but for the read-out and rows of codes that are new.

        Args:
            model: Initialised, with a `config` of this backbone.
            vocabulary: What `extended_vocabulary` gave.
        """
        atoms = _places(self.vocabulary.atoms, vocabulary.atoms)
        bonds = _places(self.vocabulary.bonds, vocabulary.bonds)
        own = model.state_dict()
        for name, value in self.weights.items():
            if name.startswith(_READ_OUT):
                continue
            if name.endswith(_ATOM_TABLES) or name.endswith(_BOND_TABLES):
                places = atoms if name.endswith(_ATOM_TABLES) else bonds
                own[name][places] = value[: len(places)].to(own[name])
            else:
                own[name] = value
        model.load_state_dict(own)


def _union(first: Vocabulary, second: Vocabulary) -> Vocabulary:
    return Vocabulary(
        tuple(
            tuple(sorted({*one, *other}))
            for one, other in zip(first.seen, second.seen, strict=True)
        )
    )


def _places(old: Vocabulary, new: Vocabulary) -> Tensor:
    """Return which row of the new table each row of the old one is, the unknown row first."""
    places, first = [0], 1
    for before, after in zip(old.seen, new.seen, strict=True):
        row_of = {code: first + at for at, code in enumerate(after)}
        places += [row_of[code] for code in before]
        first += len(after)
    return torch.tensor(places)
