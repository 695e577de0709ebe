"""Writing checkpoints so that neither a kill nor a full disk leaves a damaged one."""

from __future__ import annotations

import contextlib
import os
import shlex
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from graphormer_sepnorm.errors import DataError
from graphormer_sepnorm.files import beside, is_full
from graphormer_sepnorm.process import command


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
        partial = beside(path, ".partial", ".")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            _synchronise(path.parent)
        except BaseException as error:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            if not isinstance(error, OSError | RuntimeError):
                raise
            if is_full(error):
                what = f"there is no room on the disk for the checkpoint {path}: make room"
            else:
                reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
                what = f"the checkpoint {path} cannot be written ({reason}): see to its folder"
            # Checkpoints lie one folder down in the directory of their run.
            run = shlex.quote(str(path.parent.parent))
            kept = " (the one before it is kept)" if path.is_file() else ""
            raise DataError(
                f"{what} and continue with: {command('train')} fit --resume {run}{kept}"
            ) from error


def _synchronise(folder: Path) -> None:
    with contextlib.suppress(OSError):  # not every file system lets a folder be synchronised
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
