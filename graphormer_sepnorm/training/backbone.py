"""Starting from a network that was trained on other molecules: all of it but the readout."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary, Vocabulary
from graphormer_sepnorm.inference.checkpoint import KEY, model_weights, read_checkpoint
from graphormer_sepnorm.model.config import FROM_DATA, REGULARIZATION, GraphormerConfig
from graphormer_sepnorm.model.graphormer import Graphormer

# Parts that belong to the targets of a network and not to its molecules.
_READOUT = ("readout.", "atom_readout.", "extra_readout.")


@dataclass(frozen=True)
class Backbone:
    """A trained network without its readout.

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
        vocabulary = GraphVocabulary.from_plain(facts["vocabulary"])
        weights = model_weights(checkpoint)
        if not weights:
            raise CheckpointError(f"{path} has no network to start from: take another model")
        return cls(facts["model"], vocabulary, facts["feature_version"], weights, str(path))

    def architecture(self, **own: float) -> dict[str, Any]:
        """Return the options of a network that takes these weights, with `REGULARIZATION` given."""
        others = (*FROM_DATA, *REGULARIZATION, "atom_rows", "bond_rows")
        return {name: value for name, value in self.options.items() if name not in others} | own

    def extended(
        self, own: GraphormerConfig, num_targets: int, seen: GraphVocabulary, feature_version: str
    ) -> tuple[GraphormerConfig, GraphVocabulary]:
        """Return configuration and vocabulary of the network for new targets and molecules.

        Raises:
            CheckpointError: The codes of the two vocabularies have different meanings.
        """
        if self.feature_version != feature_version:
            raise CheckpointError(
                f"{self.name} knows molecules by {self.feature_version}, these data by "
                f"{feature_version}: take a backbone that was trained on such features"
            )
        known = self.vocabulary
        vocabulary = GraphVocabulary(
            _union(known.atoms, seen.atoms), _union(known.bonds, seen.bonds)
        )
        # Sums over atoms stay divided by what they were divided by when the weights were learned.
        options = {"num_targets": num_targets, "mean_atoms": self.options.get("mean_atoms", 1.0)}
        sized = dataclasses.replace(own, atom_rows=None, bond_rows=None, **options)
        return sized.for_vocabulary(vocabulary), vocabulary

    def load_into(self, model: Graphormer, vocabulary: GraphVocabulary) -> None:
        """Give an initialized network these weights, but for the readout and rows of new codes.

        Args:
            model: With a configuration of `extended`.
            vocabulary: With its vocabulary.
        """
        rows = {  # by the ends of names of tables whose rows are codes
            ".atom.weight": _new_rows(self.vocabulary.atoms, vocabulary.atoms),
            ".bond.weight": _new_rows(self.vocabulary.bonds, vocabulary.bonds),
        }
        own = model.state_dict()
        for name, value in self.weights.items():
            if name.startswith(_READOUT):
                continue
            index = next((index for end, index in rows.items() if name.endswith(end)), None)
            if index is None:
                own[name] = value
            else:
                own[name][index] = value[: len(index)].to(own[name])
        model.load_state_dict(own)


def _union(first: Vocabulary, second: Vocabulary) -> Vocabulary:
    columns = zip(first.seen, second.seen, strict=True)
    return Vocabulary(tuple(tuple(sorted({*one, *other})) for one, other in columns))


def _new_rows(old: Vocabulary, new: Vocabulary) -> Tensor:
    """Return which row of the new table each row of the old one is, the unknown row first."""
    index, first = [0], 1
    for before, after in zip(old.seen, new.seen, strict=True):
        row_of = {code: first + row for row, code in enumerate(after)}
        index += [row_of[code] for code in before]
        first += len(after)
    return torch.tensor(index)
