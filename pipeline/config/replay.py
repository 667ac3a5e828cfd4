"""What a replay is asked to do, frozen and validated once: cost, clock, subset, and all of it."""

import math
from dataclasses import dataclass

from pipeline.config.engine import EngineConfig
from pipeline.config.fleet import FleetConfig
from pipeline.config.routing import RoutingConfig
from pipeline.config.units import TICKS_PER_MS, check_ms
from pipeline.errors import UsageError

DEFAULT_BATCH_REQUESTS = 65_536
CLOCKS = ("arrivals", "timestamps")


@dataclass(frozen=True)
class CostModel:
    """What a token costs in ms: computed (prefill), found in the cache (lookup), or generated."""

    prefill_ms_per_token: float = 0.025
    lookup_ms_per_token: float = 0.0015
    decode_ms_per_token: float = 20.0

    def __post_init__(self) -> None:
        for name in ("prefill_ms_per_token", "lookup_ms_per_token", "decode_ms_per_token"):
            check_ms(name, getattr(self, name), at_most=1e6)


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
        check_ms("decay_ms_per_arrival", self.decay_ms_per_arrival, at_most=1e9)
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
class SubsetConfig:
    """Which of a trace's requests are replayed, and which of these are counted.

    where            a DuckDB predicate on the trace's columns; None for all
    sample           share of the sessions that is replayed, chosen by their ids
    warmup           path of a trace that is replayed before, and not reported
    warmup_fraction  share of the requests, the first, that is replayed and not counted
    """

    where: str | None = None
    sample: float = 1.0
    warmup: str | None = None
    warmup_fraction: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.sample <= 1:
            raise UsageError(f"sample is {self.sample}: give a share of the sessions, 0 < x <= 1")
        if not 0 <= self.warmup_fraction < 1:
            raise UsageError(
                f"warmup-fraction is {self.warmup_fraction}: give a share of the requests,"
                " 0 <= x < 1"
            )


@dataclass(frozen=True)
class ReplayConfig:
    """All settings of a run; together with the trace they decide every decision."""

    fleet: FleetConfig = FleetConfig()
    engine: EngineConfig = EngineConfig()
    cost: CostModel = CostModel()
    clock: ClockConfig = ClockConfig()
    subset: SubsetConfig = SubsetConfig()
    routing: RoutingConfig = RoutingConfig()
    policies: tuple[str, ...] = ("round_robin", "pure_affinity", "cache_aware")
