"""The embeddings of a trained network as features for other estimators."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import TransformerMixin

from graphormer_sepnorm.estimators.checkpointed import Checkpointed
from graphormer_sepnorm.estimators.inputs import smiles_of
from graphormer_sepnorm.inference.checkpoint import read_checkpoint, save_for_prediction


class GraphormerEmbedding(TransformerMixin, Checkpointed):
    """What a trained network makes of molecules, as a transformer of scikit-learn.

    From SMILES to the graph token ([CLS]) after the last norm, of a network that is trained
    already: nothing is learned from X. Of a network that reads its predictions from the atoms alone
    it is a by-product, which `fit` warns of.

    Args:
        model: A bundled model's name, a run directory or a checkpoint.
        device: cpu, cuda, cuda:1 ...; None: a GPU if there is one.
        on_invalid: What a row that cannot be read is: error, or nan (of all channels).

    Attributes:
        checkpoint_: The network, so that a fitted transformer no longer needs the file.
        n_features_in_: 1, the SMILES.
    """

    def __init__(
        self, model: str = "esol", *, device: str | None = None, on_invalid: str = "error"
    ) -> None:
        self.model = model
        self.device = device
        self.on_invalid = on_invalid

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read the network.

        Raises:
            CheckpointError: There is none, or it does not take SMILES.
        """
        smiles_of(X, self.on_invalid)
        with tempfile.TemporaryDirectory(prefix="graphormer-") as folder:
            file = Path(folder) / "model.ckpt"
            save_for_prediction(read_checkpoint(self.model), file)
            self._keep(file.read_bytes())
        predictor = self._predictor()
        _ = predictor.reader.featuriser  # or it does not take SMILES
        if note := predictor.embedding_note:
            warnings.warn(f"{self.model}: {note}", stacklevel=2)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return embeddings, float32 ``[n, channels]``.

        Raises:
            InputError: A SMILES cannot be read.
        """
        return self._ask(self._predictor().embed, X)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the channels: cls_0, cls_1, ..."""
        width = self._predictor().model.config.width
        return np.array([f"cls_{channel}" for channel in range(width)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
