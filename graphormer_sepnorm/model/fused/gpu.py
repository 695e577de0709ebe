"""When a Triton kernel may stand in for the plain path: where it can run, and gives the same."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from graphormer_sepnorm.kernels.library import is_switched_off

log = logging.getLogger(__name__)

# Rounding, relative to the largest number; in float32 the plain path is as far from float64.
_AGREEMENT = 1e-4

# Whose kernels run on a device at all: what the first ones that were tried there did.
_runs: dict[tuple[str, torch.device], bool] = {}


def possible(values: Tensor) -> bool:
    """Whether kernels for `values` can be tried: float32 on a GPU, Triton there, none forbidden."""
    return (
        values.is_cuda
        and values.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cuda")
        and not is_switched_off()
        and _has_triton()
    )


def on_device_of(values: Tensor) -> contextlib.AbstractContextManager[object]:
    """Make the GPU of `values` the current one, on which Triton starts its kernels."""
    return torch.cuda.device(values.device) if values.is_cuda else contextlib.nullcontext()


@functools.lru_cache(maxsize=1)
def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def agreement(who: str, device: torch.device, disagreement: Callable[[], float]) -> bool:
    """Whether kernels agree with the plain path; a line says so if they do not.

    Where the first ones cannot be run, as where nothing can be compiled, no others are tried on
    that device, whatever their size, and no further line is said.

    Args:
        who: Takes the plain path otherwise, with its verb.
        device: Whose random state stays as it is.
        disagreement: Gives the largest relative difference between both, with gradients.
    """
    if not _runs.get((who, device), True):
        return False
    try:
        with (
            torch.random.fork_rng([device] if device.type == "cuda" else []),
            torch.inference_mode(False),
            torch.enable_grad(),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")  # what a compiler says of itself
            error = disagreement()
    except Exception as problem:  # a compiler has many ways to fail
        reason = f"{type(problem).__name__}: {str(problem).strip().splitlines()[:1]}"
        if not isinstance(problem, torch.OutOfMemoryError):  # that may pass
            # After others have run there, it is the size of these.
            _runs.setdefault((who, device), False)
    else:
        _runs[who, device] = True
        if error < _AGREEMENT:
            return True
        reason = f"it differs from the plain path by {error:.1e}"
    log.warning("%s the plain path, not the fused kernel: %s", who, reason)
    return False


def largest_difference(found: Iterable[Tensor], truth: Iterable[Tensor]) -> float:
    """Of tensors and what they should be: the largest difference relative to the largest number."""
    errors = [
        (one.double() - other).abs().max() / other.abs().max().clamp(min=1e-30)
        for one, other in zip(found, truth, strict=True)
    ]
    return float(torch.stack(errors).detach().max())
