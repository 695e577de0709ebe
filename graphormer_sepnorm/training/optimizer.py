"""The optimizer, AdamW alone or with Muon, and its learning rate.

Muon trains the matrices inside the layers, AdamW everything else. Jordan et al. 2024, "Muon: An
optimizer for hidden layers in neural networks": the update of a matrix is its momentum with all
singular values moved to about 1, so that no direction is drowned by a few large ones. Liu et al.
2025, "Muon is Scalable for LLM Training": scaled to the size that AdamW's updates have, it takes
AdamW's learning rate and weight decay.

`torch.optim.Muon` computes the same (`tests/training/test_muon.py`), one matrix after another,
in bfloat16 even where that is slow, and without learning rates on the device, which recorded steps
need. Here all matrices of one shape go together.

The rate is a pure function of the step: on resume nothing has to be restored but its number.

    N matrices of one shape · [A, B] that shape
"""

from __future__ import annotations

import ctypes
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from graphormer_sepnorm.config import ModelConfig
from graphormer_sepnorm.kernels.library import integers, pointers
from graphormer_sepnorm.model.ops import in_threads, products_usable

if TYPE_CHECKING:
    from lightning.pytorch import Trainer

    from graphormer_sepnorm.model.graphormer import Graphormer

log = logging.getLogger(__name__)

# Of the odd polynomial a s + b s³ + c s⁵ (Jordan et al.): its iteration brings singular values from
# (0, 1] to between 0.7 and 1.2 in few steps, fast rather than exact.
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
_MOMENTUM = 0.95
# Matrices that a thread takes at a time.
_SHARE = 4
# Larger matrices do not stay in the cache, and torch's products are made for them.
_MOST_ELEMENTS = 1 << 16
# Of a matrix's norm: five iterations, each of which multiplies small values by 3.4445 at most, do
# not bring less to what float32 shows.
_NOTHING = 1e-15
# Root mean square of an AdamW update, in units of the learning rate (Liu et al., Section 2.2).
_ADAMW_SIZE = 0.2


def parameter_groups(model: Graphormer, options: ModelConfig) -> list[dict[str, Any]]:
    """Split the trained parameters into groups with weight decay and without, and for Muon.

    Decayed are all, or the weight ``matrices`` of linear layers. Then not decayed are

    * biases and the scales of norms: pulling a scale to 0 weakens a channel whatever the data say;
    * embedding tables and the graph token: a row gets a gradient only when its code occurs, but
      AdamW would shrink it at every step, so rare atoms, bonds and distances would fade.

    Muon is for matrices from hidden features to hidden features: those of the layers go into groups
    of their own, with ``muon`` True.
    """
    muon = options.optimizer == "muon"
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    linear = {id(part.weight) for part in model.modules() if isinstance(part, nn.Linear)}
    hidden = linear & {id(parameter) for parameter in model.layers.parameters()} if muon else set()
    everything = options.weight_decay_on == "all"
    groups = []
    for name, decays in (("decay", True), ("no decay", False)):
        every = [one for one in trained if (everything or id(one) in linear) == decays]
        decay = {"weight_decay": options.weight_decay if decays else 0.0}
        others = [parameter for parameter in every if id(parameter) not in hidden]
        of_muon = [parameter for parameter in every if id(parameter) in hidden]
        groups.append({"name": name, "params": others, **decay, "muon": False})
        if of_muon:
            groups.append({"name": f"{name}, Muon", "params": of_muon, **decay, "muon": True})
    return groups


def make_optimizer(
    model: Graphormer, options: ModelConfig, *, capturable: bool = False, mixed: bool = False
) -> torch.optim.Optimizer:
    """Return AdamW or `MuonAdamW` over the `parameter_groups` of `model`.

    With `capturable` a step can be recorded in a CUDA graph. With `mixed` the trainer's precision
    is: it then refuses to clip the gradients of a fused optimizer, which could unscale them itself.
    """
    # Fused it is several times faster. Where that cannot be had torch is left to choose: told not
    # to fuse, it takes one parameter after the other on a GPU too.
    devices = {parameter.device.type for parameter in model.parameters()}
    fused = capturable or (devices <= {"cpu", "cuda"} and not mixed) or None
    return (MuonAdamW if options.optimizer == "muon" else torch.optim.AdamW)(
        parameter_groups(model, options),
        lr=options.learning_rate,
        betas=(options.betas[0], options.betas[1]),
        eps=options.eps,
        capturable=capturable,
        fused=fused,
    )


def renew_options(
    optimizer: torch.optim.Optimizer, schedule: LambdaLR, options: list[dict[str, Any]]
) -> None:
    """Give optimizer and schedule, as a checkpoint has restored them, the options of this run.

    Those are of each parameter group, all but ``params``. The counts of steps go to the device
    where this optimizer expects them: the one that wrote the checkpoint may have been another.
    """
    schedule.base_lrs = [group["lr"] for group in options]
    for group, own, factor in zip(
        optimizer.param_groups, options, schedule.lr_lambdas, strict=True
    ):
        rate = own["lr"] * factor(schedule.last_epoch)
        group.update({**own, "initial_lr": own["lr"], "lr": rate})
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            if "step" in state:
                on_device = group["capturable"] or group["fused"]
                device = parameter.device if on_device else torch.device("cpu")
                state["step"] = state["step"].to(device)


def make_schedule(
    optimizer: torch.optim.Optimizer, options: ModelConfig, total_steps: int
) -> LambdaLR:
    """Return the schedule of an optimizer whose learning rate is the peak.

    The warm-up rises linearly and reaches the peak with its last step, as in Graphormer version 1:
    the first step already learns. From there the rate falls, linearly or by half a period of a
    cosine, to the final one, which the last step all but reaches and every later one has. A
    warm-up below 1 is a fraction of all steps.
    """
    warmup, peak, final = options.warmup_steps, options.learning_rate, options.final_learning_rate
    warmup_steps = round(warmup * total_steps) if warmup < 1 else int(warmup)
    if warmup_steps > total_steps:
        what = "--model.warmup_steps %d is longer than the training of %d steps: the peak learning "
        log.warning(what + "rate is not reached", warmup_steps, total_steps)

    def factor(step: int) -> float:
        """Learning rate of a step, counted from 0, in units of the peak."""
        if step < warmup_steps:
            return peak * (step + 1) / warmup_steps / peak
        progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
        cosine = (1 + math.cos(math.pi * progress)) / 2
        left = 1 - progress if options.schedule == "linear" else cosine
        return (final + (peak - final) * left) / peak

    return LambdaLR(optimizer, factor)


def rate_of_step(trainer: Trainer) -> float:
    """Return the learning rate that the last step had; the optimizer has that of the next one."""
    schedule: Any = trainer.lr_scheduler_configs[0].scheduler
    return float(schedule.base_lrs[0] * schedule.lr_lambdas[0](schedule.last_epoch - 1))


class MuonAdamW(torch.optim.Optimizer):
    """Trains the groups with ``muon: True``, all of them matrices, by Muon, the others by AdamW.

    Muon with Nesterov's momentum, 0.95. It needs no correction of its first steps: the size of the
    momentum does not matter to the update. Options are those of `torch.optim.AdamW`; learning rate
    and weight decay act on Muon's groups too.
    """

    def __init__(self, groups: list[dict[str, Any]], **options: Any) -> None:
        self._adamw = torch.optim.AdamW(groups, **options)
        super().__init__(groups, self._adamw.defaults)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Take a step; `closure`, if given, computes the gradients first and gives the result."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            if group["muon"]:
                self._orthogonal_step(group)
        # Groups and state may have been read from a checkpoint since the last step.
        self._adamw.param_groups = [group for group in self.param_groups if not group["muon"]]
        self._adamw.state = self.state
        self._adamw.step()
        return loss

    @torch.no_grad()
    def _orthogonal_step(self, group: dict[str, Any]) -> None:
        alike: dict[torch.Size, list[Tensor]] = {}
        for parameter in group["params"]:
            if parameter.grad is not None:
                alike.setdefault(parameter.shape, []).append(parameter)
        for shape, parameters in alike.items():
            # Lists of tensors take a few kernels on a GPU where a loop takes a few for each tensor.
            gradients: list[Any] = [parameter.grad for parameter in parameters]
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter]["momentum"] = torch.zeros_like(parameter)
            momenta = [self.state[parameter]["momentum"] for parameter in parameters]
            torch._foreach_lerp_(momenta, gradients, 1 - _MOMENTUM)  # type: ignore[attr-defined]
            # Nesterov's look ahead.
            ahead = torch._foreach_lerp(gradients, momenta, _MOMENTUM)  # type: ignore[attr-defined]
            update = orthogonalised(torch.stack(ahead))
            update *= _ADAMW_SIZE * max(shape) ** 0.5 * group["lr"]
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])  # type: ignore[attr-defined]
            torch._foreach_sub_(parameters, update.unbind())  # type: ignore[attr-defined]


def orthogonalised(matrices: Tensor) -> Tensor:
    """Move the singular values of matrices ``[N, A, B]`` to about 1, by Newton-Schulz iteration."""
    wide = matrices if matrices.shape[1] <= matrices.shape[2] else matrices.mT
    # The Frobenius norm is at least the largest singular value.
    wide = wide / wide.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    # The momentum of a unit that has died fades to numbers whose products are denormal, and
    # Intel's processors take many times as long for these: half of a training step.
    wide = wide.masked_fill(wide.abs() < _NOTHING, 0)
    if products_usable(wide) and wide[0].numel() <= _MOST_ELEMENTS:
        wide = newton_schulz_in_c(wide)
    else:
        a, b, c = _POLYNOMIAL
        for _ in range(_ITERATIONS):
            square = wide @ wide.mT
            wide = torch.baddbmm(
                wide, torch.baddbmm(square, square, square, beta=b, alpha=c), wide, beta=a
            )
    return wide if matrices.shape[1] <= matrices.shape[2] else wide.mT


class _NewtonSchulz(ctypes.Structure):
    """``NewtonSchulz`` of kernels/newton_schulz.c."""

    _fields_ = (
        *pointers("matrices"),
        *integers("rows", "columns", "iterations"),
        *((name, ctypes.c_float) for name in "abc"),
    )


def newton_schulz_in_c(matrices: Tensor) -> Tensor:
    """Iterate on ``[N, A, B]``, A at most B, by kernels/newton_schulz.c; see `orthogonalised`."""
    result = matrices.clone(memory_format=torch.contiguous_format)
    arguments = _NewtonSchulz(result.data_ptr(), *result.shape[1:], _ITERATIONS, *_POLYNOMIAL)
    in_threads("newton_schulz", arguments, len(result), _SHARE)
    return result
