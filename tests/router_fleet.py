"""The obvious fleet behind a router that sees it its own way; replicas differ, come and go."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

import engine_oracle
from cache_oracle import Cache, Evicted, LeafCache, Sequenced, size
from engine_oracle import TICKS_PER_MS, Fleet
from router_views import (
    CLOSE,
    OPEN,
    WIPE,
    Flight,
    Moment,
    ReplicaView,
    RequestView,
    expire,
    last_user,
)

NOBODY = -1
"""For whom a restart evicts."""

Prices = tuple[float, float, float]


@dataclass
class Decision(engine_oracle.Decision):
    """What became of one request; all but the first four are None unless it was served."""

    believed_matched_tokens: int | None = None
    best_replica_id: int | None = None
    regret_ticks: int | None = None


def prices_at(speed: float, prices: Prices) -> Prices:
    """Return prefill, lookup and decode in ms a token at a replica of that speed."""
    prefill, lookup, decode = prices
    return prefill / speed, lookup / speed, decode / speed


@dataclass(kw_only=True)
class RoutedFleet(Fleet):
    """Replicas that differ, are away at times, and are seen by a router in its own way.

    `costs` are those of the replica at hand, and `changes` those still to come. `choice` is the
    chosen replica as the rule saw it, the same in truth, and in truth the best one. `forgotten`
    counts what the router's own memories dropped or never had, by the reason.
    """

    rule: Callable[[RequestView, Sequence[ReplicaView]], int]
    looks_up: bool
    view: tuple
    clock: Sequence[int]
    capacities: list[int]
    prices: list[Prices]
    changes: list[tuple[int, int, int]]
    away: list[int]
    served: list[int]
    memories: list[LeafCache]
    moments: list[Moment] = field(default_factory=list)
    seen: list[list[ReplicaView] | None] = field(default_factory=list)
    chosen: list[int | None] = field(default_factory=list)
    failed: dict[int, Decision] = field(default_factory=dict)
    choice: tuple[ReplicaView, ...] = ()
    forgotten: Counter[str] = field(default_factory=Counter)

    def pass_until(self, now: float, latest: int) -> None:
        """Let completions and changes happen in order of time, completions first."""
        while True:
            flight = min(self.in_flight, key=lambda one: (one.end, one.seq), default=None)
            tick, replica, what = self.changes[0] if self.changes else (math.inf, -1, OPEN)
            if flight and flight.end <= min(now, tick):
                self.complete(flight, latest)
                self.remember(flight.end)
            elif self.changes and tick <= now:
                del self.changes[0]
                self.change(tick, replica, what, latest)
                self.remember(tick)
            else:
                return

    def change(self, tick: int, replica: int, what: int, latest: int) -> None:
        """Let a replica go away, come back, or lose all that it holds and does."""
        if what != WIPE:
            self.away[replica] += 1 if what == CLOSE else -1
            return
        self.flights = [one for one in self.flights if one.replica != replica]
        self.in_flight = [one for one in self.in_flight if one.replica != replica]
        self.queue_ends[replica] = min(self.queue_ends[replica], tick)
        self.memories[replica].edges.clear()
        cache, lost = self.caches[replica], list[Evicted]()
        cache.pins.clear()
        cache.held = 0
        while cache.blocks():
            lost.append(cache.evict(()))
        self.write_evictions(lost, latest, engine_oracle.Flight(NOBODY, replica, tick, tick))

    @property
    def present(self) -> Moment:
        return Moment(self.now, self.caches, self.queue_ends, self.flights, self.served)

    def remember(self, tick: float) -> None:
        """Keep what there is after an event, for a router that is late."""
        if self.view[0] == "lag":
            self.moments.append(self.present._replace(tick=tick).kept())

    def past(self, then: float) -> Moment:
        """Return what there was at a time, after all that happened at it."""
        return [moment for moment in self.moments if moment.tick <= then][-1]

    def see(
        self, prompt: Sequenced, moment: Moment, now: int, caches: Sequence[Cache]
    ) -> list[ReplicaView]:
        """Return the replicas that take requests: loads of a moment, and what caches hold."""
        views, key = [], self.model.key(prompt)
        for r, cache in enumerate(caches):
            if self.away[r]:
                continue
            matched = size(key[: cache.resident(key)])
            self.costs = self.prices[r]
            view = ReplicaView(
                replica_id=r,
                matched_tokens=matched,
                matched_seq=last_user(cache, key),
                exec_ticks=self.exec_ticks(len(prompt), matched),
                resident_tokens=cache.resident_tokens,
                capacity_tokens=self.capacities[r],
                **moment.loads(r, now, prompt, self.requests),
            )
            views.append(view)
        return views

    def what_is_seen(self, prompt: Sequenced) -> list[ReplicaView]:
        """Return the replicas as the router sees them."""
        if self.view[0] == "lag":
            then = self.now - self.view[1]
            past = self.past(then)
            return self.see(prompt, past, then, past.caches)
        if self.view[0] == "exact":
            return self.see(prompt, self.present, self.now, self.caches)
        for memory in self.memories:
            self.forgotten["old"] += expire(memory, self.is_old)
        return self.see(prompt, self.present, self.now, self.memories)

    def is_old(self, seq: int) -> bool:
        """Say whether the router forgets what it sent with a request and not since."""
        _, _, ttl = self.view
        return ttl is not None and self.clock[seq] <= self.now - ttl

    @property
    def looks_touch(self) -> bool:
        """Whether a look of the router is a use of what it finds, on every replica."""
        return self.looks_up and self.model.refresh == "probe" and self.view[0] != "routed"

    def choose(self, prompt: Sequenced, seq: int) -> int:
        """Name the replica that the rule sends this prompt to; looking may be a use."""
        truths = self.see(prompt, self.present, self.now, self.caches)
        truth = {one.replica_id: one for one in truths}
        seen = self.what_is_seen(prompt)
        if not self.looks_up:
            unknown = {"matched_tokens": None, "matched_seq": None, "exec_ticks": None}
            seen = [replace(one, **unknown) for one in seen]
        if self.looks_touch:
            for cache in self.caches:
                cache.touch(self.model.key(prompt), seq)

        request = RequestView(seq, len(prompt), prompt[0][1], self.now, self.model.block_tokens)
        there = seen[self.rule(request, seen)]
        chosen = there.replica_id
        self.seen[seq], self.chosen[seq] = seen, chosen
        self.choice = (there, truth[chosen], self.best(prompt, truths))
        self.costs = self.prices[chosen]
        return chosen

    def best(self, prompt: Sequenced, truths: Sequence[ReplicaView]) -> ReplicaView | None:
        """Return the first of those with the least TTFT among the replicas that could serve it."""
        needed = self.model.blocks(prompt)
        fit = [one for one in truths if needed <= self.caches[one.replica_id].capacity]
        return min(fit, key=lambda one: (one.ttft_ticks, one.replica_id), default=None)

    def route(self, seq: int) -> Decision:
        """Serve, lose or reject one prompt that has tokens."""
        prompt = self.requests[seq].prompt
        if all(self.away):
            return Decision(seq, "rejected_no_replica", None, len(prompt))
        decision = Decision(**asdict(super().route(seq)))
        if decision.outcome != "served":
            return decision
        seen, truth, best = self.choice
        decision.queued_requests = truth.queued_requests
        decision.running_requests = truth.running_requests
        decision.believed_matched_tokens = seen.matched_tokens
        decision.best_replica_id = best.replica_id
        decision.regret_ticks = truth.ttft_ticks - best.ttft_ticks
        if self.is_lost(self.flights[-1]):
            self.failed[seq] = decision
            return Decision(seq, "failed", None, len(prompt))
        return decision

    def is_lost(self, flight: Flight) -> bool:
        """Say whether the replica loses what it does before a request completes."""
        wipes = [tick for tick, r, what in self.changes if (r, what) == (flight.replica, WIPE)]
        return bool(wipes) and flight.end > wipes[0]

    def serve(self, seq: int, chosen: int, start: int) -> engine_oracle.Decision:
        """Serve a prompt, count it, and let the router remember it."""
        decision = super().serve(seq, chosen, start)
        plain, filled = self.flights.pop(), self.queue_ends[chosen]
        decode = round((self.requests[seq].output_tokens or 0) * self.costs[2] * TICKS_PER_MS)
        flight = Flight(seq, chosen, start, filled + decode, filled, decision.computed_tokens)
        self.flights.append(flight)
        self.in_flight = [flight if one is plain else one for one in self.in_flight]
        self.served[chosen] += 1
        self.memorize(seq, chosen)
        return decision

    def memorize(self, seq: int, chosen: int) -> None:
        """Let the router remember where it sent a prompt, if its memory has room for that."""
        memory, kept = self.memories[chosen], self.model.kept(self.requests[seq].prompt)
        if len(kept) > memory.capacity:
            self.forgotten["too_long"] += 1
            return
        here = memory.resident(kept)
        self.forgotten["room"] += len(memory.insert(kept, here, len(kept) - here, seq))
