"""Training on one GPU as replays of a CUDA graph, several steps for one turn of Lightning's loop.

The order of training, its seeds, schedule and checkpoints are those of the ordinary path; either
can continue what the other began. What it cannot do falls back to the ordinary path.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch import Tensor

from graphormer_sepnorm.datasets.data_module import MoleculeDataModule
from graphormer_sepnorm.graphs.resident import BatchShape, ResidentGraphs, plan_shape
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.training.callbacks.averaging import AveragedWeights
from graphormer_sepnorm.training.captured.launch_loop import Launch, LaunchLoop, sent
from graphormer_sepnorm.training.captured.recording import CapturedStep, TrainingStep
from graphormer_sepnorm.training.module import GraphormerModule

log = logging.getLogger(__name__)

_STEPS_PER_LAUNCH = 32


def resident_graphs(
    store: GraphStore, vocabulary: GraphVocabulary, model: Graphormer
) -> ResidentGraphs:
    """The graphs of a store on the device of a model, with all that it needs."""
    device = next(model.parameters()).device
    ways = None if model.paths is None else model.paths.ways
    rings = "rings" in model.config.local_mpnn
    return ResidentGraphs(store, vocabulary, device, ways, ring_pairs=rings)


class CapturedTraining(Callback):
    """Lets a trainer take captured steps; says in one line why, where it cannot.

    Args:
        compiled: Whether forward and backward are compiled before they are captured.
        steps_per_launch: Steps for one turn of Lightning's loop, at most.
        on_cpu: Train in launches on a CPU too. Nothing is captured there and nothing gained: it is
            for tests.

    Attributes:
        steps: Steps taken.
        misfits: Steps whose batch did not fit the planned shape and so was not captured.
    """

    def __init__(
        self,
        compiled: bool = False,
        steps_per_launch: int = _STEPS_PER_LAUNCH,
        on_cpu: bool = False,
    ) -> None:
        self._is_compiled = compiled
        self._steps_per_launch = steps_per_launch
        self._on_cpu = on_cpu
        self._planned: dict[int, BatchShape] = {}
        self._recordings: dict[BatchShape, CapturedStep] = {}
        self._pool: Any = None
        self._step: TrainingStep | None = None
        self._average: AveragedWeights | None = None
        self._trainer: Any = None
        self._fixed = False
        self.steps = self.misfits = 0

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Put the loop of launches in its place, before Lightning makes loader and optimiser."""
        if stage != "fit":
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        reason = self._why_not(trainer, pl_module, data)
        if reason:
            log.warning("--engine is not for %s: training takes the ordinary path", reason)
            return
        self._trainer = trainer
        loop = trainer.fit_loop.epoch_loop
        if not isinstance(loop, LaunchLoop):
            loop = LaunchLoop(loop, self._steps_per_launch, self._launch)
            trainer.fit_loop.epoch_loop = loop
        loop.launching = True
        data.numbers_only = True
        pl_module.capturable = trainer.strategy.root_device.type == "cuda"
        pl_module.train_launch = self._train

    def _why_not(
        self, trainer: Trainer, module: GraphormerModule, data: MoleculeDataModule
    ) -> str | None:
        device = trainer.strategy.root_device
        if device.type != "cuda" and not self._on_cpu:
            return f"a {device.type.upper()}, only for a CUDA GPU"
        if trainer.world_size > 1:
            return "several devices"
        if trainer.accumulate_grad_batches > 1:
            return "accumulated gradients"
        if trainer.precision not in ("32-true", "bf16-mixed"):
            return f"precision {trainer.precision}"
        if module.hparams["uniformity_weight"]:
            return "the uniformity loss"
        if module.hparams["label_fraction"] != 1:
            return "a share of the labels"
        config = module.architecture
        if device.type == "cuda":
            needed = ResidentGraphs.needed_bytes(
                data.store,
                ways="paths" in config.encodings,
                ring_pairs="rings" in config.local_mpnn,
            )
            free, _ = torch.cuda.mem_get_info(device)
            if needed > free / 2:
                return f"a data set of {needed / 1e9:.1f} GB with {free / 1e9:.1f} GB free"
        return None

    def _launch(self, batches: Sequence[np.ndarray]) -> Launch:
        """Collate the batches of some steps: numbers of their graphs, and their shapes."""
        data = self._trainer.datamodule
        shapes = []
        for numbers in batches:
            if len(numbers) not in self._planned:
                train = data.store.num_atoms(data.indices("train"))
                self._planned[len(numbers)] = plan_shape(train, len(numbers))
            sizes = data.store.num_atoms(numbers)
            planned = self._planned[len(numbers)]
            shapes.append(planned if planned.holds(sizes) else BatchShape.of(sizes))
        return Launch(torch.from_numpy(np.concatenate(batches)), tuple(shapes))

    def _make_step(self) -> TrainingStep:
        """Bring the data set to the device; now the model, its optimiser and its average exist."""
        trainer = self._trainer
        module = trainer.lightning_module
        averages = (one for one in trainer.callbacks if isinstance(one, AveragedWeights))
        self._average = next(averages, None)
        how = GradClipAlgorithmType(trainer.gradient_clip_algorithm or "norm")

        def clip(optimizer: torch.optim.Optimizer) -> None:
            # The plugin for bf16 would refuse a fused optimiser, which could unscale gradients;
            # here nothing is scaled.
            Precision().clip_gradients(optimizer, trainer.gradient_clip_val or 0.0, how)

        return TrainingStep(
            module,
            trainer.optimizers[0],
            resident_graphs(trainer.datamodule.store, module.vocabulary, module.model),
            clip,
            trainer.precision_plugin.forward_context,
            self._average.pairs if self._average else ([], []),
            self._is_compiled,
        )

    def _train(self, launch: Launch, batch_idx: int) -> Tensor:
        """Take the steps of a launch that ends with this batch; results ``[steps, 3]``."""
        module = self._trainer.lightning_module
        self._step = self._step or self._make_step()
        first = batch_idx - len(launch.shapes) + 1
        numbers = sent(self._numbers(first, len(launch.shapes)), launch.graphs.device)
        if module.statistics_fixed != self._fixed:
            self._forget_recordings()
            self._fixed = module.statistics_fixed
        graphs = launch.graphs.split([shape.graphs for shape in launch.shapes])
        results = []
        for place, shape in enumerate(launch.shapes):
            planned = self._planned[shape.graphs] == shape
            self.misfits += not planned
            inputs, seed = (graphs[place], numbers[place]), module.dropout_seed(first + place)
            if planned and inputs[0].is_cuda:
                results.append(self._recording(inputs, shape)(inputs, seed).clone())
            else:
                torch.manual_seed(seed)
                results.append(self._step(*inputs, shape, fixed=planned))
        self.steps += len(results)
        if self._average:
            self._average.took(self._trainer.global_step + len(results))
        return torch.stack(results)

    def _recording(self, inputs: tuple[Tensor, Tensor], shape: BatchShape) -> CapturedStep:
        """The recording of a shape, made where there is none."""
        if shape not in self._recordings:
            assert self._step is not None
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            self._recordings[shape] = CapturedStep(self._step, inputs, shape, self._pool)
        return self._recordings[shape]

    def _forget_recordings(self) -> None:
        """Forget all recordings: a step no longer does what was recorded, or its training ends.

        They are made again when they are asked for. For a recording does not own all of the memory
        that it uses: what matrix products work in, its first calls have allocated, and Lightning
        frees it in the whole process with every training that begins or ends (`CUDAAccelerator`),
        newer releases of torch with every recording that had the same stream (pytorch issue
        193402).
        """
        for recording in self._recordings.values():
            recording.end()
        self._recordings.clear()
        # Memory of recordings that are gone is not to be taken for new ones.
        self._pool = None

    def _numbers(self, first: int, steps: int) -> Tensor:
        """What differs between steps, from the first batch on, besides it: ``[steps, 2 + G]``."""
        module = self._trainer.lightning_module
        schedule = self._trainer.lr_scheduler_configs[0].scheduler
        rows = []
        for place in range(steps):
            step = self._trainer.global_step + place + 1
            rates = [
                base * factor(schedule.last_epoch + place)
                for base, factor in zip(schedule.base_lrs, schedule.lr_lambdas, strict=True)
            ]
            share = 1 - self._average.decay_at(step) if self._average else 0.0
            rows.append([module.labels_of_step(first + place), share, *rates])
        # The fused AdamW of a GPU reads float32; on a CPU rates stay what the schedule gives.
        on_gpu = module.device.type == "cuda"
        return torch.tensor(rows, dtype=torch.float32 if on_gpu else torch.float64)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Say how many batches did not fit."""
        if self.misfits:
            log.warning(
                "%d of %d batches did not fit their planned shape and were not captured",
                self.misfits,
                self.steps,
            )

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """Free the recordings, since Lightning calls no `teardown` then: others may train on."""
        self._forget_recordings()
        self._step = None

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Free the memory of the device, and let model and data take ordinary steps again."""
        if self._trainer is None:
            return
        trainer.datamodule.numbers_only = False  # type: ignore[attr-defined]
        pl_module.train_launch = None
        pl_module.capturable = False
        assert isinstance(trainer.fit_loop.epoch_loop, LaunchLoop)
        trainer.fit_loop.epoch_loop.launching = False
        self._forget_recordings()
        self._step = None
        self._planned.clear()
        self._trainer = None
