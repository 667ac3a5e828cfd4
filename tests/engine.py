"""The replay kernels, driven from token tuples to the oracle's rows, and random runs for both."""

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from oracle import Decision, Eviction
from strategies import POLICIES, Tokens

from pipeline.config import ClockConfig, CostModel, EngineConfig, FleetConfig, ReplayConfig
from pipeline.links import LinkFinder
from pipeline.replay import Replayer, trace_paths
from pipeline.replay.fleet import TracePaths
from pipeline.replay.router import Batch
from pipeline.tables import OUTCOMES, SERVED
from pipeline.tree import TraceTree, build_tree
from pipeline.upcoming import NEVER


class Links(NamedTuple):
    """All that a replay knows of a trace's tokens, one item a request."""

    prompt_tokens: NDArray[np.uint32]
    prefix_seq: NDArray[np.int64]
    prefix_tokens: NDArray[np.int64]


class EngineRun(NamedTuple):
    decisions: list[Decision]
    evictions: list[Eviction]


def flat(
    requests: Sequence[Sequence[int]], dtype: Any = np.uint32
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return all ids in one array, and where each request begins in it."""
    ids = np.array([token for tokens in requests for token in tokens], dtype)
    return ids, np.cumsum([0, *map(len, requests)], dtype=np.int64)


def link(
    requests: Sequence[Sequence[int]],
    namespaces: list[str | None] | None = None,
    batches: Sequence[int] = (),
) -> Links:
    """Find the links of a trace; `batches` are the places where the input is cut."""
    finder, parts = LinkFinder(), []
    cuts = [0, *batches, len(requests)]
    for first, end in pairwise(cuts):
        names = None if namespaces is None else namespaces[first:end]
        parts.append(finder.link(*flat(requests[first:end]), names))
    return Links(
        np.array([len(tokens) for tokens in requests], np.uint32),
        np.concatenate([prefix_seq for prefix_seq, _ in parts]),
        np.concatenate([prefix_tokens for _, prefix_tokens in parts]),
    )


def tree_of(links: Links) -> TraceTree:
    return build_tree(links.prompt_tokens, links.prefix_seq, links.prefix_tokens.astype(np.uint32))


def share(links: Links) -> TracePaths:
    """Return what all replayers of one trace may have in common."""
    return trace_paths((links.prompt_tokens, links.prefix_seq, links.prefix_tokens))


def drained_ticks(
    requests: Sequence[Sequence[int]], drain_ms: float | Sequence[float]
) -> NDArray[np.int64]:
    """Return how far queues have drained when each request comes, as `run` tells the kernels."""
    if isinstance(drain_ms, Sequence):
        return np.cumsum([round(gap * 10_000) for gap in drain_ms], dtype=np.int64)
    decay = ClockConfig("arrivals", drain_ms).decay_ticks
    return np.cumsum([decay if tokens else 0 for tokens in requests], dtype=np.int64)


class Engine:
    """A replayer, and the trace that it goes through request by request."""

    def __init__(  # noqa: PLR0913 - the oracle's knobs
        self,
        requests: Sequence[Sequence[int]],
        *,
        policy: str,
        replicas: int,
        capacity_tokens: int,
        prefill_ms_per_token: float = 0.025,
        lookup_ms_per_token: float = 0.0015,
        drain_ms: float | Sequence[float] = 12.0,
        probe_refreshes_recency: bool = True,
        links: Links | None = None,
        shared: TracePaths | None = None,
    ) -> None:
        config = ReplayConfig(
            fleet=FleetConfig(replicas, capacity_tokens),
            cost=CostModel(prefill_ms_per_token, lookup_ms_per_token),
            engine=EngineConfig(refresh="probe" if probe_refreshes_recency else "insert"),
        )
        self.replayer = Replayer(shared or share(links or link(requests)), config, policy)
        self.done = 0
        self.prompt_tokens = np.array([len(tokens) for tokens in requests], np.int64)
        self._first_ids = np.array([tokens[0] if tokens else 0 for tokens in requests], np.uint64)
        self._clock = drained_ticks(requests, drain_ms)

    def raw_step(self, requests: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Serve the next requests of the trace; return what the kernels wrote."""
        first, rows = self.done, slice(self.done, self.done + requests)
        prompts = self.prompt_tokens[rows]
        self.done += len(prompts)
        seq, none = np.arange(first, self.done), np.zeros(len(prompts), np.int64)
        names = none.astype(np.uint64)
        batch = Batch(seq, prompts, self._first_ids[rows], self._clock[rows], none, names)
        return self.replayer.replay(batch)

    def step(self, requests: int) -> EngineRun:
        """Serve the next requests of the trace; return the oracle's rows."""
        first = self.done
        decisions, evictions = self.raw_step(requests)
        prompts = self.prompt_tokens[first : self.done].tolist()
        named = decisions.dtype.names
        return EngineRun(
            [
                _decision(first + i, prompts[i], dict(zip(named, row, strict=True)))
                for i, row in enumerate(decisions.tolist())
            ],
            [
                _eviction(dict(zip(evictions.dtype.names, row, strict=True)))
                for row in evictions.tolist()
            ],
        )


def _decision(seq: int, prompt: int, row: dict[str, int]) -> Decision:
    outcome = OUTCOMES[row["outcome"]]
    if outcome != SERVED:
        assert row["replica_id"] == -1
        return Decision(seq, outcome, None, prompt)
    matched, best, ever = row["matched_tokens"], row["best_matched_tokens"], row["ever_tokens"]
    assert (row["resident_tokens_here"], row["resident_tokens_best"]) == (matched, best)
    return Decision(
        seq=seq,
        outcome=outcome,
        replica_id=row["replica_id"],
        prompt_tokens=prompt,
        matched_tokens=matched,
        computed_tokens=prompt - matched,
        cold_tokens=prompt - ever,
        evicted_tokens_missed=ever - best,
        elsewhere_tokens=best - matched,
        best_matched_tokens=best,
        queue_wait_ms=row["queue_ticks"] / 1e4,
        exec_ms=row["exec_ticks"] / 1e4,
        ttft_ms=row["ttft_cents"] / 100,
        evicted_tokens=row["evicted_tokens"],
        evicted_nodes=row["evicted_nodes"],
        resident_tokens=row["resident_tokens"],
    )


def _eviction(row: dict[str, int]) -> Eviction:
    assert (row["for_seq"], row["evicted_nodes"]) == (row["seq"], 1)
    again = row["asked_again_seq"]
    return Eviction(
        row["seq"],
        row["replica_id"],
        row["evicted_tokens"],
        row["start_tokens"],
        row["last_used_seq"],
        None if again == NEVER else again,
    )


def replay_engine(
    requests: Sequence[Sequence[int]], *, batch_requests: int = 7, **settings: Any
) -> EngineRun:
    """Serve a trace with the kernels; the settings are those of `oracle.replay`, and Engine's."""
    engine = Engine(requests, **settings)
    run = EngineRun([], [])
    while engine.done < len(requests):
        decisions, evictions = engine.step(batch_requests)
        run.decisions.extend(decisions)
        run.evictions.extend(evictions)
    return run


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - the same run every time


def random_trace(rng: Random, requests: int, vocabulary: int, added: int = 8) -> list[Tokens]:
    """Return prompts that often extend, cut or repeat an earlier one; some may be empty."""
    trace: list[Tokens] = []
    for _ in range(requests):
        kept: Tokens = ()
        if trace and rng.random() < 0.6:
            base = rng.choice(trace)
            kept = base[: rng.randint(0, len(base))]
        fresh = rng.randint(0, added)
        trace.append(kept + tuple(rng.randrange(vocabulary) for _ in range(fresh)))
    return trace


def random_settings(rng: Random, requests: int) -> dict[str, Any]:
    """Return settings of a small fleet for `oracle.replay` and `replay_engine` alike."""
    gaps = [0.0, *(rng.choice((0, rng.randint(1, 3000))) / 1000 for _ in range(requests - 1))]
    prefill, lookup = rng.choice(((0.025, 0.0015), (1.0, 0.1), (0.02513, 0.00137), (0.3, 0.0)))
    return {
        "policy": rng.choice(POLICIES),
        "replicas": rng.randint(1, 5),
        "capacity_tokens": rng.randint(4, 24),
        "prefill_ms_per_token": prefill,
        "lookup_ms_per_token": lookup,
        "drain_ms": rng.choice((gaps, 12.0, 2.0, 0.05, 0.0333, 0.0)),
        "probe_refreshes_recency": rng.random() < 0.6,
    }
