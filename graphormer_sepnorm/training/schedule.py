"""The learning rate as one pure function of the step: warm-up, then linear or cosine decay.

Pure means that nothing has to be restored on resume but the number of the step.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

ScheduleName = Literal["linear", "cosine"]
SCHEDULES: tuple[ScheduleName, ...] = get_args(ScheduleName)


def warmup_in_steps(warmup: int | float, total_steps: int) -> int:
    """Return the warm-up as a number of steps; a value below 1 is a fraction of `total_steps`."""
    return round(warmup * total_steps) if warmup < 1 else int(warmup)


def learning_rate_at(
    step: int,
    *,
    total_steps: int,
    warmup_steps: int,
    peak: float,
    final: float,
    schedule: ScheduleName,
) -> float:
    """Learning rate of optimiser step `step` (counted from 0).

    The warm-up rises linearly and reaches `peak` with its last step, as in Graphormer version 1:
    step 0 already learns. From there the rate falls to `final`, which step `total_steps - 1` all
    but reaches and every later step has.

    Args:
        step: Optimiser steps taken before this one.
        total_steps: Length of the whole training, in optimiser steps.
        warmup_steps: Length of the warm-up, in optimiser steps.
        peak: Highest learning rate.
        final: Learning rate at the end of training.
        schedule: ``linear`` or ``cosine`` (half a period).
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - warmup_steps))
    remaining = 1 - progress if schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return final + (peak - final) * remaining
