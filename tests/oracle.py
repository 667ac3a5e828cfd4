"""The obvious fleet, written from the rules: slow, flat, and importing nothing from the engine.

A replica's tree is no tree here. It is a list of edges, each holding its whole path from the
empty prompt; an edge is on a prompt's way when the two agree beyond the edge's start, and it is
a leaf when no other edge's path begins with its own.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

Tokens = tuple[int, ...]


def common(left: Tokens, right: Tokens) -> int:
    """Count the tokens that two sequences share from their beginning."""
    shared = 0
    while shared < min(len(left), len(right)) and left[shared] == right[shared]:
        shared += 1
    return shared


@dataclass
class Edge:
    """Tokens path[start:], which enter and leave the cache together."""

    path: Tokens
    start: int
    last_used: int
    last_used_seq: int
    pins: int = 0

    @property
    def size(self) -> int:
        return len(self.path) - self.start


@dataclass(frozen=True)
class Inserted:
    matched: int
    new: int
    evicted: list[Edge]


class OracleTree:
    """One replica's cache; `seq` is the request on whose behalf edges are touched just now."""

    def __init__(self, capacity: int) -> None:
        if capacity <= 0:
            raise ValueError("capacity must be positive")
        self.capacity = capacity
        self.edges: list[Edge] = []
        self.holders: list[Tokens] = []
        self.clock = 0
        self.seq = 0
        self.evicted_total = 0

    @property
    def cached(self) -> int:
        return sum(edge.size for edge in self.edges)

    @property
    def pinned(self) -> int:
        return sum(edge.size for edge in self.edges if edge.pins)

    @property
    def evictable(self) -> int:
        return self.cached - self.pinned

    def match(self, tokens: Tokens) -> int:
        """Count how many leading tokens are resident, and change nothing."""
        return max((common(edge.path, tokens) for edge in self.edges), default=0)

    def touch(self, tokens: Tokens) -> int:
        """Match, and make every edge that the match enters the most recent one, tail included."""
        if self._way(tokens):
            self._stamp(tokens)
        return self.match(tokens)

    def insert(self, tokens: Tokens, pin: bool = False) -> Inserted:
        """Make the tokens resident, evicting what is needed; on error nothing has changed."""
        if len(tokens) > self.capacity:
            raise ValueError("longer than the capacity")
        matched = self.match(tokens)
        new = len(tokens) - matched
        overflow = self.cached + new - self.capacity if new else 0
        beside_the_way = sum(
            len(edge.path) - max(edge.start, common(edge.path, tokens))
            for edge in self.edges
            if not edge.pins
        )
        if overflow > beside_the_way:
            raise RuntimeError("too much is pinned")

        self._split(tokens[:matched])
        evicted = self.evict(overflow, protected=tokens[:matched])
        if new:
            self.edges.append(Edge(tokens, matched, self.clock, self.seq))
        if pin:
            self.holders.append(tokens)
            self._add_pins(tokens, 1)
        self._stamp(tokens)
        return Inserted(matched, new, evicted)

    def evict(self, needed: int, protected: Tokens = ()) -> list[Edge]:
        """Remove whole unpinned leaves, least recently used first, until `needed` are free."""
        evicted: list[Edge] = []
        while sum(edge.size for edge in evicted) < needed:
            leaves = [
                edge
                for edge in self.edges
                if not edge.pins
                and edge.path != protected[: len(edge.path)]
                and self._is_leaf(edge)
            ]
            if not leaves:
                raise RuntimeError("too much is pinned")
            victim = min(leaves, key=lambda edge: edge.last_used)
            self.edges.remove(victim)
            self.evicted_total += victim.size
            evicted.append(victim)
        return evicted

    def release(self, tokens: Tokens) -> None:
        """Take one pin of this very sequence away, which uses the sequence once more."""
        if tokens not in self.holders:
            raise ValueError("not pinned")
        if self.touch(tokens) != len(tokens):
            raise RuntimeError("pinned, but not resident")
        self.holders.remove(tokens)
        self._add_pins(tokens, -1)

    def _way(self, tokens: Tokens) -> list[Edge]:
        return [edge for edge in self.edges if common(edge.path, tokens) > edge.start]

    def _is_leaf(self, edge: Edge) -> bool:
        length = len(edge.path)
        return not any(
            len(other.path) > length and other.path[:length] == edge.path for other in self.edges
        )

    def _stamp(self, tokens: Tokens) -> None:
        self.clock += 1
        for edge in self._way(tokens):
            edge.last_used = self.clock
            edge.last_used_seq = self.seq

    def _split(self, tokens: Tokens) -> None:
        for lower in self._way(tokens):
            if len(lower.path) > len(tokens):
                self.edges.append(replace(lower, path=tokens))
                lower.start = len(tokens)

    def _add_pins(self, tokens: Tokens, change: int) -> None:
        for edge in self._way(tokens):
            edge.pins += change


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
    best_matched_tokens: int | None = None
    queue_wait_ms: float | None = None
    exec_ms: float | None = None
    ttft_ms: float | None = None
    evicted_tokens: int | None = None
    evicted_nodes: int | None = None
    resident_tokens: int | None = None


@dataclass
class Eviction:
    seq: int
    replica_id: int
    evicted_tokens: int
    start_tokens: int
    last_used_seq: int
    asked_again_seq: int | None


@dataclass
class OracleRun:
    """Decisions and evictions in order, and the fleet as the last request left it."""

    decisions: list[Decision]
    evictions: list[Eviction]
    trees: list[OracleTree]
    queues_ms: list[float]


@dataclass
class _Fleet:
    policy: str
    trees: list[OracleTree]
    prefill_ms_per_token: float
    lookup_ms_per_token: float
    probe_refreshes_recency: bool
    queues_ms: list[float]
    served: list[Tokens]
    turns: int = 0

    def exec_ms(self, prompt: int, matched: int) -> float:
        computed = prompt - matched
        return round(matched * self.lookup_ms_per_token + computed * self.prefill_ms_per_token, 4)

    def look(self, tree: OracleTree, tokens: Tokens) -> int:
        """Match for a decision; whether a look is a use is where the two kinds of fleet differ."""
        return tree.touch(tokens) if self.probe_refreshes_recency else tree.match(tokens)

    def choose(self, tokens: Tokens) -> int:
        """Name the replica that the policy sends this prompt to."""
        if self.policy == "round_robin":
            self.turns += 1
            return (self.turns - 1) % len(self.trees)
        matches = [self.look(tree, tokens) for tree in self.trees]
        if self.policy == "pure_affinity":
            if max(matches) == 0:
                return tokens[0] % len(self.trees)
            return matches.index(max(matches))
        if self.policy == "cache_aware":
            waits = [
                round(queue_ms + self.exec_ms(len(tokens), matched), 4)
                for queue_ms, matched in zip(self.queues_ms, matches, strict=True)
            ]
            return waits.index(min(waits))
        raise ValueError(f"no such policy: {self.policy}")

    def decide(self, seq: int, tokens: Tokens, drain_ms: float) -> tuple[Decision, list[Edge]]:
        """Serve or reject one prompt that has tokens; return also the edges that had to leave."""
        self.queues_ms = [max(0.0, round(queue_ms - drain_ms, 4)) for queue_ms in self.queues_ms]
        for tree in self.trees:
            tree.seq = seq
        chosen = self.choose(tokens)
        tree = self.trees[chosen]
        matched = self.look(tree, tokens)
        if len(tokens) > tree.capacity:
            return Decision(seq, "rejected_too_long", None, len(tokens)), []

        ever = max((common(earlier, tokens) for earlier in self.served), default=0)
        best = max(each.match(tokens) for each in self.trees)
        queue_ms = self.queues_ms[chosen]
        exec_ms = self.exec_ms(len(tokens), matched)
        evicted = tree.insert(tokens).evicted
        self.queues_ms[chosen] = round(queue_ms + exec_ms, 4)
        self.served.append(tokens)
        decision = Decision(
            seq=seq,
            outcome="served",
            replica_id=chosen,
            prompt_tokens=len(tokens),
            matched_tokens=matched,
            computed_tokens=len(tokens) - matched,
            cold_tokens=len(tokens) - ever,
            evicted_tokens_missed=ever - best,
            elsewhere_tokens=best - matched,
            best_matched_tokens=best,
            queue_wait_ms=queue_ms,
            exec_ms=exec_ms,
            ttft_ms=round(queue_ms + exec_ms, 2),
            evicted_tokens=sum(edge.size for edge in evicted),
            evicted_nodes=len(evicted),
            resident_tokens=tree.cached,
        )
        return decision, evicted


def replay(  # noqa: PLR0913 - one keyword a knob of the rules, all but the trace by name
    requests: Sequence[Tokens],
    *,
    policy: str,
    replicas: int,
    capacity_tokens: int,
    prefill_ms_per_token: float = 0.025,
    lookup_ms_per_token: float = 0.0015,
    drain_ms: float | Sequence[float],
    probe_refreshes_recency: bool = True,
) -> OracleRun:
    """Serve a trace: one decision a request.

    `drain_ms` is what each arrival takes off every queue (an empty prompt is no arrival), or,
    one number a request, the time since the request before (which passes for all of them).
    Without `probe_refreshes_recency` no look-up touches, not even the one on the chosen
    replica: only an insertion is a use (CASES O11, second input).
    """
    trees = [OracleTree(capacity_tokens) for _ in range(replicas)]
    fleet = _Fleet(
        policy,
        trees,
        prefill_ms_per_token,
        lookup_ms_per_token,
        probe_refreshes_recency,
        queues_ms=[0.0] * replicas,
        served=[],
    )
    run = OracleRun([], [], trees, fleet.queues_ms)
    elapsed_ms = 0.0
    for seq, tokens in enumerate(requests):
        if isinstance(drain_ms, Sequence):
            elapsed_ms += drain_ms[seq]
        if not tokens:
            run.decisions.append(Decision(seq, "rejected_empty", None, 0))
            continue
        drain = elapsed_ms if isinstance(drain_ms, Sequence) else drain_ms
        elapsed_ms = 0.0
        decision, evicted = fleet.decide(seq, tokens, drain)
        run.decisions.append(decision)
        for edge in evicted:
            assert decision.replica_id is not None
            again = _asked_again(requests, seq, edge)
            run.evictions.append(
                Eviction(seq, decision.replica_id, edge.size, edge.start, edge.last_used_seq, again)
            )
    run.queues_ms = fleet.queues_ms
    return run


def _asked_again(requests: Sequence[Tokens], evicted_by: int, edge: Edge) -> int | None:
    wanted = edge.path[: edge.start + 1]
    for seq in range(evicted_by + 1, len(requests)):
        if requests[seq][: len(wanted)] == wanted:
            return seq
    return None


def user_reference() -> ModuleType | None:
    """Load the user's own reference, which lies beside the project, or None where it does not."""
    path = Path(__file__).parents[2] / "shared" / "reference" / "lab.py"
    if not path.exists():
        return None
    module = ModuleType("reference_lab")
    sys.modules[module.__name__] = module
    exec(compile(path.read_text(), str(path), "exec"), vars(module))  # noqa: S102 - no __pycache__ there
    return module
