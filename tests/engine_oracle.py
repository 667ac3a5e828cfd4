"""The obvious fleet of any engine, written from the rules: slow, flat, importing no engine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from cache_oracle import BlockCache, Cache, Evicted, LeafCache, Path, Sequenced, common, cut, size

TICKS_PER_MS = 10_000


@dataclass(frozen=True)
class Request:
    """A prompt, what was answered, and the count of output tokens that was reported."""

    tokens: tuple[int, ...]
    output: tuple[int, ...] = ()
    output_tokens: int | None = None
    namespace: str | None = None

    @property
    def prompt(self) -> Sequenced:
        return tuple((self.namespace, token) for token in self.tokens)

    @property
    def answer(self) -> Sequenced:
        return tuple((self.namespace, token) for token in self.output)


@dataclass(frozen=True)
class Model:
    """How a replica's cache keeps, finds and evicts prefixes; the reference unless said."""

    cache_unit: str = "leaf"
    block_tokens: int = 1
    partial_block: str = "drop"
    recompute_last_token: bool = False
    refresh: str = "probe"
    in_flight: str = "none"
    when_full: str = "reject"
    cache_output: bool = False

    def kept(self, tokens: Sequenced) -> Path:
        """Return what an insertion of the tokens makes resident."""
        return cut(tokens, self.block_tokens, partial=self.partial_block == "keep")

    def key(self, prompt: Sequenced) -> Path:
        """Return what a look-up may find of a prompt."""
        if self.recompute_last_token:
            return cut(prompt[:-1], self.block_tokens, partial=False)
        return self.kept(prompt)

    def whole(self, prompt: Sequenced, answer: Sequenced) -> Sequenced:
        """Return the tokens whose KV is there at the end; the last one's may never be."""
        if self.recompute_last_token and answer:
            return prompt + answer[:-1]
        return prompt + answer

    def blocks(self, tokens: Sequenced) -> int:
        """Count the blocks that the tokens take while they are computed."""
        return len(cut(tokens, self.block_tokens, partial=True))


@dataclass
class Decision:
    """What became of one request; all but the first four are None when it was rejected."""

    seq: int
    outcome: str
    replica_id: int | None
    prompt_tokens: int
    matched_tokens: int | None = None
    computed_tokens: int | None = None
    cold_tokens: int | None = None
    evicted_tokens_missed: int | None = None
    elsewhere_tokens: int | None = None
    recomputed_tokens: int | None = None
    best_matched_tokens: int | None = None
    queue_wait_ms: float | None = None
    exec_ms: float | None = None
    ttft_ms: float | None = None
    evicted_tokens: int | None = None
    evicted_nodes: int | None = None
    resident_tokens: int | None = None
    queued_requests: int | None = None
    running_requests: int | None = None


@dataclass(frozen=True)
class Eviction:
    """One leaf or one block that left; `path` is all tokens from the beginning to its end."""

    seq: int
    for_seq: int
    replica_id: int
    namespace: str | None
    path: tuple[int, ...]
    start_tokens: int
    last_used_seq: int
    asked_again_seq: int | None
    asked_again_tokens: int


@dataclass(frozen=True)
class CacheState:
    """A replica's cache after the run; paths are (namespace, tokens from the beginning)."""

    paths: set[tuple[str | None, tuple[int, ...]]]
    pinned_blocks: int
    held_blocks: int
    evictable_blocks: int


@dataclass
class OracleRun:
    decisions: list[Decision]
    evictions: list[Eviction]
    caches: list[CacheState]


@dataclass(frozen=True)
class Flight:
    """A request that was served, and when, in ticks."""

    seq: int
    replica: int
    start: int
    end: int


def _ticks(ms: float) -> int:
    return round(round(ms, 4) * TICKS_PER_MS)


@dataclass
class Fleet:
    """Replicas with a cache and a queue each; times in ticks, `now` when the request came."""

    requests: Sequence[Request]
    model: Model
    policy: str
    costs: tuple[float, float, float]
    caches: Sequence[Cache]
    queue_ends: list[int]
    now: int = 0
    turns: int = 0
    in_flight: list[Flight] = field(default_factory=list)
    flights: list[Flight] = field(default_factory=list)
    ever: list[Sequenced] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)

    def exec_ticks(self, prompt: int, matched: int) -> int:
        prefill, lookup, _ = self.costs
        return _ticks(matched * lookup + (prompt - matched) * prefill)

    def matches(self, prompt: Sequenced) -> list[int]:
        """Count, for each replica, the tokens that a look-up finds; change nothing."""
        key = self.model.key(prompt)
        return [size(key[: cache.resident(key)]) for cache in self.caches]

    def choose(self, prompt: Sequenced, seq: int) -> int:
        """Name the replica that the policy sends this prompt to; scoring may be a use."""
        if self.policy == "round_robin":
            self.turns += 1
            return (self.turns - 1) % len(self.caches)
        if self.model.refresh == "probe":
            for cache in self.caches:
                cache.touch(self.model.key(prompt), seq)
        matches = self.matches(prompt)
        if self.policy == "pure_affinity":
            if max(matches) == 0:
                return prompt[0][1] % len(self.caches)
            return matches.index(max(matches))
        if self.policy == "cache_aware":
            waits = [
                max(0, queue_end - self.now) + self.exec_ticks(len(prompt), matched)
                for queue_end, matched in zip(self.queue_ends, matches, strict=True)
            ]
            return waits.index(min(waits))
        raise ValueError(f"no such policy: {self.policy}")

    def route(self, seq: int) -> Decision:
        """Serve or reject one prompt that has tokens."""
        prompt, model = self.requests[seq].prompt, self.model
        chosen = self.choose(prompt, seq)
        cache = self.caches[chosen]
        start = max(self.now, self.queue_ends[chosen])
        key, blocks = model.key(prompt), model.blocks(prompt)
        while True:
            if model.refresh != "insert":
                cache.touch(key, seq)
            if blocks > cache.capacity:
                return Decision(seq, "rejected_too_long", None, len(prompt))
            matched = cache.resident(key)
            if cache.has_room(blocks - matched, key[:matched]):
                return self.serve(seq, chosen, start)
            if model.when_full == "reject":
                return Decision(seq, "rejected_pinned", None, len(prompt))
            flights = [flight for flight in self.in_flight if flight.replica == chosen]
            first = min(flights, key=lambda flight: (flight.end, flight.seq))
            self.complete(first, seq)
            start = max(start, first.end)

    def serve(self, seq: int, chosen: int, start: int) -> Decision:
        """Serve a prompt on a replica that has room for it; its prefill begins at `start`."""
        request, cache = self.requests[seq], self.caches[chosen]
        prompt, model = request.prompt, self.model
        decision = self.explain(seq, chosen, start)
        first_token = start + self.exec_ticks(len(prompt), self.matches(prompt)[chosen])
        end = first_token + _ticks((request.output_tokens or 0) * self.costs[2])
        flight = Flight(seq, chosen, start, end)

        key, kept = model.key(prompt), model.kept(prompt)
        matched = cache.resident(key)
        evicted = cache.insert(kept, matched, model.blocks(prompt) - matched, seq)
        cache.pins.append(kept)
        cache.held += model.blocks(prompt) - len(kept)
        self.ever.append(prompt)
        self.queue_ends[chosen] = first_token
        self.flights.append(flight)
        self.in_flight.append(flight)
        self.write_evictions(evicted, seq, flight)
        if model.in_flight == "none":
            self.complete(flight, seq)
        decision.evicted_tokens = sum(size(row.path[row.start :]) for row in evicted)
        decision.evicted_nodes = len(evicted)
        decision.resident_tokens = cache.resident_tokens
        return decision

    def explain(self, seq: int, chosen: int, start: int) -> Decision:
        """Say what a prompt meets on the replica, and why it computes what it computes."""
        prompt, model = self.requests[seq].prompt, self.model
        matches = self.matches(prompt)
        matched = matches[chosen]
        ever = max((common(earlier, prompt) for earlier in self.ever), default=0)
        has = []
        for cache in self.caches:
            kept = model.kept(prompt)
            resident = size(kept[: cache.resident(kept)])
            all_that_can_be = ever // model.block_tokens * model.block_tokens
            if model.partial_block == "keep" and prompt in self.ever:
                all_that_can_be = ever
            has.append(ever if resident >= all_that_can_be else resident)

        queue_wait_ms = (start - self.now) / TICKS_PER_MS
        exec_ms = self.exec_ticks(len(prompt), matched) / TICKS_PER_MS
        decision = Decision(
            seq=seq,
            outcome="served",
            replica_id=chosen,
            prompt_tokens=len(prompt),
            matched_tokens=matched,
            computed_tokens=len(prompt) - matched,
            cold_tokens=len(prompt) - ever,
            evicted_tokens_missed=ever - max(has),
            elsewhere_tokens=max(has) - has[chosen],
            recomputed_tokens=has[chosen] - matched,
            best_matched_tokens=max(matches),
            queue_wait_ms=queue_wait_ms,
            exec_ms=exec_ms,
            ttft_ms=round(queue_wait_ms + exec_ms, 2),
        )
        if model.in_flight == "pins":
            here = [flight for flight in self.flights if flight.replica == chosen]
            decision.queued_requests = sum(f.start > self.now for f in here)
            decision.running_requests = sum(f.start <= self.now < f.end for f in here)
        return decision

    def complete_until(self, now: float, latest: int) -> None:
        """Complete what ends by then; `latest` is the last request that had come before."""
        for flight in sorted(self.in_flight, key=lambda flight: (flight.end, flight.seq)):
            if flight.end <= now:
                self.complete(flight, latest)

    def complete(self, flight: Flight, latest: int) -> None:
        """Use a request's path once more, let go of it, and keep its output if there is room."""
        request, cache, model = self.requests[flight.seq], self.caches[flight.replica], self.model
        kept = model.kept(request.prompt)
        cache.touch(kept, flight.seq)
        cache.pins.remove(kept)
        cache.held -= model.blocks(request.prompt) - len(kept)
        self.in_flight.remove(flight)
        if not model.cache_output:
            return

        whole = model.whole(request.prompt, request.answer)
        path = model.kept(whole)
        resident = cache.resident(path)
        needed = len(path) - resident
        if (
            size(path) > size(kept)
            and model.blocks(whole) <= cache.capacity
            and cache.has_room(needed, path[:resident])
        ):
            evicted = cache.insert(path, resident, needed, flight.seq)
            self.ever.append(whole)
            self.write_evictions(evicted, latest, flight)

    def write_evictions(self, evicted: list[Evicted], seq: int, flight: Flight) -> None:
        """Write what left for a request, with the next request that asked for its beginning."""
        for path, start, last_used_seq in evicted:
            again_seq, again_tokens = None, 0
            for later in range(seq + 1, len(self.requests)):
                asked = common(self.model.kept(self.requests[later].prompt), path)
                if asked > start:
                    again_seq, again_tokens = later, size(path[start:asked])
                    break
            namespace, ids = _named(path)
            self.evictions.append(
                Eviction(
                    seq=seq,
                    for_seq=flight.seq,
                    replica_id=flight.replica,
                    namespace=namespace,
                    path=ids,
                    start_tokens=size(path[:start]),
                    last_used_seq=last_used_seq,
                    asked_again_seq=again_seq,
                    asked_again_tokens=again_tokens,
                )
            )


def _named(path: Path) -> tuple[str | None, tuple[int, ...]]:
    tokens = [token for block in path for token in block]
    return tokens[0][0], tuple(token for _, token in tokens)


def replay(  # noqa: PLR0913 - one keyword a knob of the rules, all but the trace by name
    requests: Sequence[Request],
    *,
    policy: str,
    replicas: int,
    capacity_tokens: int,
    model: Model,
    prefill_ms_per_token: float = 0.025,
    lookup_ms_per_token: float = 0.0015,
    decode_ms_per_token: float = 20.0,
    drain_ms: float | Sequence[float],
    to_the_end: bool = True,
) -> OracleRun:
    """Serve a trace: one decision a request.

    `drain_ms` is what each arrival takes off every queue (an empty prompt is no arrival), or,
    one number a request, the time since the request before. Without `to_the_end` the caches
    are left as the last request finds the fleet, with its own and others' paths still pinned.
    """
    if model.cache_unit == "block" and model.refresh != "insert":
        raise NotImplementedError("blocks that a look-up touches in runs are left to the engine")
    kind = BlockCache if model.cache_unit == "block" else LeafCache
    fleet = Fleet(
        requests,
        model,
        policy,
        (prefill_ms_per_token, lookup_ms_per_token, decode_ms_per_token),
        caches=[kind(capacity_tokens // model.block_tokens) for _ in range(replicas)],
        queue_ends=[0] * replicas,
    )
    decisions = []
    for seq, request in enumerate(requests):
        if isinstance(drain_ms, Sequence):
            fleet.now += _ticks(drain_ms[seq])
        elif request.tokens:
            fleet.now += _ticks(drain_ms)
        fleet.complete_until(fleet.now, latest=seq - 1)
        if request.tokens:
            decisions.append(fleet.route(seq))
        else:
            decisions.append(Decision(seq, "rejected_empty", None, 0))
    if to_the_end:
        fleet.complete_until(math.inf, latest=len(requests) - 1)
    states = [
        CacheState(set(map(_named, cache.paths())), cache.pinned, cache.held, cache.evictable)
        for cache in fleet.caches
    ]
    return OracleRun(decisions, fleet.evictions, states)
