"""This process: by which command it was started, as which of several, on how many cores."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def command(name: str) -> str:
    """Return how `train` or `predict` is called here, so that a proposed command can be pasted.

    Returns:
        ``python train.py`` in a checkout, ``graphormer-train`` where the package was installed and
        this process was started by one of its commands.
    """
    installed = Path(sys.argv[0]).name.startswith("graphormer-")
    return f"graphormer-{name}" if installed else f"python {name}.py"


def name_and_version() -> str:
    """Return what ``--version`` says."""
    from graphormer_sepnorm import __version__

    return f"graphormer_sepnorm {__version__}"


def is_first_process() -> bool:
    """Whether this is the first of several training processes, or the only one."""
    # As torchrun, SLURM and Lightning say it; before Lightning is loaded.
    ranks = (os.environ.get(name) for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK", "NODE_RANK"))
    return all(rank in (None, "", "0") for rank in ranks)


def cores() -> int:
    """Return how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
