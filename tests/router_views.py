"""What the router of the oracle sees of a request and of replicas, now or in the past."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import engine_oracle
from cache_oracle import BlockCache, Cache, LeafCache, Path, Sequenced, common
from engine_oracle import Request

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


def expire(memory: LeafCache, is_old: Callable[[int], bool]) -> int:
    """Drop leaves whose last user is too old, and what becomes such a leaf; return how many."""
    before = len(memory.edges)
    while old := [
        edge for edge in memory.edges if is_old(edge.stamp.seq) and not memory._has_children(edge)
    ]:
        memory.edges = [edge for edge in memory.edges if edge not in old]
    return before - len(memory.edges)
