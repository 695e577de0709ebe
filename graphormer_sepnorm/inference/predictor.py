"""From SMILES to predicted values, with a trained checkpoint and without Lightning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphormer_sepnorm.chem.features import get_featuriser
from graphormer_sepnorm.chem.molecules import parse_smiles
from graphormer_sepnorm.errors import CheckpointError
from graphormer_sepnorm.graphs.batch import Collator
from graphormer_sepnorm.graphs.molecular_graph import MolecularGraph
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.inference.checkpoint import KEY, model_weights, read_checkpoint
from graphormer_sepnorm.model.graphormer import Graphormer, GraphormerConfig


@dataclass(frozen=True)
class Predictions:
    """One row per SMILES given, in the same order.

    Attributes:
        smiles: As given.
        values: float64 ``[n, targets]``: real units, or the probability of class 1; nan where
            there is an error.
        errors: Why there is no value; the empty string where there is one.
    """

    smiles: tuple[str, ...]
    values: np.ndarray
    errors: tuple[str, ...]


class Predictor:
    """A trained model that takes SMILES.

    Args:
        checkpoint: What `read_checkpoint` gives.
        device: Where to compute; None: a GPU if there is one.

    Raises:
        CheckpointError: If the model was trained on graphs that are not made from SMILES.
    """

    def __init__(self, checkpoint: dict[str, Any], device: str | None = None) -> None:
        facts = checkpoint[KEY]
        if facts["featuriser"] is None:
            raise CheckpointError(
                f"this model was trained on the graphs of {facts['dataset']}, for which there is "
                "no way from SMILES yet: use `train.py test` with it, or a model trained on SMILES"
            )
        self.task = Task.from_plain(facts["task"])
        self.device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._featurise = get_featuriser(facts["featuriser"]).featurise
        self._vocabulary = GraphVocabulary.from_plain(facts["vocabulary"])
        self._mean = np.asarray(facts["target_mean"])
        self._std = np.asarray(facts["target_std"])
        self._model = Graphormer(GraphormerConfig(**facts["model"]))
        self._model.load_state_dict(model_weights(checkpoint))
        self._model.to(self.device).eval()

    @classmethod
    def load(cls, path: str | Path, device: str | None = None) -> Predictor:
        """Load a checkpoint file, or the best checkpoint of a run directory."""
        return cls(read_checkpoint(path), device)

    def predict(self, smiles: str | Sequence[str], batch_size: int = 128) -> Predictions:
        """Predict the properties of molecules.

        Args:
            smiles: One SMILES or several. What cannot be read gets an error, never an exception.
            batch_size: Molecules computed at once; the values do not depend on it.
        """
        given = (smiles,) if isinstance(smiles, str) else tuple(smiles)
        parsed = [parse_smiles(text) for text in given]
        readable = [(n, row.molecule) for n, row in enumerate(parsed) if row.molecule is not None]
        values = np.full((len(given), len(self.task.targets)), np.nan)
        for first in range(0, len(readable), batch_size):
            part = readable[first : first + batch_size]
            graphs = [self._featurise(molecule) for _, molecule in part]
            values[[place for place, _ in part]] = self._values(graphs)
        return Predictions(given, values, tuple(row.reason for row in parsed))

    @torch.inference_mode()
    def _values(self, graphs: list[MolecularGraph]) -> np.ndarray:
        store = GraphStore.from_graphs(graphs, self._model.config.max_path_length)
        batch = Collator(store, self._vocabulary)(list(range(len(graphs)))).to(self.device)
        outputs = self._model(batch).double()
        if self.task.kind == "binary":
            return outputs.sigmoid().cpu().numpy()
        return outputs.cpu().numpy() * self._std + self._mean
