"""What a user types to start the two commands, so that a proposed command can be pasted."""

from __future__ import annotations

import sys
from pathlib import Path


def command(name: str) -> str:
    """Return how `train` or `predict` is called here.

    Returns:
        ``python train.py`` in a checkout, ``graphormer-train`` where the package was installed and
        this process was started by one of its commands.
    """
    installed = Path(sys.argv[0]).name.startswith("graphormer-")
    return f"graphormer-{name}" if installed else f"python {name}.py"
