"""Training on one GPU as replays of a CUDA graph that holds a whole step.

A step of a small model on a fast GPU is hundreds of kernels of a few microseconds each; starting
them one by one takes longer than running them. A CUDA graph starts all of them at once. It repeats
what was recorded on the same addresses, so whatever differs between steps has to come as the
content of a tensor: the indices of the graphs, the learning rates, the decay of the average.

The order of training, its seeds, schedule and checkpoints are those of the ordinary path; either
can continue what the other began. What it cannot do falls back to the ordinary path.

    B graphs of the batch · G parameter groups of the optimizer
"""

from __future__ import annotations

import functools
import gc
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch import Tensor

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.formatting import in_a_line
from graphormer_sepnorm.graphs.resident import BatchShape, ResidentGraphs, plan_shape
from graphormer_sepnorm.graphs.store import GraphStore
from graphormer_sepnorm.graphs.vocabulary import GraphVocabulary
from graphormer_sepnorm.model.graphormer import Graphormer
from graphormer_sepnorm.training.averaging import AveragedWeights

if TYPE_CHECKING:
    from graphormer_sepnorm.training.module import GraphormerModule

log = logging.getLogger(__name__)

# Libraries choose kernels and allocate workspaces in the first calls; torch's notes ask for three.
_WARM_UP = 3


def sent(tensor: Tensor, device: torch.device | str) -> Tensor:
    """Return a tensor of the host on `device`, without waiting for a GPU to end its work."""
    if torch.device(device).type == "cuda" and not tensor.is_cuda:
        tensor = tensor.pin_memory()  # from ordinary memory a copy would wait
    return tensor.to(device, non_blocking=True)


@dataclass(eq=False)
class TrainingStep:
    """Forward, backward, clipping, optimizer and average; the host never waits for the device.

    Attributes:
        module: Built and on its device, in training mode.
        optimizer: Of its parameters; able to be captured on a GPU (`make_optimizer`).
        graphs: The training graphs.
        clip: Clips the gradients of the optimizer's parameters, in place.
        precision: Gives the context of a forward pass, such as autocast.
        average: Averaged weights and the weights, as two lists; empty without an average.
        compiled: Whether forward and backward are compiled.
    """

    module: GraphormerModule
    optimizer: torch.optim.Optimizer
    graphs: ResidentGraphs
    clip: Callable[[torch.optim.Optimizer], None]
    precision: Callable[[], AbstractContextManager]
    average: tuple[list[Tensor], list[Tensor]]
    compiled: bool = False

    def __post_init__(self) -> None:
        compile_it = functools.partial(torch.compile, fullgraph=True, dynamic=False)
        self._fixed_loss = compile_it(self._loss) if self.compiled else self._loss

    def __call__(
        self, graphs: Tensor, numbers: Tensor, shape: BatchShape, fixed: bool = True
    ) -> Tensor:
        """Take a step; return its loss, the sum of the losses of its labels, their number: ``[3]``.

        Args:
            graphs: Indices of the graphs, int64 ``[B]``.
            numbers: Labels that the loss is divided by, the share of the weights that enters the
                average, then the learning rate of each parameter group: ``[2 + G]``.
            shape: Of the batch.
            fixed: Whether the shape comes again, so that compiling for it is worth the time.
        """
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision():
            total, labels = (self._fixed_loss if fixed else self._loss)(graphs, shape)
            loss = total / numbers[0].to(total.dtype)
        loss.backward()
        self.clip(self.optimizer)
        # The optimizer reads its learning rates from the device, in this step alone.
        groups = self.optimizer.param_groups
        stored = [group["lr"] for group in groups]
        try:
            for group, rate in zip(groups, numbers[2:].unbind(), strict=True):
                group["lr"] = rate
            self.optimizer.step()
        finally:
            for group, rate in zip(groups, stored, strict=True):
                group["lr"] = rate
        average, weights = self.average
        if average:
            with torch.no_grad():
                # torch's lerp over lists knows no share on the device.
                difference = torch._foreach_sub(weights, average)  # type: ignore[attr-defined]
                torch._foreach_mul_(difference, numbers[1])  # type: ignore[attr-defined]
                torch._foreach_add_(average, difference)  # type: ignore[attr-defined]
        return torch.stack([loss.detach(), total.detach(), labels.to(total.dtype)])

    def _loss(self, graphs: Tensor, shape: BatchShape) -> tuple[Tensor, Tensor]:
        batch, module = self.graphs.batch(graphs, shape), self.module
        return module.summed_loss(module.model(batch), batch.targets, batch.weights, batch.bounds)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Leave weights, BatchNorm statistics, moments, average and random state as they were.

        Moments that were not there before are there afterwards, as zeros, which is where they
        start: a recording must not contain their creation.
        """
        tensors = [*self.module.model.state_dict().values(), *self.average[0]]
        values = [tensor.clone() for tensor in tensors]
        states = self.optimizer.state
        moments = {
            parameter: {name: value.clone() for name, value in state.items()}
            for parameter, state in states.items()
        }
        devices = {tensor.device for tensor in tensors if tensor.is_cuda}
        try:
            with torch.random.fork_rng(devices):
                yield
        finally:
            with torch.no_grad():
                for tensor, value in zip(tensors, values, strict=True):
                    tensor.copy_(value)
                for parameter, state in states.items():
                    before = moments.get(parameter, {})
                    for name, value in state.items():
                        value.copy_(before.get(name, torch.zeros_like(value)))


class CapturedStep:
    """The step for batches of one shape, recorded and replayed.

    The recordings of a training share a memory pool: they never run at the same time.
    """

    def __init__(
        self, step: TrainingStep, inputs: tuple[Tensor, Tensor], shape: BatchShape, pool: Any
    ) -> None:
        self._inputs = (inputs[0].clone(), inputs[1].clone())
        self._graph = torch.cuda.CUDAGraph()
        stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
        with warnings.catch_warnings():
            # These calls are the reason why a capturable optimizer runs uncaptured.
            warnings.filterwarnings("ignore", ".*capturable=True")
            stream.wait_stream(current)
            with torch.cuda.stream(stream), step.undone():
                for _ in range(_WARM_UP):
                    step(*self._inputs, shape)
            current.wait_stream(stream)
        # Gradients are made within the recording, in its own memory.
        step.optimizer.zero_grad(set_to_none=True)
        gc.collect()  # whatever is freed within a recording must have been made within it
        # Threads of data loaders may pin memory meanwhile: that is no business of this recording.
        try:
            with torch.cuda.graph(
                self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"
            ):
                self._result = step(*self._inputs, shape)
        except Exception as error:
            # torch's stream and generator stay in the recording: this process is lost.
            raise ConfigError(
                f"the training step cannot be recorded ({type(error).__name__}: "
                f"{in_a_line(str(error))[:200]}): give --engine eager"
            ) from error

    def __call__(self, inputs: tuple[Tensor, Tensor], seed: int) -> Tensor:
        """Take a step whose dropout is seeded; the result ``[3]`` is overwritten by the next."""
        for kept, value in zip(self._inputs, inputs, strict=True):
            kept.copy_(value)
        torch.manual_seed(seed)  # a replay draws from the seed that the generator has now
        self._graph.replay()
        return self._result

    def end(self) -> None:
        """Free the recording, when the device has taken the steps that it was asked for."""
        with suppress(RuntimeError):  # an error of the device is reported with a result
            torch.cuda.synchronize(self._inputs[0].device)
            self._graph.reset()


def resident_graphs(
    store: GraphStore, vocabulary: GraphVocabulary, model: Graphormer
) -> ResidentGraphs:
    """The graphs of a store on the device of a model, with all that it needs."""
    device = next(model.parameters()).device
    ways = None if model.paths is None else model.paths.ways
    rings = "rings" in model.config.local_mpnn
    return ResidentGraphs(store, vocabulary, device, ways, ring_pairs=rings)


class CapturedTraining(Callback):
    """Lets a trainer take captured steps; warns in one line where it cannot.

    Args:
        compiled: Whether forward and backward are compiled before they are captured.
        on_cpu: Take such steps on a CPU too, where nothing is captured: for tests.

    Attributes:
        steps: Steps taken.
        misfits: Steps whose batch did not fit the planned shape and so was not captured.
    """

    def __init__(self, compiled: bool = False, on_cpu: bool = False) -> None:
        self._is_compiled = compiled
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
        """Take over the steps, before Lightning makes loader and optimizer."""
        if stage != "fit":
            return
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        reason = self._why_not(trainer, pl_module, data)
        if reason:
            log.warning("--engine is not for %s: training takes the ordinary path", reason)
            return
        self._trainer = trainer
        data.numbers_only = True
        pl_module.captured = self

    def _why_not(self, trainer: Trainer, module: GraphormerModule, data: Any) -> str | None:
        device = trainer.strategy.root_device
        reasons = {
            f"a {device.type.upper()}, only for a CUDA GPU": device.type != "cuda"
            and not self._on_cpu,
            "several devices": trainer.world_size > 1,
            "accumulated gradients": trainer.accumulate_grad_batches > 1,
            f"precision {trainer.precision}": trainer.precision not in ("32-true", "bf16-mixed"),
            "the uniformity loss": module.hparams["uniformity_weight"],
            "a share of the labels": module.hparams["label_fraction"] != 1,
        }
        if device.type == "cuda":
            config = module.architecture
            ways, rings = "paths" in config.encodings, "rings" in config.local_mpnn
            needed = ResidentGraphs.needed_bytes(data.store, ways=ways, ring_pairs=rings)
            free, _ = torch.cuda.mem_get_info(device)
            size = f"a data set of {needed / 1e9:.1f} GB with {free / 1e9:.1f} GB free"
            reasons[size] = needed > free / 2
        return next((reason for reason, holds in reasons.items() if holds), None)

    def _shape(self, indices: np.ndarray) -> BatchShape:
        """The planned shape if these graphs fit it, or else one of their own."""
        data = self._trainer.datamodule
        count, sizes = len(indices), data.store.num_atoms(indices)
        if count not in self._planned:
            train = data.store.num_atoms(data.indices("train"))
            self._planned[count] = plan_shape(train, count)
        planned = self._planned[count]
        return planned if planned.holds(sizes) else BatchShape.of(sizes)

    def _make_step(self) -> TrainingStep:
        """Bring the data set to the device; now the model, its optimizer and its average exist."""
        trainer, module = self._trainer, self._trainer.lightning_module
        callbacks = (one for one in trainer.callbacks if isinstance(one, AveragedWeights))
        self._average = next(callbacks, None)
        how = GradClipAlgorithmType(trainer.gradient_clip_algorithm or "norm")

        def clip(optimizer: torch.optim.Optimizer) -> None:
            # The plugin for bf16 would refuse a fused optimizer, which could unscale gradients;
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

    def take_step(self, indices: np.ndarray, batch_idx: int) -> Tensor:
        """Take the step of a batch of these graphs; return what `TrainingStep` does."""
        trainer, module = self._trainer, self._trainer.lightning_module
        step = self._step = self._step or self._make_step()
        if module.statistics_fixed != self._fixed:
            self._forget_recordings()
            self._fixed = module.statistics_fixed
        taken = trainer.global_step + 1
        share = 1 - self._average.decay_at(taken) if self._average else 0.0
        rates = [group["lr"] for group in step.optimizer.param_groups]
        device, on_gpu = module.device, module.device.type == "cuda"
        # The fused AdamW of a GPU reads float32; on a CPU rates stay what the schedule gives.
        precision = torch.float32 if on_gpu else torch.float64
        numbers = torch.tensor([module.labels_of_step(batch_idx), share, *rates], dtype=precision)
        inputs = sent(torch.from_numpy(indices), device), sent(numbers, device)
        shape, seed = self._shape(indices), module.dropout_seed(batch_idx)
        planned = self._planned[shape.graphs] == shape
        if planned and on_gpu:
            if shape not in self._recordings:
                self._pool = self._pool or torch.cuda.graph_pool_handle()
                self._recordings[shape] = CapturedStep(step, inputs, shape, self._pool)
            result = self._recordings[shape](inputs, seed).clone()
        else:
            torch.manual_seed(seed)
            result = step(*inputs, shape, fixed=planned)
        self.steps += 1
        self.misfits += not planned
        if self._average:
            self._average.took(taken)
        return result

    def _forget_recordings(self) -> None:
        """Forget all recordings: a step no longer does what was recorded, or its training ends.

        The workspaces of matrix products are not theirs: Lightning frees them with every training
        that begins or ends, newer releases of torch with every recording (pytorch issue 193402).
        """
        for recording in self._recordings.values():
            recording.end()
        self._recordings.clear()
        # Memory of recordings that are gone is not to be taken for new ones.
        self._pool = None

    def on_exception(self, trainer: Trainer, pl_module: Any, exception: BaseException) -> None:
        """End as `teardown`, which Lightning does not call then: others may train on."""
        self.teardown(trainer, pl_module, "fit")

    def teardown(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        """Free the memory of the device, and let model and data take ordinary steps again."""
        if self._trainer is None:
            return
        if self.misfits:
            what = "%d of %d batches did not fit their planned shape and were not captured"
            log.warning(what, self.misfits, self.steps)
        trainer.datamodule.numbers_only = False  # type: ignore[attr-defined]
        pl_module.captured = None
        self._forget_recordings()
        self._step = self._trainer = None
        self._planned.clear()
