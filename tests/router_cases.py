"""What the router of the oracle sees, rules that go by it, and random runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, NamedTuple

import engine_oracle
from cache_oracle import BlockCache, Cache, LeafCache, Path, Sequenced, common
from engine_oracle import Model, Request

CLOSE, WIPE, OPEN = range(3)


@dataclass(frozen=True)
class RequestView:
    """The request at hand as a rule sees it."""

    seq: int
    prompt_tokens: int
    first_token_id: int
    clock_ticks: int
    block_tokens: int


@dataclass(frozen=True)
class ReplicaView:
    """A replica as a rule sees it; the three numbers of a look-up are None without one."""

    replica_id: int
    queue_ticks: int
    matched_tokens: int | None
    matched_seq: int | None
    exec_ticks: int | None
    resident_tokens: int
    capacity_tokens: int
    requests: int
    queued_requests: int
    running_requests: int
    prefill_tokens: int
    active_tokens: int
    active_matched_tokens: int

    @property
    def ttft_ticks(self) -> int:
        return self.queue_ticks + self.exec_ticks

    @property
    def in_flight(self) -> int:
        return self.queued_requests + self.running_requests


@dataclass(frozen=True)
class Flight(engine_oracle.Flight):
    """A request that was served, when its prefill ends, and how many tokens that computes."""

    filled: int
    computed: int


class Moment(NamedTuple):
    """What the replicas held and did right after an event of that tick."""

    tick: float
    caches: list[Cache]
    queue_ends: list[int]
    flights: list[Flight]
    served: list[int]

    def kept(self) -> "Moment":
        """Return the same, which stays as it is when the replicas change."""
        caches = [copied(cache) for cache in self.caches]
        return Moment(self.tick, caches, *map(list, self[2:]))

    def loads(
        self, replica: int, now: int, prompt: Sequenced, requests: Sequence[Request]
    ) -> dict[str, int]:
        """Return a replica's queue and counts of requests at a tick that is not before this."""
        here = [one for one in self.flights if one.replica == replica and one.end > now]
        prompts = [requests[one.seq].prompt for one in here]
        return {
            "queue_ticks": max(0, self.queue_ends[replica] - now),
            "requests": self.served[replica],
            "queued_requests": sum(one.start > now for one in here),
            "running_requests": sum(one.start <= now for one in here),
            "prefill_tokens": sum(one.computed for one in here if one.filled > now),
            "active_tokens": sum(
                len(one) - longest_common(prompts[:at], one) for at, one in enumerate(prompts)
            ),
            "active_matched_tokens": longest_common(prompts, prompt),
        }


def longest_common(others: Sequence[Sequenced], prompt: Sequenced) -> int:
    """Return the length of the longest prefix that a prompt shares with one of the others."""
    return max((common(other, prompt) for other in others), default=0)


def copied(cache: Cache) -> Cache:
    """Return a cache that stays as it is when this one changes."""
    if isinstance(cache, BlockCache):
        return replace(cache, pins=list(cache.pins), stamps=dict(cache.stamps))
    return replace(cache, pins=list(cache.pins), edges=[replace(edge) for edge in cache.edges])


def last_user(cache: Cache, key: Path) -> int:
    """Name the request that was the last to use the deepest edge of a match, -1 without one."""
    if isinstance(cache, BlockCache):
        matched = cache.resident(key)
        return cache.stamps[key[:matched]].seq if matched else -1
    entered = [edge for edge in cache.edges if common(edge.path, key) > edge.start]
    return max(entered, key=lambda edge: edge.start).stamp.seq if entered else -1


def expire(memory: LeafCache, is_old: Callable[[int], bool]) -> None:
    """Drop leaves whose last user is too old, and what becomes such a leaf by that."""
    while old := [
        edge for edge in memory.edges if is_old(edge.stamp.seq) and not memory._has_children(edge)
    ]:
        memory.edges = [edge for edge in memory.edges if edge not in old]


Views = Sequence[ReplicaView]
Rule = Callable[[RequestView, Views], int]


def by_least(score: Callable[[RequestView, ReplicaView], Any]) -> Rule:
    """Return the rule that takes the replica with the least score, the first of equals."""

    def rule(request: RequestView, replicas: Views) -> int:
        scores = [score(request, replica) for replica in replicas]
        return scores.index(min(scores))

    return rule


def round_robin() -> Rule:
    """Return a rule that takes the places in turn; its cursor moves when it is asked."""
    turns = 0

    def rule(_request: RequestView, replicas: Views) -> int:
        nonlocal turns
        turns += 1
        return (turns - 1) % len(replicas)

    return rule


def pure_affinity(request: RequestView, replicas: Views) -> int:
    matches = [replica.matched_tokens for replica in replicas]
    if max(matches) == 0:
        return request.first_token_id % len(replicas)
    return matches.index(max(matches))


def mixed(request: RequestView, replica: ReplicaView) -> int:
    """Return a bit of everything, in integers."""
    uncached = request.prompt_tokens - replica.matched_tokens
    fullness = 64 * replica.resident_tokens // replica.capacity_tokens
    loads = 3 * replica.queued_requests + 2 * replica.running_requests + replica.prefill_tokens
    return replica.ttft_ticks // 1000 + 5 * uncached + fullness + 2 * loads + replica.requests


class Case(NamedTuple):
    """Makes a rule with a memory of its own; and whether it goes by a look-up."""

    rule: Callable[[], Rule]
    looks_up: bool


_BY_LEAST = {
    "longest_match": lambda _, r: -r.matched_tokens,
    "cache_aware": lambda _, r: r.ttft_ticks,
    "latest_match": lambda _, r: (-r.matched_tokens, -r.matched_seq),
    "least_prefill": lambda q, r: r.prefill_tokens + q.prompt_tokens - r.matched_tokens,
    "mixed": mixed,
}
_BY_LEAST_LOAD = {
    "least_in_flight": lambda _, r: r.in_flight,
    "least_active": lambda _, r: r.active_tokens - r.active_matched_tokens,
    "least_queue": lambda _, r: r.queue_ticks,
}
RULES = {
    "round_robin": Case(round_robin, looks_up=False),
    "pure_affinity": Case(lambda: pure_affinity, looks_up=True),
    **{name: Case(lambda s=score: by_least(s), looks_up=True) for name, score in _BY_LEAST.items()},
    **{
        name: Case(lambda s=score: by_least(s), looks_up=False)
        for name, score in _BY_LEAST_LOAD.items()
    },
}
"""The rules by name; the first, second and fourth are the reference's policies."""


def random_routing(rng: Random, requests: int, model: Model) -> dict[str, Any]:
    """Return what `router_oracle.replay` asks for beside the requests, the rule and the prices.

    Times are often equal: absences begin and end at ticks at which requests come.
    """
    gap = rng.choice((0, 500, 10_000))
    steps = [rng.choice((0, 500, rng.randint(0, 30_000), gap)) for _ in range(requests)]
    clock = [sum(steps[: seq + 1]) for seq in range(requests)]
    size = rng.randint(1, 4)
    block, speeds = model.block_tokens, rng.choice(((1.0,), (1.0, 2.0), (0.5, 1.0, 3.0)))
    fleet = [
        (max(block, rng.randint(4, 40) * rng.choice((1, block))), rng.choice(speeds))
        for _ in range(size)
    ]
    view = rng.choice(
        (
            ("exact",),
            ("lag", rng.choice((0, gap, rng.randint(0, 60_000)))),
            ("routed", 0, None),
            (
                "routed",
                rng.choice((0, 10**6, rng.randint(4, 60) * block)),
                rng.choice((None, gap, rng.randint(0, 60_000))),
            ),
        )
    )
    changes = [
        change
        for _ in range(rng.choice((0, 0, 1, 2, 5)))
        for change in random_absence(rng, clock, rng.randrange(size))
    ]
    changes.sort(key=lambda change: change[0])
    return {"replicas": fleet, "model": model, "view": view, "changes": changes, "clock": clock}


def random_absence(rng: Random, clock: Sequence[int], replica: int) -> list[tuple[int, int, int]]:
    """Return the changes of a drain, after which the cache is warm or cold, or of a crash."""
    start, end = sorted(rng.choice(clock) + rng.choice((0, 0, 0, -1, 7_777)) for _ in range(2))
    kind = rng.choice(("warm", "cold", "crash"))
    changes = [(start, CLOSE), *[(start, WIPE)] * (kind == "crash")]
    if rng.random() < 0.8:
        changes += [*[(end, WIPE)] * (kind == "cold"), (end, OPEN)]
    return [(tick, replica, what) for tick, what in changes]
