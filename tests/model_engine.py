"""The replay kernels under any engine's settings, told as the oracle of engines tells a run."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from cache_oracle import common, size
from engine import drained_ticks, flat
from engine_oracle import Decision, Eviction, Model, OracleRun, Request
from numpy.typing import NDArray

from pipeline.config import CostModel, EngineConfig, FleetConfig, ReplayConfig
from pipeline.links import LinkFinder
from pipeline.replay import Replayer, trace_paths
from pipeline.replay.fleet import Fleet, TracePaths
from pipeline.replay.router import Batch
from pipeline.replay.tokens import token_split
from pipeline.tables import OUTCOMES, SERVED
from pipeline.tree import NO_WHOLES, Wholes
from pipeline.upcoming import NEVER

SPLIT = ("matched_tokens", "computed_tokens", "cold_tokens", "evicted_tokens_missed")
SPLIT = (*SPLIT, "elsewhere_tokens", "recomputed_tokens")


class ModelRun(NamedTuple):
    """What the kernels told: the oracle's decisions, cache.EVICTION rows, the fleet at the end."""

    decisions: list[Decision]
    evictions: list[dict[str, int]]
    fleet: Fleet


def paths_of(requests: Sequence[Request], model: Model) -> TracePaths:
    """Link prompts, and prompts with their outputs where those are cached, into trace trees."""
    names = [request.namespace for request in requests]
    prompts = [request.tokens for request in requests]
    engine = EngineConfig(**asdict(model))
    lengths = np.array([len(tokens) for tokens in prompts], np.uint32)
    if not model.cache_output:
        seq, shared = LinkFinder().link(*flat(prompts), names)
        return trace_paths((lengths, seq, shared.astype(np.uint32)), NO_WHOLES, engine)
    both = [t for r in requests for t in (r.tokens, r.tokens + r.output)]
    owner, shared = LinkFinder().link(*flat(both), [n for n in names for _ in range(2)])
    owner = np.where(owner >= 0, owner // 2, -1)
    seq = np.arange(len(prompts))
    whole = np.array([len(r.tokens + r.output) for r in requests], np.uint32)
    own = shared[1::2] <= lengths
    wholes = Wholes(whole, np.where(own, seq, owner[1::2]), shared[1::2].astype(np.uint32))
    return trace_paths((lengths, owner[::2], shared[::2].astype(np.uint32)), wholes, engine)


class Step(NamedTuple):
    """The next requests, and what the kernels wrote of them: loop.DECISION, cache.EVICTION."""

    batch: Batch
    rows: NDArray[Any]
    lost: NDArray[Any]


class ModelEngine:
    """A replayer under any engine's settings, and the trace that it goes through."""

    def __init__(  # noqa: PLR0913 - the oracle's knobs
        self,
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
    ) -> None:
        config = ReplayConfig(
            fleet=FleetConfig(replicas, capacity_tokens),
            engine=EngineConfig(**asdict(model)),
            cost=CostModel(prefill_ms_per_token, lookup_ms_per_token, decode_ms_per_token),
        )
        self.model = model
        self.replayer = Replayer(paths_of(requests, model), config, policy)
        self.done = 0
        prompts = [request.tokens for request in requests]
        outputs = np.array([request.output_tokens or 0 for request in requests], np.int64)
        self.trace = Batch(
            np.arange(len(prompts)),
            np.array([len(tokens) for tokens in prompts], np.int64),
            np.array([tokens[0] if tokens else 0 for tokens in prompts], np.uint64),
            drained_ticks(prompts, drain_ms),
            outputs,
            np.zeros(len(prompts), np.uint64),
        )

    def step(self, requests: int) -> Step:
        """Serve the next requests of the trace."""
        batch = Batch(*(column[self.done : self.done + requests] for column in self.trace))
        self.done += len(batch.seq)
        return Step(batch, *self.replayer.replay(batch))

    def split(self, step: Step) -> dict[str, NDArray[np.int64]]:
        """Return what became of the tokens of a step's prompts."""
        return token_split(step.batch.prompt_tokens, step.rows, self.model.block_tokens)


def replay_model(
    requests: Sequence[Request],
    *,
    to_the_end: bool = True,
    batch_requests: int = 7,
    **knobs: Any,
) -> ModelRun:
    """Serve a trace with the kernels; the other knobs are those of ModelEngine."""
    engine = ModelEngine(requests, **knobs)
    in_flight = engine.model.in_flight != "none"
    decisions: list[Decision] = []
    evictions: list[dict[str, int]] = []
    while engine.done < len(requests):
        step = engine.step(batch_requests)
        decisions += _decisions(step.batch, step.rows, engine.split(step), in_flight=in_flight)
        evictions += _dicts(step.lost)
    if to_the_end:
        evictions += _dicts(engine.replayer.finish())
    return ModelRun(decisions, evictions, engine.replayer.fleet)


def _dicts(rows: NDArray[Any]) -> list[dict[str, int]]:
    return [dict(zip(rows.dtype.names, row, strict=True)) for row in rows.tolist()]


def _decisions(
    batch: Batch, rows: NDArray[Any], split: dict[str, NDArray[np.int64]], *, in_flight: bool
) -> list[Decision]:
    told = []
    for i, row in enumerate(_dicts(rows)):
        one = Decision(
            int(batch.seq[i]), OUTCOMES[row["outcome"]], None, int(batch.prompt_tokens[i])
        )
        if one.outcome == SERVED:
            one.replica_id = row["replica_id"]
            for name in SPLIT:
                setattr(one, name, int(split[name][i]))
            for name in (
                "best_matched_tokens",
                "evicted_tokens",
                "evicted_nodes",
                "resident_tokens",
            ):
                setattr(one, name, row[name])
            one.queue_wait_ms, one.exec_ms = row["queue_ticks"] / 1e4, row["exec_ticks"] / 1e4
            one.ttft_ms = row["ttft_cents"] / 100
            if in_flight:
                one.queued_requests = row["queued_requests"]
                one.running_requests = row["running_requests"]
        told.append(one)
    return told


def check_same(
    requests: Sequence[Request], model: Model, told: ModelRun, wanted: OracleRun
) -> None:
    """Hold a run of the kernels against the oracle's: decisions, evictions, caches at the end."""
    for one, other in zip(told.decisions, wanted.decisions, strict=True):
        assert one == other
    left = iter(wanted.evictions)
    for row in told.evictions:
        parts = list(islice(left, row["evicted_nodes"]))
        assert len(parts) == row["evicted_nodes"]
        _check_eviction(requests, model, row, parts)
    assert next(left, None) is None
    for replica, state in enumerate(wanted.caches):
        record = told.fleet.replicas[replica]
        assert record["pinned_blocks"] == state.pinned_blocks
        assert record["held_blocks"] == state.held_blocks
        assert record["resident_blocks"] - record["pinned_blocks"] == state.evictable_blocks


def _check_eviction(
    requests: Sequence[Request], model: Model, row: dict[str, int], parts: list[Eviction]
) -> None:
    """A row of the kernels is a leaf, or a run of blocks of one path, told tail first."""
    top = parts[-1]
    again = None if row["asked_again_seq"] == NEVER else row["asked_again_seq"]
    assert row["start_tokens"] == top.start_tokens
    assert row["evicted_tokens"] == len(parts[0].path) - top.start_tokens
    assert again == top.asked_again_seq
    for part in parts:
        whole = ("seq", "for_seq", "replica_id", "last_used_seq")
        assert [row[name] for name in whole] == [getattr(part, name) for name in whole]
        assert part.path == parts[0].path[: len(part.path)]
    for upper, lower in zip(parts[1:], parts[:-1], strict=True):
        assert len(upper.path) == lower.start_tokens
    wanted = 0
    if again is not None:
        path = tuple((top.namespace, token) for token in parts[0].path)
        kept = model.kept(requests[again].prompt)
        wanted = size(kept[: common(kept, model_cut(model, path))]) - top.start_tokens
    assert row["asked_again_tokens"] == wanted


def model_cut(model: Model, path: Sequence[Any]) -> Any:
    """Return the blocks of what was resident; its last one may be partial."""
    return Model(block_tokens=model.block_tokens, partial_block="keep").kept(tuple(path))
