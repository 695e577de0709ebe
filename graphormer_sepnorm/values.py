"""What options may be given: whole numbers and real ones, those of numpy among them."""

from __future__ import annotations

import math
from numbers import Integral, Real


def is_whole(value: object, least: float = -math.inf) -> bool:
    """Whether a value is a whole number, of at least so much; True and False are none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: object) -> bool:
    """Whether a value is a finite real number; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
