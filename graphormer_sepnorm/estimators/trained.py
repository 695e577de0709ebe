"""What has a network, and the embeddings of one as features for other estimators."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from graphormer_sepnorm.datasets.arrays import unusable
from graphormer_sepnorm.estimators.inputs import explained, smiles_of
from graphormer_sepnorm.inference.checkpoint import read_checkpoint, save_for_prediction
from graphormer_sepnorm.inference.embeddings import Embedder
from graphormer_sepnorm.inference.predictor import Predictor


class Trained(BaseEstimator):
    """What has a network, stored as the bytes of its checkpoint."""

    device: str | None
    on_invalid: str
    checkpoint_: bytes
    n_features_in_: int
    _loaded: tuple[str | None, Predictor] | None = None

    def _store(self, checkpoint: Any) -> None:
        """Take what a checkpoint needs to predict; `checkpoint` is its contents."""
        with tempfile.TemporaryDirectory(prefix="graphormer-") as folder:
            file = Path(folder) / "model.ckpt"
            save_for_prediction(checkpoint, file)
            self.checkpoint_ = file.read_bytes()
        self.n_features_in_ = 1
        self._loaded = None

    def _predictor(self) -> Predictor:
        """Return the network, on its device; read from the checkpoint when it is first needed."""
        check_is_fitted(self)
        if self._loaded is None or self._loaded[0] != self.device:
            with tempfile.TemporaryDirectory(prefix="graphormer-") as folder, explained():
                file = Path(folder) / "model.ckpt"
                file.write_bytes(self.checkpoint_)
                predictor = Predictor(read_checkpoint(file), self.device, refuse_new_elements=False)
            self._loaded = (self.device, predictor)
        return self._loaded[1]

    def _predicted(self, predict: Any, X: Any) -> Any:
        """Return the `Predictions` or `Embeddings` of all rows.

        Raises:
            InputError: A row has none, where that is to be an error.
        """
        found = predict(smiles_of(X, self.on_invalid), max_atoms=sys.maxsize)
        bad = [(row, error) for row, error in enumerate(found.errors) if error]
        if bad and self.on_invalid == "error":
            with explained():
                raise unusable(bad)
        new = [row for row, text in enumerate(found.warnings) if text.startswith("not understood")]
        if new:
            warnings.warn(
                f"{len(new):,} of {len(found.warnings):,} molecules have elements that did not "
                f"occur in training, which the model ignores; the first, X[{new[0]}]: "
                f"{found.warnings[new[0]].partition('; ')[0]}",
                stacklevel=3,
            )
        return found

    def __getstate__(self) -> Any:
        # No network: the checkpoint has it, and reading that runs no code.
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_loaded"}

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "checkpoint_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        return tags


class GraphormerEmbedding(TransformerMixin, Trained):
    """The embeddings of a trained network, as a transformer of scikit-learn.

    From SMILES to the graph token ([CLS]) after the last norm: nothing is learned from X. Of a
    network that reads its predictions from the atoms alone it is a by-product, which `fit` warns
    of.

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
        self._store(read_checkpoint(self.model))
        if note := Embedder(self._predictor()).note:
            warnings.warn(f"{self.model}: {note}", stacklevel=2)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return embeddings, float32 ``[n, channels]``.

        Raises:
            InputError: A SMILES cannot be read.
        """
        return self._predicted(self._predictor().embed, X).values

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the channels: cls_0, cls_1, ..."""
        width = self._predictor().model.config.width
        return np.array([f"cls_{channel}" for channel in range(width)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags
