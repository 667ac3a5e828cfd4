"""The kernels behind any router, held against the oracle of routers."""

from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np
from engine import seeded
from engine_oracle import Model, Request
from model_cases import random_model, random_requests
from model_engine import _check_eviction, _decisions, _dicts, paths_of
from router_cases import RULES, random_routing
from router_oracle import Decision, OracleRun, replay
from router_rules import BUILT_IN

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


def random_case(seed: int) -> tuple[list[Request], str, dict[str, Any], int]:
    """Return a trace, the name of a rule, knobs for both, and how many requests a batch has."""
    rng = seeded(seed)
    size = rng.randint(1, 40)
    requests = random_requests(rng, size, added=rng.choice((3, 8, 20)))
    knobs = random_routing(rng, size, random_model(rng))
    knobs |= {
        "prefill_ms_per_token": rng.choice((0.025, 1.0, 0.02513)),
        "lookup_ms_per_token": rng.choice((0.0015, 0.1, 0.0)),
        "decode_ms_per_token": rng.choice((0.0, 0.3, 2.0)),
    }
    if knobs["view"][0] == "routed" and knobs["view"][2] == 0:
        knobs["view"] = (*knobs["view"][:2], 1)
    return requests, rng.choice(sorted(RULES)), knobs, rng.randint(1, 40)


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


def replayer_of(requests: Sequence[Request], rule: str, knobs: dict[str, Any]) -> Replayer:
    model: Model = knobs["model"]
    members = tuple(ReplicaConfig(*member) for member in knobs["replicas"])
    config = ReplayConfig(
        fleet=FleetConfig(len(members), members[0].capacity_tokens, each=members),
        engine=EngineConfig(**asdict(model)),
        cost=CostModel(**{name: knobs[name] for name in _PRICES}),
        routing=RoutingConfig(),
    )
    changes = np.array(knobs["changes"], CHANGE)
    spec = spec_of(rule, knobs["view"])
    return Replayer(paths_of(requests, model), config, spec, changes=changes)


def check_case(requests: list[Request], rule: str, knobs: dict[str, Any], size: int) -> OracleRun:
    """Replay with the kernels and with the oracle, and hold one against the other."""
    case = RULES[rule]
    wanted = replay(requests, rule=case.rule(), looks_up=case.looks_up, **knobs, to_the_end=False)
    replayer, batch = replayer_of(requests, rule, knobs), batch_of(requests, knobs["clock"])
    told, evictions = [], []
    for first in range(0, len(requests), size):
        part = Batch(*(column[first : first + size] for column in batch))
        rows, lost = replayer.replay(part)
        told += _told(part, rows, knobs["model"], replayer)
        evictions += _dicts(lost)
        for row, chosen in zip(rows, wanted.chosen[first : first + size], strict=True):
            assert row["routed_to"] == (-1 if chosen is None else chosen)
    _check_decisions(told, wanted, replayer)
    _check_evictions(requests, knobs["model"], evictions, wanted)
    for state, record in zip(wanted.caches, replayer.fleet.replicas, strict=True):
        assert record["pinned_blocks"] == state.pinned_blocks
        assert record["held_blocks"] == state.held_blocks
        assert record["resident_blocks"] - record["pinned_blocks"] == state.evictable_blocks
    return wanted


def _told(batch: Batch, rows: Any, model: Model, replayer: Replayer) -> list[Decision]:
    """Return what the kernels decided, of requests that failed as if they had been served."""
    split = token_split(batch.prompt_tokens, rows, model.block_tokens)
    as_served = rows.copy()
    as_served["outcome"][rows["outcome"] == FAILED] = 0
    told = []
    for one, row in zip(
        _decisions(batch, as_served, split, in_flight=replayer.counts_requests),
        rows,
        strict=True,
    ):
        more = Decision(**asdict(one))
        if one.outcome == "served":
            more.outcome = OUTCOMES[row["outcome"]]
            looks_up = replayer.spec.policy.looks_up
            more.believed_matched_tokens = int(row["believed_matched_tokens"]) if looks_up else None
            more.best_replica_id = int(row["best_replica_id"])
            more.regret_ticks = int(row["regret_ticks"])
        told.append(more)
    return told


def _check_decisions(told: list[Decision], wanted: OracleRun, replayer: Replayer) -> None:
    for one, other in zip(told, wanted.decisions, strict=True):
        hidden = wanted.failed.get(one.seq)
        assert one.outcome == other.outcome, (one, other)
        full = asdict(other if hidden is None else hidden) | {"outcome": other.outcome}
        if not replayer.counts_requests:
            full |= dict.fromkeys(_COUNTS)
        assert asdict(one) == full


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
