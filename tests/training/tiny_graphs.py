"""Graphs small enough to train on in a moment, and how the tests train on them."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch_geometric.data import Data

NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0, "input_dropout": 0.0}
# Trains, and leaves all weights as they are.
STILL = {"learning_rate": 1e-30, "final_learning_rate": 0.0}


class StopAfter(Callback):
    """Interrupts training after some steps, as Ctrl-C does; of an epoch's last one at its end."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.steps and not trainer.is_last_batch:
            raise KeyboardInterrupt

    def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_step == self.steps:
            raise KeyboardInterrupt


class Noted(Callback):
    """Notes after every training step what a function says of the trainer and the module."""

    def __init__(self, say: Callable[[Trainer, Any], Any]) -> None:
        self.say = say
        self.values: list[Any] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.values.append(self.say(trainer, pl_module))


def path_graphs(count: int, seed: int, targets: int = 1) -> list[Data]:
    """Paths of 2 to 9 atoms with random codes; each target is about the number of bonds."""
    generator = torch.Generator().manual_seed(seed)
    graphs = []
    for _ in range(count):
        atoms = int(torch.randint(2, 10, (), generator=generator))
        first = torch.arange(atoms - 1)
        graphs.append(
            Data(
                x=torch.randint(0, 4, (atoms, 1), generator=generator),
                edge_index=torch.stack(
                    [torch.cat([first, first + 1]), torch.cat([first + 1, first])]
                ),
                edge_attr=torch.randint(1, 4, (atoms - 1,), generator=generator).repeat(2),
                y=atoms - 1.0 + 0.1 * torch.randn(targets, generator=generator),
            )
        )
    return graphs
