"""Writing checkpoints so that neither a kill nor a full disk leaves a damaged one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import is_full, replacing
from graphormer_sepnorm.process import resuming


class DurableCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint beside its place, makes sure that it is on disk, then renames it.

    Lightning's own way renames too, but does not wait for the disk: after a power cut the new file
    can be empty and the old one gone.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        """Write the file.

        Raises:
            DataError: There is no room or no permission; the file that was there stays.
        """
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial, partial.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(OSError):  # not every file system can do so with a folder
                folder = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except (OSError, RuntimeError) as error:  # torch.save makes the second of the first
            if is_full(error):
                what = f"there is no room on the disk for the checkpoint {path}: make room"
            else:
                reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
                what = f"the checkpoint {path} cannot be written ({reason}): see to its folder"
            # Checkpoints lie one folder down in the directory of their run.
            kept = " (the one before it is kept)" if path.is_file() else ""
            how = resuming(path.parent.parent)
            raise DataError(f"{what} and continue with: {how}{kept}") from error
