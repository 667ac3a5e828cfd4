"""What a replay is asked to do: fleet, cost and clock, frozen and validated once."""

import math
from dataclasses import dataclass

from pipeline.errors import UsageError

TICKS_PER_MS = 10_000
"""Time is kept in ticks of 0.0001 ms, the reference's rounding, so that ties are exact."""

DEFAULT_BATCH_REQUESTS = 65_536
MAX_REPLICAS = 4096
CLOCKS = ("arrivals", "timestamps")


def _check_ms(name: str, value: float, *, at_most: float) -> None:
    if not (math.isfinite(value) and 0 <= value <= at_most):
        option = name.replace("_", "-")
        raise UsageError(f"{option} is {value}: give a number of ms from 0 to {at_most:g}")


@dataclass(frozen=True)
class FleetConfig:
    """How many replicas there are and how many tokens of KV each one keeps."""

    replicas: int = 4
    capacity_tokens: int = 262_144

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= MAX_REPLICAS:
            raise UsageError(f"replicas is {self.replicas}: give 1 to {MAX_REPLICAS}")
        if not 1 <= self.capacity_tokens < 2**62:
            raise UsageError(
                f"capacity-tokens is {self.capacity_tokens}: give at least 1 token a replica"
            )


@dataclass(frozen=True)
class CostModel:
    """What a token costs in ms: computed (prefill), or found in the cache (lookup)."""

    prefill_ms_per_token: float = 0.025
    lookup_ms_per_token: float = 0.0015

    def __post_init__(self) -> None:
        for name in ("prefill_ms_per_token", "lookup_ms_per_token"):
            _check_ms(name, getattr(self, name), at_most=1e6)


@dataclass(frozen=True)
class ClockConfig:
    """How queues drain between two requests.

    `arrivals`: by `decay_ms_per_arrival` with every request, as in the reference; `timestamps`:
    by the time that passed between the arrivals. None chooses timestamps for a trace whose
    arrivals differ.
    """

    clock: str | None = None
    decay_ms_per_arrival: float = 12.0

    def __post_init__(self) -> None:
        if self.clock not in (None, *CLOCKS):
            raise UsageError(f"clock is {self.clock!r}: give one of {', '.join(CLOCKS)}")
        _check_ms("decay_ms_per_arrival", self.decay_ms_per_arrival, at_most=1e9)
        ticks = self.decay_ms_per_arrival * TICKS_PER_MS
        if not math.isclose(ticks, round(ticks), rel_tol=0, abs_tol=1e-6):
            raise UsageError(
                f"decay-ms-per-arrival is {self.decay_ms_per_arrival}:"
                " give a multiple of 0.0001 ms, the unit in which queues are kept"
            )

    @property
    def decay_ticks(self) -> int:
        """The drain per arrival in ticks."""
        return round(self.decay_ms_per_arrival * TICKS_PER_MS)


@dataclass(frozen=True)
class ReplayConfig:
    """All settings of a run; together with the trace they decide every decision.

    With `probe_refreshes_recency`, as in the reference, every look-up touches what it finds: on
    all replicas that the policy scores, and on the chosen one. Without it only an insertion does.
    """

    fleet: FleetConfig = FleetConfig()
    cost: CostModel = CostModel()
    clock: ClockConfig = ClockConfig()
    probe_refreshes_recency: bool = True
    policies: tuple[str, ...] = ("round_robin", "pure_affinity", "cache_aware")
