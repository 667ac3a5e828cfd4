"""Rules that the router of the oracle goes by, and random fleets for it."""

from collections.abc import Callable, Sequence
from dataclasses import astuple
from random import Random
from typing import Any, NamedTuple

from engine_oracle import Model
from router_views import CLOSE, OPEN, WIPE, ReplicaView, RequestView

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


def witness(_request: RequestView, replica: ReplicaView) -> int:
    """Return something of all that there is to see."""
    return sum(astuple(replica)) % 7


class RuleCase(NamedTuple):
    """Makes a rule with a memory of its own; and whether it goes by a look-up."""

    rule: Callable[[], Rule]
    looks_up: bool


_BY_LEAST = {
    "longest_match": lambda _, r: -r.matched_tokens,
    "cache_aware": lambda _, r: r.ttft_ticks,
    "latest_match": lambda _, r: (-r.matched_tokens, -r.matched_seq),
    "least_prefill": lambda q, r: r.prefill_tokens + q.prompt_tokens - r.matched_tokens,
    "mixed": mixed,
    "witness": witness,
}
_BY_LEAST_LOAD = {
    "least_in_flight": lambda _, r: r.in_flight,
    "least_active": lambda _, r: r.active_tokens - r.active_matched_tokens,
    "least_queue": lambda _, r: r.queue_ticks,
}
RULES = {
    "round_robin": RuleCase(round_robin, looks_up=False),
    "pure_affinity": RuleCase(lambda: pure_affinity, looks_up=True),
    **{
        name: RuleCase(lambda s=score: by_least(s), looks_up=True)
        for name, score in _BY_LEAST.items()
    },
    **{
        name: RuleCase(lambda s=score: by_least(s), looks_up=False)
        for name, score in _BY_LEAST_LOAD.items()
    },
}
"""The rules by name; round_robin, pure_affinity and cache_aware are the reference's policies."""


def random_routing(rng: Random, requests: int, model: Model) -> dict[str, Any]:
    """Return what `router_oracle.replay` asks for beside the requests, the rule and the prices.

    Times are often equal: absences begin and end at ticks at which requests come or complete.
    """
    gap, unit = rng.choice((0, 500, 10_000)), rng.choice((1, 500, 10_000))
    steps = [
        rng.choice((0, 500, rng.randint(0, 30_000) // unit * unit, gap)) for _ in range(requests)
    ]
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
            ("exact",),
            ("lag", rng.choice((0, gap, rng.randint(0, 60_000)))),
            ("routed", 0, None),
            (
                "routed",
                rng.choice((0, 10**6, rng.randint(1, 40) * block, 3 * block)),
                rng.choice((None, gap or 1, rng.randint(1, 60_000))),
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
    late = (0, 0, 0, -1, 7_777, rng.randint(1, 12) * 10_000)
    start, end = sorted(rng.choice(clock) + rng.choice(late) for _ in range(2))
    kind = rng.choice(("warm", "cold", "crash"))
    changes = [(start, CLOSE), *[(start, WIPE)] * (kind == "crash")]
    if rng.random() < 0.8:
        changes += [*[(end, WIPE)] * (kind == "cold"), (end, OPEN)]
    return [(tick, replica, what) for tick, what in changes]
