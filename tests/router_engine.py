"""The kernels behind any router, held against the oracle of routers."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from engine_oracle import Model, Request
from model_engine import _check_eviction, _decisions, _dicts, paths_of
from numpy.typing import NDArray
from router_fleet import Decision
from router_oracle import OracleRun
from router_rules import BUILT_IN, SEEN
from router_runs import Case, told_by_oracle

from pipeline.config import (
    CostModel,
    EngineConfig,
    FleetConfig,
    ReplayConfig,
    ReplicaConfig,
    RoutingConfig,
)
from pipeline.replay import Replayer
from pipeline.replay.records import CHANGE
from pipeline.replay.router import Batch
from pipeline.replay.serve import FAILED
from pipeline.replay.tokens import token_split
from pipeline.tables import OUTCOMES

_PRICES = ("prefill_ms_per_token", "lookup_ms_per_token", "decode_ms_per_token")
_COUNTS = ("queued_requests", "running_requests")


class Told(NamedTuple):
    """What the kernels told of a case.

    decisions  of requests that failed as if they had been served, but for the outcome
    chosen     the replica that the rule chose, -1 where it was not asked
    evictions  rows of cache.EVICTION
    seen       where the rule is `witness`: all that it saw, SEEN of a replica after another
    replicas   records.REPLICA after the last request
    """

    decisions: list[Decision]
    chosen: list[int]
    evictions: list[dict[str, int]]
    seen: list[int]
    replicas: NDArray[Any]


def spec_of(rule: str, view: Sequence[Any]) -> str:
    """Return the policy as it is asked for."""
    settings = [f"router_view={view[0]}"]
    if view[0] == "lag":
        settings = [f"router_view=lag:{view[1] / 1e4!r}"]
    if view[0] == "routed":
        settings += [f"router_capacity_tokens={view[1]}"]
        settings += [] if view[2] is None else [f"router_ttl_ms={view[2] / 1e4!r}"]
    name = rule if rule in BUILT_IN else f"router_rules:{rule}"
    return f"{name}:{','.join(settings)}"


def batch_of(requests: Sequence[Request], clock: Sequence[int]) -> Batch:
    prompts = [request.tokens for request in requests]
    return Batch(
        np.arange(len(prompts)),
        np.array([len(tokens) for tokens in prompts], np.int64),
        np.array([tokens[0] if tokens else 0 for tokens in prompts], np.uint64),
        np.array(clock, np.int64),
        np.array([request.output_tokens or 0 for request in requests], np.int64),
        np.zeros(len(prompts), np.uint64),
    )


def batches_of(case: Case) -> list[Batch]:
    """Cut the trace of a case into its batches."""
    whole = batch_of(case.requests, case.knobs["clock"])
    starts = range(0, len(case.requests), case.size)
    return [Batch(*(column[at : at + case.size] for column in whole)) for at in starts]


def replayer_of(case: Case) -> Replayer:
    """Return the kernels, ready for the first batch of a case."""
    knobs, model = case.knobs, case.knobs["model"]
    members = tuple(ReplicaConfig(*member) for member in knobs["replicas"])
    config = ReplayConfig(
        fleet=FleetConfig(len(members), members[0].capacity_tokens, each=members),
        engine=EngineConfig(**asdict(model)),
        cost=CostModel(**{name: knobs[name] for name in _PRICES}),
        routing=RoutingConfig(),
    )
    changes = np.array([(*change, 0) for change in knobs["changes"]], CHANGE)
    spec = spec_of(case.rule, knobs["view"])
    return Replayer(paths_of(case.requests, model), config, spec, changes=changes)


def told_by_kernels(case: Case, replayer: Replayer | None = None) -> Told:
    """Serve a case with the kernels."""
    replayer = replayer or replayer_of(case)
    told = Told([], [], [], [], replayer.fleet.replicas)
    for batch in batches_of(case):
        rows, lost = replayer.replay(batch)
        told.decisions.extend(_told(batch, rows, case.knobs["model"], replayer))
        told.chosen.extend(rows["routed_to"].tolist())
        told.evictions.extend(_dicts(lost))
    if case.rule == "witness":
        memory = replayer.router.memory
        told.seen.extend(memory[1 : 1 + memory[0]].tolist())
    return told._replace(replicas=replayer.fleet.replicas.copy())


def check_same(case: Case, told: Told, wanted: OracleRun) -> None:
    """Hold what the kernels told against the oracle."""
    model = case.knobs["model"]
    assert told.chosen == [-1 if chosen is None else chosen for chosen in wanted.chosen]
    if case.rule == "witness":
        asked = [replicas for replicas in wanted.seen if replicas is not None]
        assert told.seen == [n for replicas in asked for one in replicas for n in in_order(one)]
    for one, other in zip(told.decisions, wanted.decisions, strict=True):
        hidden = wanted.failed.get(one.seq)
        assert one.outcome == other.outcome, (one, other)
        full = asdict(other if hidden is None else hidden) | {"outcome": other.outcome}
        full |= {name: None for name in _COUNTS if getattr(one, name) is None}
        assert asdict(one) == full
    _check_evictions(case.requests, model, told.evictions, wanted)
    for state, record in zip(wanted.caches, told.replicas, strict=True):
        assert record["pinned_blocks"] == state.pinned_blocks
        assert record["held_blocks"] == state.held_blocks
        assert record["resident_blocks"] - record["pinned_blocks"] == state.evictable_blocks


def check_case(case: Case) -> OracleRun:
    """Serve a case with the kernels and with the oracle, and hold one against the other."""
    wanted = told_by_oracle(case)
    check_same(case, told_by_kernels(case), wanted)
    return wanted


def in_order(replica: Any) -> list[int]:
    """Return the numbers of a ReplicaView in the order of SEEN."""
    return [getattr(replica, name) for name in SEEN]


def _told(batch: Batch, rows: Any, model: Model, replayer: Replayer) -> list[Decision]:
    """Return what the kernels decided, of requests that failed as if they had been served."""
    split = token_split(batch.prompt_tokens, rows, model.block_tokens)
    as_served = rows.copy()
    as_served["outcome"][rows["outcome"] == FAILED] = 0
    counted, looks_up = replayer.counts_requests, replayer.spec.policy.looks_up
    told = []
    as_model = _decisions(batch, as_served, split, in_flight=counted)
    for one, row in zip(as_model, rows, strict=True):
        more = Decision(**asdict(one))
        if one.outcome == "served":
            more.outcome = OUTCOMES[row["outcome"]]
            more.believed_matched_tokens = int(row["believed_matched_tokens"]) if looks_up else None
            more.best_replica_id = int(row["best_replica_id"])
            more.regret_ticks = int(row["regret_ticks"])
        told.append(more)
    return told


def _check_evictions(
    requests: Sequence[Request], model: Model, told: list[dict[str, int]], wanted: OracleRun
) -> None:
    left = iter([row for row in wanted.evictions if row.cause == "room"])
    for row in told:
        if row["for_seq"] >= 0:
            parts = list(islice(left, row["evicted_nodes"]))
            assert len(parts) == row["evicted_nodes"]
            _check_eviction(requests, model, row, parts)
    assert next(left, None) is None
    lost = [row for row in wanted.evictions if row.cause == "restart"]
    restarts = [row for row in told if row["for_seq"] < 0]
    key = ("seq", "replica_id", "start_tokens", "last_used_seq")
    if model.cache_unit == "leaf":
        assert [[row[n] for n in key] for row in restarts] == [
            [getattr(row, n) for n in key] for row in lost
        ]
    tokens = sum(len(row.path) - row.start_tokens for row in lost)
    assert sum(row["evicted_tokens"] for row in restarts) == tokens
