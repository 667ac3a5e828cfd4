"""A trace served by the obvious fleet behind a router: what became of each request, and the rest.

Times are ticks of 0.0001 ms.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import engine_oracle
from cache_oracle import BlockCache, LeafCache
from engine_oracle import CacheState, Model, Request, _named
from router_cases import Rule
from router_fleet import NOBODY, Decision, RoutedFleet, prices_at
from router_views import ReplicaView

IDLE = -(2**62)
"""When the queue of a replica that never had one became empty."""


@dataclass(frozen=True)
class Eviction(engine_oracle.Eviction):
    """One leaf or one block that left; for nobody (None) where the cause is a restart."""

    for_seq: int | None
    cause: str = "room"


@dataclass
class OracleRun:
    """A run; `seen` and `chosen` are the rule's, for each request, None where it was not asked.

    `failed` has, by seq, what the decision of a request would have been had it not failed, and
    `forgotten` is the fleet's.
    """

    decisions: list[Decision]
    evictions: list[Eviction]
    caches: list[CacheState]
    seen: list[list[ReplicaView] | None]
    chosen: list[int | None]
    failed: dict[int, Decision]
    forgotten: Counter[str]


def replay(  # noqa: PLR0913 - one keyword a knob of the rules, all but the trace by name
    requests: Sequence[Request],
    *,
    rule: Rule,
    looks_up: bool,
    replicas: Sequence[tuple[int, float]],
    model: Model,
    view: tuple = ("exact",),
    changes: Sequence[tuple[int, int, int]] = (),
    clock: Sequence[int],
    prefill_ms_per_token: float = 0.025,
    lookup_ms_per_token: float = 0.0015,
    decode_ms_per_token: float = 20.0,
    to_the_end: bool = True,
) -> OracleRun:
    """Serve a trace: one decision a request, which comes at its tick of `clock`.

    `replicas` are (capacity_tokens, speed). `view` is ("exact",), ("lag", ticks) or ("routed",
    capacity_tokens, ttl_ticks or None). `changes` are (ticks, replica, CLOSE, WIPE or OPEN).
    Without `to_the_end` all is left as the last request finds it, itself served.
    """
    block, kind = model.block_tokens, BlockCache if model.cache_unit == "block" else LeafCache
    if model.cache_unit == "block" and model.refresh != "insert":
        raise NotImplementedError("blocks that a look-up touches in runs are left to the engine")
    prices = (prefill_ms_per_token, lookup_ms_per_token, decode_ms_per_token)
    remembered = view[1] if view[0] == "routed" else 0
    fleet = RoutedFleet(
        requests,
        model,
        "",
        prices,
        caches=[kind(capacity // block) for capacity, _ in replicas],
        queue_ends=[IDLE] * len(replicas),
        rule=rule,
        looks_up=looks_up,
        view=view,
        clock=clock,
        capacities=[capacity for capacity, _ in replicas],
        prices=[prices_at(speed, prices) for _, speed in replicas],
        changes=sorted(changes, key=lambda change: change[0]),
        away=[0] * len(replicas),
        served=[0] * len(replicas),
        memories=[LeafCache((remembered or capacity) // block) for capacity, _ in replicas],
        seen=[None] * len(requests),
        chosen=[None] * len(requests),
    )
    fleet.remember(-math.inf)
    decisions = []
    for seq, request in enumerate(requests):
        fleet.now = clock[seq]
        fleet.pass_until(fleet.now, latest=seq - 1)
        if request.tokens:
            decisions.append(fleet.route(seq))
        else:
            decisions.append(Decision(seq, "rejected_empty", None, 0))
        fleet.remember(fleet.now)
    if to_the_end:
        fleet.pass_until(math.inf, latest=len(requests) - 1)
    states = [
        CacheState(set(map(_named, cache.paths())), cache.pinned, cache.held, cache.evictable)
        for cache in fleet.caches
    ]
    evictions = [_caused(row) for row in fleet.evictions]
    return OracleRun(
        decisions, evictions, states, fleet.seen, fleet.chosen, fleet.failed, fleet.forgotten
    )


def _caused(row: engine_oracle.Eviction) -> Eviction:
    told = asdict(row)
    if row.for_seq == NOBODY:
        told |= {"for_seq": None, "cause": "restart"}
    return Eviction(**told)
