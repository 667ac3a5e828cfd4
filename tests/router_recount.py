"""What a fleet counts of its requests in flight and its absences, counted again."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from router_views import CLOSE, OPEN, WIPE

from pipeline.replay.fleet import FLIGHTS, Fleet
from pipeline.replay.records import NEVER_TICKS

NONE = -1


def in_the_air(fleet: Fleet, replica: int) -> NDArray[Any]:
    """Return the records.FLIGHT of a replica, those that completed ahead of the clock, too."""
    state, flights = fleet.replicas[replica], fleet.flights
    numbers, waiting = [], [int(state["flying"])]
    while waiting:
        if (number := waiting.pop()) != NONE:
            numbers.append(number)
            waiting += [int(flights["child"][number]), int(flights["sibling"][number])]
    number = int(state["first_ahead"])
    while number != NONE:
        numbers.append(number)
        number = int(flights["after"][number])
    assert len(set(numbers)) == len(numbers)
    return flights[numbers]


def check_loads(fleet: Fleet, now: int, newest: int) -> None:
    """Recount requests queued and running, and tokens to prefill.

    The `newest` request is queued, whatever is due.
    """
    total = 0
    for replica, state in enumerate(fleet.replicas):
        here = in_the_air(fleet, replica)
        total += len(here)
        fresh = here["seq"] == newest
        queued = (here["start_ticks"] > now) | fresh
        assert (here["key"][~fresh] > now).all()
        assert state["queued_requests"] == queued.sum()
        assert state["running_requests"] == len(here) - queued.sum()
        filling = (here["filled_ticks"] > now) | fresh
        assert state["prefill_tokens"] == here["computed_tokens"][filling].sum()
    assert total == fleet.pools["used"][FLIGHTS] - fleet.pools["free"][FLIGHTS]


def _path(fleet: Fleet, node: int) -> Iterator[int]:
    while node > 0:
        yield node
        node = int(fleet.tokens["parent"][node])


def check_active(fleet: Fleet) -> None:
    """Recount active tokens, their bits, and where paths of requests in flight come together."""
    active, shared = np.zeros_like(fleet.active), {}
    for replica, state in enumerate(fleet.replicas):
        ends = [int(fleet.ends["last_token"][seq]) for seq in in_the_air(fleet, replica)["seq"]]
        nodes = {node for end in ends for node in _path(fleet, end)}
        lengths = [
            fleet.tokens["end"][node] - fleet.tokens["end"][fleet.tokens["parent"][node]]
            for node in nodes
        ]
        assert state["active_tokens"] == sum(lengths)
        for node in nodes:
            active[node, replica // 64] |= np.uint64(1) << np.uint64(replica % 64)
        met = Counter(ends) + Counter(int(fleet.tokens["parent"][node]) for node in nodes)
        counts = {node * len(fleet.replicas) + replica: count for node, count in met.items()}
        shared |= {key: n for key, n in counts.items() if n > 1 and key >= len(fleet.replicas)}
    np.testing.assert_array_equal(fleet.active, active)
    slots = fleet.shared[fleet.shared["key"] != NONE]
    assert dict(zip(slots["key"].tolist(), slots["value"].tolist(), strict=True)) == shared


def check_absences(fleet: Fleet, changes: Sequence[tuple[int, int, int]], now: int) -> None:
    """Recount who is away, and when each replica loses what it does next."""
    past = [change for change in changes if change[0] <= now]
    for replica, state in enumerate(fleet.replicas):
        mine = Counter(what for _, r, what in past if r == replica)
        assert state["away"] == mine[CLOSE] - mine[OPEN]
        wipes = [t for t, r, what in changes if (r, what) == (replica, WIPE) and t > now]
        assert state["lost_at_ticks"] == min(wipes, default=NEVER_TICKS)
    assert fleet.clock["away"][0] == (fleet.replicas["away"] > 0).sum()
    assert fleet.clock["next_change"][0] == len(past)


def check_nothing_is_left(fleet: Fleet) -> None:
    """See that no request is in flight, and that nothing is counted of one."""
    counts = ("queued_requests", "running_requests", "prefill_tokens", "active_tokens")
    for name in (*counts, "pinned_blocks", "held_blocks"):
        assert not fleet.replicas[name].any()
    for name in ("flying", "first_waiting", "first_unfilled", "first_ahead"):
        assert (fleet.replicas[name] == NONE).all()
    assert not fleet.active.any()
    assert (fleet.shared["key"] == NONE).all()
    assert fleet.pools["used"][FLIGHTS] == fleet.pools["free"][FLIGHTS]
