"""What a call, a training or a step takes on a device: seconds, bytes, kernels."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import Callback, Trainer
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def synchronise(device: torch.device) -> None:
    """Wait until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_per_call(call: Callable[[], Any], device: torch.device, least: float) -> float:
    """Mean time of a call, over at least so many seconds, after warming up."""
    for _ in range(3):
        call()
    synchronise(device)
    calls, began = 0, time.perf_counter()
    while time.perf_counter() - began < least:
        for _ in range(10):
            call()
        synchronise(device)
        calls += 10
    return (time.perf_counter() - began) / calls


class Clock(Callback):
    """Times the steps of a training after its first ones, then stops it."""

    def __init__(self, skip: int, seconds: float) -> None:
        self._skip, self._seconds = skip, seconds
        self._began = 0.0
        self._first = 0
        self.result: dict[str, float] = {}

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        """Look at the clock after a turn of the loop."""
        if trainer.global_step < self._skip:
            return
        now = time.perf_counter()
        if not self._began:
            synchronise(module.device)
            self._first, self._began = trainer.global_step, time.perf_counter()
        elif now - self._began > self._seconds:
            synchronise(module.device)
            steps = trainer.global_step - self._first
            self.result = {
                "steps": steps,
                "steps_per_s": steps / (time.perf_counter() - self._began),
            }
            trainer.should_stop = True


class Traffic(TorchDispatchMode):
    """Adds up the bytes that operators read and write, were nothing of it in a cache."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator and add its tensors; one that returns a view moves nothing."""
        result = func(*args, **(kwargs or {}))
        if not func.is_view:
            tensors = tree_leaves((args, kwargs, result))
            self.bytes += sum(part.nbytes for part in tensors if isinstance(part, torch.Tensor))
        return result


def kernels(call: Callable[[], Any], device: torch.device) -> tuple[Counter[str], Counter[str]]:
    """Kernels and copies that a call starts on a GPU, operators on a CPU: µs and calls of each."""
    kind = device.type.upper()
    activity = getattr(torch.profiler.ProfilerActivity, kind)
    call()
    synchronise(device)
    # One cycle has no earlier events to lose, of which torch 2.11 warns without acc_events.
    with torch.profiler.profile(activities=[activity], acc_events=True) as profile:
        call()
        synchronise(device)
    times: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for event in profile.events() or []:
        if event.device_type.name == kind:
            own = event.device_time_total if kind == "CUDA" else event.self_cpu_time_total
            times[event.name[:100]] += own
            calls[event.name[:100]] += 1
    return times, calls
