"""The obvious fleet behind a router that sees it its own way; replicas differ, come and go.

Times are ticks of 0.0001 ms.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import engine_oracle
from cache_oracle import BlockCache, Cache, LeafCache, Sequenced, size
from engine_oracle import TICKS_PER_MS, CacheState, Fleet, Model, Request, _named
from router_cases import (
    CLOSE,
    OPEN,
    WIPE,
    Flight,
    Moment,
    ReplicaView,
    RequestView,
    Rule,
    expire,
    last_user,
)

IDLE = -(2**62)
"""When the queue of a replica that never had one became empty."""

NOBODY = -1


@dataclass
class Decision(engine_oracle.Decision):
    """What became of one request; all but the first four are None unless it was served."""

    believed_matched_tokens: int | None = None
    best_replica_id: int | None = None
    regret_ticks: int | None = None


@dataclass(frozen=True)
class Eviction(engine_oracle.Eviction):
    """One leaf or one block that left; for nobody (None) where the cause is a restart."""

    for_seq: int | None
    cause: str = "room"


@dataclass
class OracleRun:
    """A run; `chosen` is what the rule chose for each request, None where it was not asked.

    `failed` has, by seq, what the decision of a request would have been had it not failed.
    """

    decisions: list[Decision]
    evictions: list[Eviction]
    caches: list[CacheState]
    chosen: list[int | None]
    failed: dict[int, Decision]


@dataclass(kw_only=True)
class RoutedFleet(Fleet):
    """Replicas that differ, are away at times, and are seen by a router in its own way.

    `costs` are those of the replica at hand, and `changes` those still to come. `choice` is the
    chosen replica as the rule saw it, the same in truth, and in truth the best one.
    """

    rule: Rule
    looks_up: bool
    view: tuple
    clock: Sequence[int]
    capacities: list[int]
    prices: list[tuple[float, float, float]]
    changes: list[tuple[int, int, int]]
    away: list[int]
    served: list[int]
    memories: list[LeafCache]
    moments: list[Moment] = field(default_factory=list)
    chosen: list[int | None] = field(default_factory=list)
    failed: dict[int, Decision] = field(default_factory=dict)
    choice: tuple[ReplicaView, ...] = ()

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
        cache, lost = self.caches[replica], []
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
            past = [moment for moment in self.moments if moment.tick <= then][-1]
            return self.see(prompt, past, then, past.caches)
        if self.view[0] == "exact":
            return self.see(prompt, self.present, self.now, self.caches)
        _, _, ttl = self.view
        for memory in self.memories:
            if ttl is not None:
                expire(memory, lambda seq: self.clock[seq] <= self.now - ttl)
        return self.see(prompt, self.present, self.now, self.memories)

    def choose(self, prompt: Sequenced, seq: int) -> int:
        """Name the replica that the rule sends this prompt to; looking may be a use."""
        model = self.model
        truths = self.see(prompt, self.present, self.now, self.caches)
        truth = {one.replica_id: one for one in truths}
        seen = self.what_is_seen(prompt)
        if not self.looks_up:
            unknown = {"matched_tokens": None, "matched_seq": None, "exec_ticks": None}
            seen = [replace(one, **unknown) for one in seen]
        elif model.refresh == "probe" and self.view[0] != "routed":
            for cache in self.caches:
                cache.touch(model.key(prompt), seq)

        request = RequestView(seq, len(prompt), prompt[0][1], self.now, model.block_tokens)
        there = seen[self.rule(request, seen)]
        chosen = there.replica_id
        fit = [v for r, v in truth.items() if model.blocks(prompt) <= self.caches[r].capacity]
        best = min(fit, key=lambda one: (one.ttft_ticks, one.replica_id), default=None)
        self.choice = (there, truth[chosen], best)
        self.costs = self.prices[chosen]
        return chosen

    def route(self, seq: int) -> Decision:
        """Serve, lose or reject one prompt that has tokens."""
        prompt = self.requests[seq].prompt
        if all(self.away):
            self.chosen.append(None)
            return Decision(seq, "rejected_no_replica", None, len(prompt))
        decision = Decision(**asdict(super().route(seq)))
        seen, truth, best = self.choice
        self.chosen.append(truth.replica_id)
        if decision.outcome != "served":
            return decision
        decision.queued_requests = truth.queued_requests
        decision.running_requests = truth.running_requests
        decision.believed_matched_tokens = seen.matched_tokens
        decision.best_replica_id = best.replica_id
        decision.regret_ticks = truth.ttft_ticks - best.ttft_ticks
        wipes = [tick for tick, r, what in self.changes if (r, what) == (truth.replica_id, WIPE)]
        if wipes and self.flights[-1].end > wipes[0]:
            self.failed[seq] = decision
            return Decision(seq, "failed", None, len(prompt))
        return decision

    def serve(self, seq: int, chosen: int, start: int) -> engine_oracle.Decision:
        """Serve a prompt, count it, and let the router remember it."""
        decision = super().serve(seq, chosen, start)
        plain, filled = self.flights.pop(), self.queue_ends[chosen]
        decode = round((self.requests[seq].output_tokens or 0) * self.costs[2] * TICKS_PER_MS)
        flight = Flight(seq, chosen, start, filled + decode, filled, decision.computed_tokens)
        self.flights.append(flight)
        self.in_flight = [flight if one is plain else one for one in self.in_flight]
        self.served[chosen] += 1

        memory, kept = self.memories[chosen], self.model.kept(self.requests[seq].prompt)
        if len(kept) <= memory.capacity:
            here = memory.resident(kept)
            memory.insert(kept, here, len(kept) - here, seq)
        return decision


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
        prices=[tuple(price / speed for price in prices) for _, speed in replicas],
        changes=sorted(changes, key=lambda change: change[0]),
        away=[0] * len(replicas),
        served=[0] * len(replicas),
        memories=[LeafCache((remembered or capacity) // block) for capacity, _ in replicas],
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
            fleet.chosen.append(None)
        fleet.remember(fleet.now)
    if to_the_end:
        fleet.pass_until(math.inf, latest=len(requests) - 1)
    states = [
        CacheState(set(map(_named, cache.paths())), cache.pinned, cache.held, cache.evictable)
        for cache in fleet.caches
    ]
    evictions = [_caused(row) for row in fleet.evictions]
    return OracleRun(decisions, evictions, states, fleet.chosen, fleet.failed)


def _caused(row: engine_oracle.Eviction) -> Eviction:
    told = asdict(row)
    if row.for_seq == NOBODY:
        told |= {"for_seq": None, "cause": "restart"}
    return Eviction(**told)
