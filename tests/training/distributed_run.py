"""Trainings in float64 whose numbers must not depend on the number of processes.

Started by test_distributed.py, once as a single process and then by torchrun; writes what came out.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from reference.models import EVERYTHING
from tiny_graphs import NO_DROPOUT, path_graphs

from graphormer_sepnorm.cli.known_warnings import silence_known_noise
from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.datasets.splits import DatasetSplits
from graphormer_sepnorm.graphs.task import Task
from graphormer_sepnorm.training.averaging import AveragedWeights
from graphormer_sepnorm.training.module import GraphormerModule

# Of each the arguments of `train`.
TRAININGS: dict[str, dict[str, Any]] = {
    **{f"{norm} plain": {"norm": norm} for norm in ("shared-bn", "bn+ln", "ln+bn")},
    "shared-ln accumulated": {"norm": "shared-ln", "accumulated": True},
    "bn+bn accumulated": {"norm": "bn+bn", "accumulated": True},
    "extensions": {"norm": "bn+bn", **EVERYTHING},
    "fixed": {"norm": "bn+bn", "accumulated": True, "frozen_bn_fraction": 0.5},
    "binary": {"norm": "bn+ln", "binary": True},
}


class Record(Callback):
    """Records the loss of every optimizer step and the graphs that are seen."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.evaluated: list[int] = []
        self.batches = 0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Note the loss of all processes."""
        self.batches += 1
        if len(self.losses) < trainer.global_step:
            loss = trainer.strategy.reduce(pl_module.step_loss.clone(), reduce_op="sum")
            self.losses.append(float(loss))

    def on_test_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, *_: Any) -> None:
        """Note which graphs this process evaluates."""
        self.evaluated += batch.graph_ids.tolist()


class DoubleModule(GraphormerModule):
    """In float64, so that an order of sums is not seen in the numbers compared."""

    def configure_model(self) -> None:
        """Build the network."""
        super().configure_model()
        self.double()


def make_splits(binary: bool) -> DatasetSplits:
    """Two targets, some labels missing, unequal weights; no size is divided by 2 or by 3."""
    parts = [path_graphs(count, seed, targets=2) for seed, count in enumerate((37, 13, 11), 1)]
    for part in parts:
        for number, graph in enumerate(part):
            if binary:
                graph.y = (graph.y + torch.tensor([2.0, -2.0]) * (number % 3 - 1) > 4).float()
            graph.weight = 0.5 + number % 3
            if number % 4 == 1:
                graph.y[number % 2] = torch.nan
            if number % 7 == 3:
                graph.y[:] = torch.nan
    kind, metric = ("binary", "auroc") if binary else ("regression", "mae")
    task = Task(kind, ("one", "two"), ("", ""), metric)
    return DatasetSplits("paths", *parts, task, f"paths-{kind}", "paths")


def train(
    root: Path, norm: str, accumulated: bool = False, binary: bool = False, **more: Any
) -> dict[str, Any]:
    """Train for two epochs and return all numbers; `more` are options of the model.

    Where gradients are accumulated, they are clipped and the weights averaged too.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    options = {"accumulate_grad_batches": 2, "gradient_clip_val": 0.5} if accumulated else {}
    options |= {"accelerator": "cpu", "devices": world_size, "max_epochs": 2}
    options |= {"strategy": "ddp" if world_size > 1 else "auto", "use_distributed_sampler": False}
    options |= {"enable_checkpointing": False, "enable_progress_bar": False, "logger": False}
    options |= {"enable_model_summary": False, "num_sanity_val_steps": 0}
    record = Record()
    trainer = Trainer(callbacks=[*([AveragedWeights(0.8)] * accumulated), record], **options)
    sizes = {"layers": 2, "width": 8, "heads": 2, "ffn_width": 8, "max_path_length": 3}
    model = {"norm": norm, "learning_rate": 3e-3, "warmup_steps": 2, "precise_bn_graphs": 30}
    # What BatchNorm has centered has no gradient here, and Adam would follow its rounding.
    model["uniformity_weight"] = 0.1 if accumulated and "bn" not in norm else 0.0
    module = DoubleModule(**model, **sizes, **NO_DROPOUT, **more)
    data = MoleculeDataModule.from_splits(
        make_splits(binary), root=str(root), batch_size=8, max_path_length=3
    )
    trainer.fit(module, data)
    validated = {name: float(value) for name, value in trainer.callback_metrics.items()}
    tested = trainer.test(module, data, verbose=False)[0]
    return {
        "losses": record.losses,
        "batches": record.batches,
        "evaluated": record.evaluated,
        "metrics": {**validated, **tested},
        "weights": sum(float(value.abs().sum()) for value in module.model.state_dict().values()),
        "parameters": [float(value.detach().sum()) for value in module.model.parameters()],
    }


def main(folder: Path) -> None:
    """Train in all ways; each process writes a file."""
    silence_known_noise()
    with tempfile.TemporaryDirectory() as root:
        results = {name: train(Path(root), **given) for name, given in TRAININGS.items()}
    rank = os.environ.get("RANK", "0")
    (folder / f"rank{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
