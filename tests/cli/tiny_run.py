"""What a run that takes a moment is asked for and leaves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TINY = [
    "--model.layers=2",
    "--model.width=16",
    "--model.heads=2",
    "--model.ffn_width=16",
    "--trainer.accelerator=cpu",
    "--trainer.max_steps=4",
    "--trainer.max_epochs=-1",
    "--trainer.log_every_n_steps=1",
    "--baselines=false",
]


@dataclass(frozen=True)
class Run:
    """A finished run: where it is and what was printed."""

    root: Path
    directory: Path
    out: str
    err: str
    warnings: list[str]
