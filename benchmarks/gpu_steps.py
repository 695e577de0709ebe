"""Short trainings with the options of `benchmarks.gpu`, and single steps of what they trained."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.graphs.resident import BatchShape, plan_shape
from graphormer_sepnorm.training.captured.engine import CapturedTraining
from graphormer_sepnorm.training.captured.recording import CapturedSteps, TrainingStep
from graphormer_sepnorm.training.captured.together import resident_graphs
from graphormer_sepnorm.training.module import GraphormerModule

QUICK_MODEL: dict[str, Any] = {
    "layers": 2,
    "width": 16,
    "heads": 2,
    "ffn_width": 16,
    "local_layers": 0,  # a configuration may have more of them than two
}


def fitted(
    options: argparse.Namespace, batch_size: int, *callbacks: Callback, **trainer: Any
) -> tuple[GraphormerModule, MoleculeDataModule, Trainer]:
    """Train the model of the configuration, or slim Graphormer, on the data set of the options."""
    own = {**options.configured.get("model", {}), **(QUICK_MODEL if options.quick else {})}
    # Steps are timed that see their batch; statistics are not measured, so nothing can fix them.
    module = GraphormerModule(**{**own, "precise_bn_graphs": 0, "frozen_bn_fraction": 0.0})
    data = MoleculeDataModule(
        dataset=options.dataset,
        root=options.root,
        batch_size=batch_size,
        attention_blocks=4,
        max_path_length=module.hparams["max_path_length"],
    )
    made = Trainer(
        accelerator="gpu" if options.device.type == "cuda" else "cpu",
        devices=1,
        precision=options.precision,
        gradient_clip_val=options.clip,
        callbacks=list(callbacks),
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        **{"max_steps": 10**9, "max_epochs": -1, **trainer},
    )
    made.fit(module, data)
    return module, data, made


class Trained:
    """Models that have taken a step, and what each takes its next ones with.

    Args:
        options: Of the command.
        batch_size: Of the steps.
        count: Number of models.
    """

    def __init__(self, options: argparse.Namespace, batch_size: int, count: int = 1) -> None:
        self._device, self._clip = options.device, options.clip
        capturing = {"on_cpu": True, "steps_per_launch": 1}
        self._fitted = [
            fitted(options, batch_size, CapturedTraining(**capturing), max_steps=1)
            for _ in range(count)
        ]
        for module, _, _ in self._fitted:
            module.to(self._device).train()
        module, data, _ = self._fitted[0]
        self._resident = resident_graphs(data.store, module.vocabulary, module.model)
        # Random training graphs, and a shape that holds them.
        train = data.indices("train")
        chosen = np.random.default_rng(0).choice(train, batch_size, replace=False)
        sizes = data.store.num_atoms(chosen)
        planned = plan_shape(data.store.num_atoms(train), batch_size)
        self.shape = planned if planned.holds(sizes) else BatchShape.of(sizes)
        self._chosen = torch.tensor(chosen, device=self._device)

    def steps(self, engine: str, count: int) -> list[TrainingStep]:
        """Return the step of each of the first models."""
        return [
            TrainingStep(
                module,
                optimizer_for(module, self._device),
                self._resident,
                functools.partial(clip, self._clip),
                made.precision_plugin.forward_context,
                ([], []),
                engine == "compiled",
            )
            for module, _, made in self._fitted[:count]
        ]

    def inputs(self, step: TrainingStep) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what a step is given: always the same batch."""
        rates = [1e-5] * len(step.optimizer.param_groups)
        numbers = torch.tensor([len(self._chosen), 0.0, *rates], device=self._device)
        return self._chosen, numbers

    def recorded(self, steps: Sequence[TrainingStep]) -> Callable[[], Any]:
        """Return a recording of steps of several models; on a CPU they follow each other."""
        inputs = self.inputs(steps[0])
        if self._device.type == "cuda":
            pool = torch.cuda.graph_pool_handle()
            call = CapturedSteps(list(steps), [inputs] * len(steps), self.shape, pool)
            return functools.partial(call, [inputs] * len(steps), range(len(steps)))
        return lambda: [step(*inputs, self.shape) for step in steps]


def optimizer_for(module: GraphormerModule, device: torch.device) -> torch.optim.Optimizer:
    """Return a new optimiser of a module that was trained before.

    What captures steps has made the module an ordinary one again when that training ended; on a
    GPU this optimiser is to be captured.
    """
    module.capturable = device.type == "cuda"
    return module.configure_optimizers()[0][0]


def clip(most: float, optimizer: torch.optim.Optimizer) -> None:
    """Clip the gradients as the configuration does."""
    parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, most)
