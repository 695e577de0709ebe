"""An estimator's network: kept as a checkpoint, and asked about molecules."""

from __future__ import annotations

import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from graphormer_sepnorm.datasets.lazy_graphs import unusable
from graphormer_sepnorm.estimators.inputs import explained, smiles_of
from graphormer_sepnorm.inference.checkpoint import read_checkpoint
from graphormer_sepnorm.inference.predictor import Predictor


class Checkpointed(BaseEstimator):
    """What has a network, kept as the bytes of its checkpoint."""

    device: str | None
    on_invalid: str
    checkpoint_: bytes
    n_features_in_: int
    _loaded: tuple[str | None, Predictor] | None = None

    def _keep(self, checkpoint: bytes) -> None:
        self.checkpoint_ = checkpoint
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

    def _ask(self, ask: Any, X: Any) -> np.ndarray:
        """Return the values of `Predictor.predict` or `embed` for all rows; nan where one has none.

        Raises:
            InputError: A row has none, where that is to be an error.
        """
        return self._found(ask, X).values

    def _found(self, ask: Any, X: Any) -> Any:
        """Return the `Predictions` or `Embeddings` of all rows.

        Raises:
            InputError: A row has none, where that is to be an error.
        """
        found = ask(smiles_of(X, self.on_invalid), max_atoms=sys.maxsize)
        bad = [(row, error) for row, error in enumerate(found.errors) if error]
        if bad and self.on_invalid == "error":
            with explained():
                raise unusable(bad)
        new = [row for row, text in enumerate(found.warnings) if text.startswith("not understood")]
        if new:
            warnings.warn(
                f"{len(new):,} of {len(found.warnings):,} molecules have elements that did not "
                f"occur in training, which the model takes for nothing at all; the first, "
                f"X[{new[0]}]: {found.warnings[new[0]].partition('; ')[0]}",
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
