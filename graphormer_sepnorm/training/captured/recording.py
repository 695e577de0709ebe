"""One optimiser step as a function of tensors on one device, and its recording as a CUDA graph.

A step of a small model on a fast GPU is hundreds of kernels of a few microseconds each; starting
them one by one takes longer than running them. A CUDA graph starts all of them at once. It repeats
what was recorded on the same addresses, so whatever differs between steps has to come as the
content of a tensor: the numbers of the graphs, the learning rates, the decay of the average.

    B graphs of the batch · G parameter groups of the optimiser
"""

from __future__ import annotations

import functools
import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from graphormer_sepnorm.errors import ConfigError
from graphormer_sepnorm.formatting import in_a_line
from graphormer_sepnorm.graphs.resident import BatchShape, ResidentGraphs
from graphormer_sepnorm.training.module import GraphormerModule

# Libraries choose kernels and allocate workspaces in the first calls; torch's notes ask for three.
_WARM_UP = 3


class TrainingStep:
    """Forward, backward, clipping, the optimizer and the average of the weights, nothing else.

    Nothing in a call makes the host wait for the device.

    Args:
        module: Built and on its device, in training mode.
        optimizer: Of its parameters; able to be captured on a GPU (`make_optimizer`).
        graphs: The training graphs.
        clip: Clips the gradients of the optimiser's parameters, in place.
        precision: Gives the context of a forward pass, such as autocast.
        average: Averaged weights and the weights, as two lists; empty without an average.
        compiled: Whether forward and backward are compiled.

    Attributes:
        optimizer: It.
    """

    def __init__(
        self,
        module: GraphormerModule,
        optimizer: torch.optim.Optimizer,
        graphs: ResidentGraphs,
        clip: Callable[[torch.optim.Optimizer], None],
        precision: Callable[[], AbstractContextManager],
        average: tuple[list[Tensor], list[Tensor]],
        compiled: bool = False,
    ) -> None:
        self._module = module
        self.optimizer = optimizer
        self._graphs = graphs
        self._clip = clip
        self._precision = precision
        self._average, self._weights = average
        compile_it = functools.partial(torch.compile, fullgraph=True, dynamic=False)
        self._fixed_loss = compile_it(self._loss) if compiled else self._loss

    def __call__(
        self, graphs: Tensor, numbers: Tensor, shape: BatchShape, fixed: bool = True
    ) -> Tensor:
        """Take a step.

        Args:
            graphs: Numbers of the graphs, int64 ``[B]``.
            numbers: Labels that the loss is divided by, the share of the weights that enters the
                average, then the learning rate of each parameter group: ``[2 + G]``.
            shape: Of the batch.
            fixed: Whether the shape comes again, so that compiling for it is worth the time.

        Returns:
            Loss of the step, sum of the losses of its labels, number of its labels: ``[3]``.
        """
        self.optimizer.zero_grad(set_to_none=True)
        with self._precision():
            total, labels = (self._fixed_loss if fixed else self._loss)(graphs, shape)
            loss = total / numbers[0].to(total.dtype)
        loss.backward()
        self._clip(self.optimizer)
        with _rates(self.optimizer, numbers[2:]):
            self.optimizer.step()
        if self._average:
            self._move_average(numbers[1])
        return torch.stack([loss.detach(), total.detach(), labels.to(total.dtype)])

    def _loss(self, graphs: Tensor, shape: BatchShape) -> tuple[Tensor, Tensor]:
        return self._module.batch_loss(self._graphs.batch(graphs, shape))

    @torch.no_grad()
    def _move_average(self, share: Tensor) -> None:
        # A few kernels for all tensors; torch's lerp over lists knows no share on the device.
        difference = torch._foreach_sub(self._weights, self._average)  # type: ignore[attr-defined]
        torch._foreach_mul_(difference, share)  # type: ignore[attr-defined]
        torch._foreach_add_(self._average, difference)  # type: ignore[attr-defined]

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Leave weights, BatchNorm statistics, moments, average and random state as they were.

        Moments that were not there before are there afterwards, as zeros, which is where they
        start: a recording must not contain the moment in which they are made.
        """
        tensors = [*self._module.model.state_dict().values(), *self._average]
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
    """The step of a training for batches of one shape: recorded and replayed.

    Args:
        step: It is left as it is.
        inputs: For its first calls, numbers of graphs that fit the shape, ``[B]``, and the step's
            numbers, ``[2 + G]``.
        shape: The shape.
        pool: Memory pool, shared with other recordings, which never run at the same time and hand
            nothing to each other.
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
        # Whatever is freed within a recording must have been made within it.
        gc.collect()
        # Threads of data loaders may pin memory meanwhile: that is no business of this recording.
        try:
            with torch.cuda.graph(
                self._graph, pool=pool, stream=stream, capture_error_mode="thread_local"
            ):
                self._result = step(*self._inputs, shape)
        except Exception as error:
            # torch leaves its stream the current one then, and its generator in the recording: in
            # this process nothing can be trusted any more.
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
        # An error of the device is told by whoever asks for a result.
        with suppress(RuntimeError):
            torch.cuda.synchronize(self._inputs[0].device)
            self._graph.reset()


@contextmanager
def _rates(optimizer: torch.optim.Optimizer, rates: Tensor) -> Iterator[None]:
    """Let the optimiser read its learning rates from the device, for one step.

    Between steps they are the numbers that the schedule sets, so that checkpoints, logs and a
    resume by the ordinary path find what they expect.
    """
    kept = [group["lr"] for group in optimizer.param_groups]
    try:
        for group, rate in zip(optimizer.param_groups, rates.unbind(), strict=True):
            group["lr"] = rate
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, kept, strict=True):
            group["lr"] = rate
