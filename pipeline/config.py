"""What a replay is asked to do: fleet, engine, cost and clock, frozen and validated once."""

import math
from dataclasses import dataclass

from pipeline.errors import UsageError, unknown

TICKS_PER_MS = 10_000
"""Time is kept in ticks of 0.0001 ms, the reference's rounding, so that ties are exact."""

DEFAULT_BATCH_REQUESTS = 65_536
MAX_REPLICAS = 4096
MAX_BLOCK_TOKENS = 512
CLOCKS = ("arrivals", "timestamps")
CACHE_UNITS = ("leaf", "block")
PARTIAL_BLOCKS = ("drop", "keep")
REFRESHES = ("probe", "match", "insert")
IN_FLIGHT = ("none", "pins")
WHEN_FULL = ("wait", "reject")


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
class EngineConfig:
    """How a replica's cache keeps, finds and evicts prefixes, and what a running request holds.

    name                  the preset that these settings were taken from
    cache_unit            what is evicted: `leaf`, whole leaves of the radix tree, as many as it
                          takes; `block`, exactly as many blocks as it takes, tails first
    block_tokens          tokens of a block (page); only whole blocks are found again
    own_blocks            a block trace is replayed in its own blocks instead
    partial_block         whether the last block of a prompt is kept where it is not full
    recompute_last_token  a hit leaves at least the prompt's last token to compute, and the KV of
                          the last output token is never there
    refresh               what counts as use, beside an insertion and a completion: every look-up
                          of the router (`probe`), the one on the chosen replica (`match`), which
                          touch an edge that matches in part as a whole, or none (`insert`)
    in_flight             `none`: requests come one after another; `pins`: a request's path can't
                          be evicted from its insertion until its last output token
    when_full             what happens if everything that could be evicted is pinned
    cache_output          whether prompt and output are kept when a request completes
    """

    name: str = "reference"
    cache_unit: str = "leaf"
    block_tokens: int = 1
    own_blocks: bool = False
    partial_block: str = "drop"
    recompute_last_token: bool = False
    refresh: str = "probe"
    in_flight: str = "none"
    when_full: str = "reject"
    cache_output: bool = False

    def __post_init__(self) -> None:
        for name, choices in (
            ("cache_unit", CACHE_UNITS),
            ("partial_block", PARTIAL_BLOCKS),
            ("refresh", REFRESHES),
            ("in_flight", IN_FLIGHT),
            ("when_full", WHEN_FULL),
        ):
            value, option = getattr(self, name), name.replace("_", "-")
            if value not in choices:
                raise UsageError(f"{option} is {value!r}: give one of {', '.join(choices)}")
        if not (1 <= self.block_tokens <= MAX_BLOCK_TOKENS or self.own_blocks):
            raise UsageError(
                f"block-tokens is {self.block_tokens}: give 1 to {MAX_BLOCK_TOKENS} tokens"
            )


ENGINES = {
    "reference": EngineConfig(),
    "sglang": EngineConfig(
        "sglang", own_blocks=True, recompute_last_token=True, refresh="match", when_full="wait"
    ),
    "vllm": EngineConfig(
        "vllm",
        cache_unit="block",
        block_tokens=16,
        own_blocks=True,
        recompute_last_token=True,
        refresh="insert",
        when_full="wait",
    ),
}
"""The presets of `--engine`."""


def find_engine(name: str) -> EngineConfig:
    """Return the preset of that name; UsageError, with the nearest name, if there is none."""
    if name not in ENGINES:
        raise unknown("engine", name, ENGINES)
    return ENGINES[name]


@dataclass(frozen=True)
class CostModel:
    """What a token costs in ms: computed (prefill), found in the cache (lookup), or generated."""

    prefill_ms_per_token: float = 0.025
    lookup_ms_per_token: float = 0.0015
    decode_ms_per_token: float = 20.0

    def __post_init__(self) -> None:
        for name in ("prefill_ms_per_token", "lookup_ms_per_token", "decode_ms_per_token"):
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
    policies: tuple[str, ...] = ("round_robin", "pure_affinity", "cache_aware")
