"""The unit of time, and the check of a time in ms."""

import math

from pipeline.errors import UsageError

TICKS_PER_MS = 10_000
"""Time is kept in ticks of 0.0001 ms, the reference's rounding, so that ties are exact."""


def check_ms(name: str, value: float, *, at_most: float) -> None:
    """Raise UsageError unless a setting is a number of ms from 0 to `at_most`."""
    if not (math.isfinite(value) and 0 <= value <= at_most):
        option = name.replace("_", "-")
        raise UsageError(f"{option} is {value}: give a number of ms from 0 to {at_most:g}")
