"""What routers see of the replicas, and how they choose where a policy leaves it open."""

import math
from dataclasses import dataclass

from pipeline.errors import UsageError

VIEWS = ("exact", "lag", "routed")
TIES = ("lowest", "random", "rotate")
MAX_SEED = 2**63 - 1
MAX_SEEDS = 1000
_MOST_MS = 1e9


@dataclass(frozen=True)
class RouterView:
    """What a router knows of its replicas.

    kind     `exact`: what they hold and do; `lag`: the same, but late; `routed`: their load, and
             of their caches only what it sent where, whatever they evicted since
    lag_ms   how late, for `lag`
    """

    kind: str
    lag_ms: float = 0.0

    def __str__(self) -> str:
        return f"lag:{self.lag_ms:g}" if self.kind == "lag" else self.kind


def find_view(text: str) -> RouterView:
    """Read exact, lag:MS or routed; UsageError for anything else."""
    kind, colon, given = text.partition(":")
    if kind == "lag" and colon:
        try:
            lag_ms = float(given)
        except ValueError:
            lag_ms = math.nan
        if 0 <= lag_ms <= _MOST_MS:
            return RouterView(kind, lag_ms)
        raise UsageError(f"router-view is {text!r}: give lag:MS, for example lag:50")
    if kind in ("exact", "routed") and not colon:
        return RouterView(kind)
    raise UsageError(f"router-view is {text!r}: give exact, lag:MS or routed")


@dataclass(frozen=True)
class RoutingConfig:
    """Settings of all policies alike; None leaves it to each policy.

    router_view             exact, lag:MS or routed
    router_capacity_tokens  what a router remembers of a replica, for routed; 0: as much as that
                            keeps
    router_ttl_ms           how long it remembers what it did not route again, for routed
    tie                     lowest, random or rotate, where a policy leaves a tie open
    seed                    what random choices are made of
    seeds                   so many seeds, from this one on, for policies that choose at random
    """

    router_view: str | None = None
    router_capacity_tokens: int | None = None
    router_ttl_ms: float | None = None
    tie: str | None = None
    seed: int = 0
    seeds: int = 1

    def __post_init__(self) -> None:
        if self.router_view is not None:
            find_view(self.router_view)
        capacity, ttl_ms = self.router_capacity_tokens, self.router_ttl_ms
        if capacity is not None and not 0 <= capacity < 2**62:
            raise UsageError(
                f"router-capacity-tokens is {capacity}: give how many tokens of a replica a router"
                " remembers, or 0 for as many as the replica keeps"
            )
        if ttl_ms is not None and not 0 < ttl_ms <= _MOST_MS:
            raise UsageError(
                f"router-ttl-ms is {ttl_ms}: give a number of ms, more than 0 and at most"
                f" {_MOST_MS:g}"
            )
        if self.tie is not None and self.tie not in TIES:
            raise UsageError(f"tie is {self.tie!r}: give one of {', '.join(TIES)}")
        if not 0 <= self.seed <= MAX_SEED:
            raise UsageError(f"seed is {self.seed}: give 0 to {MAX_SEED}")
        if not 1 <= self.seeds <= min(MAX_SEEDS, MAX_SEED - self.seed + 1):
            raise UsageError(f"seeds is {self.seeds}: give 1 to {MAX_SEEDS}")
