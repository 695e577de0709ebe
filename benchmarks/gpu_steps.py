"""Short trainings with the options of `benchmarks.gpu`, and single steps of what they trained."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.graphs.resident import BatchShape, plan_shape
from graphormer_sepnorm.training.cuda_graphs import (
    CapturedStep,
    CapturedTraining,
    TrainingStep,
    resident_graphs,
)
from graphormer_sepnorm.training.module import GraphormerModule
from graphormer_sepnorm.training.optimizer import make_optimizer

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
    """A model that has taken a step, and what it takes its next ones with.

    Args:
        options: Of the command.
        batch_size: Of the steps.
    """

    def __init__(self, options: argparse.Namespace, batch_size: int) -> None:
        self._device, self._clip = options.device, options.clip
        capturing = CapturedTraining(on_cpu=True)
        self._module, data, self._made = fitted(options, batch_size, capturing, max_steps=1)
        self._module.to(self._device).train()
        self._resident = resident_graphs(data.store, self._module.vocabulary, self._module.model)
        # Random training graphs, and a shape that holds them.
        train = data.indices("train")
        chosen = np.random.default_rng(0).choice(train, batch_size, replace=False)
        sizes = data.store.num_atoms(chosen)
        planned = plan_shape(data.store.num_atoms(train), batch_size)
        self.shape = planned if planned.holds(sizes) else BatchShape.of(sizes)
        self._chosen = torch.tensor(chosen, device=self._device)

    def step(self, engine: str) -> TrainingStep:
        """Return the step of the model."""
        return TrainingStep(
            self._module,
            optimizer_for(self._module, self._device),
            self._resident,
            functools.partial(clip, self._clip),
            self._made.precision_plugin.forward_context,
            ([], []),
            engine == "compiled",
        )

    def inputs(self, step: TrainingStep) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what a step is given: always the same batch."""
        rates = [1e-5] * len(step.optimizer.param_groups)
        numbers = torch.tensor([len(self._chosen), 0.0, *rates], device=self._device)
        return self._chosen, numbers

    def recorded(self, step: TrainingStep) -> Callable[[], Any]:
        """Return a recording of a step; on a CPU it is the step."""
        inputs = self.inputs(step)
        if self._device.type == "cuda":
            pool = torch.cuda.graph_pool_handle()
            return functools.partial(CapturedStep(step, inputs, self.shape, pool), inputs, 0)
        return lambda: step(*inputs, self.shape)


def optimizer_for(module: GraphormerModule, device: torch.device) -> torch.optim.Optimizer:
    """Return a new optimizer of a module that was trained before; on a GPU it can be captured."""
    return make_optimizer(module.model, module.options, capturable=device.type == "cuda")


def clip(most: float, optimizer: torch.optim.Optimizer) -> None:
    """Clip the gradients as the configuration does."""
    parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
    torch.nn.utils.clip_grad_norm_(parameters, most)
