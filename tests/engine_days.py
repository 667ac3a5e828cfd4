"""Days of random requests with tenants, sessions and outputs, as traces for any engine."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from engine import random_trace, seeded
from samples import Row, requests, rows_of
from strategies import Tokens

from pipeline.config import (
    ENGINES,
    ClockConfig,
    CostModel,
    EngineConfig,
    FleetConfig,
    ReplayConfig,
    SubsetConfig,
)
from pipeline.trace import Lists, TraceMetadata, TraceWriter

SGLANG, VLLM = (
    replace(ENGINES[name], block_tokens=2, own_blocks=False) for name in ("sglang", "vllm")
)
MODELS: dict[str, EngineConfig] = {
    "reference": ENGINES["reference"],
    "sglang": SGLANG,
    "vllm": VLLM,
    "reference in flight": replace(ENGINES["reference"], in_flight="pins"),
    "sglang in flight": replace(SGLANG, in_flight="pins"),
    "vllm in flight": replace(VLLM, in_flight="pins", cache_output=True),
    "a mixture": replace(SGLANG, partial_block="keep", refresh="probe", cache_output=True),
}
"""Every preset, requests in flight with and without outputs, and a mixture."""

POLICIES = ("round_robin", "pure_affinity", "cache_aware")


class Request(NamedTuple):
    """One request of a day."""

    prompt: Tokens
    output: Tokens
    arrival_us: int
    request_id: str
    namespace: str | None
    tenant: str | None
    session_id: str | None
    output_tokens: int | None


Day = list[Request]


def random_day(seed: int, count: int, *, begins_us: int = 0, name: str = "r") -> Day:
    """Return requests some milliseconds apart, at times at once, that share much."""
    rng = seeded(seed)
    day, time = [], begins_us
    for number, prompt in enumerate(random_trace(rng, count, 2, 5)):
        time += rng.choice((0, rng.randint(1, 9000)))
        output = tuple(rng.randrange(2) for _ in range(rng.randint(0, 4)))
        kept = prompt
        if day and rng.random() < 0.3:
            turn = rng.choice(day)
            kept = turn.prompt + turn.output + prompt[:2]
        day.append(
            Request(
                prompt=kept[:18],
                output=output,
                arrival_us=time,
                request_id=f"{name}{number}",
                namespace=rng.choice((None, None, "x")),
                tenant=rng.choice(("a", "b", None)),
                session_id=rng.choice((None, *(f"s{i}" for i in range(8)))),
                output_tokens=rng.choice((None, len(output), rng.randint(0, 9))),
            )
        )
    return day


def write_day(path: Path, day: Sequence[Request]) -> Path:
    """Write a linked trace that knows its outputs."""
    carried = ("request_id", "namespace", "tenant", "session_id", "output_tokens")
    columns = {name: [getattr(one, name) for one in day] for name in carried}
    batch = requests([one.prompt for one in day], [one.arrival_us for one in day], **columns)
    ids = np.array([token for one in day for token in one.output], np.uint32)
    offsets = np.cumsum([0, *(len(one.output) for one in day)], dtype=np.int64)
    with TraceWriter(path, TraceMetadata(), outputs=True) as writer:
        writer.write(batch._replace(outputs=Lists(ids, offsets)))
    return path


def busy(model: str, *policies: str, **subset: Any) -> ReplayConfig:
    """Return a small fleet that waits, evicts and rejects, under that engine."""
    return ReplayConfig(
        fleet=FleetConfig(2, 16),
        engine=MODELS[model],
        cost=CostModel(0.5, 0.05, 1.5),
        clock=ClockConfig("timestamps", 3.0),
        subset=SubsetConfig(**subset),
        policies=policies or POLICIES,
    )


def one_replica(tokens: int, **engine: Any) -> ReplayConfig:
    """Return a fleet of one replica, on which a token takes 1 ms, or 10 ms to be generated."""
    return ReplayConfig(
        fleet=FleetConfig(1, tokens),
        engine=EngineConfig(**engine),
        cost=CostModel(1.0, 0.1, 10.0),
        policies=("cache_aware",),
    )


def warmed(config: ReplayConfig, warmup: Path | None = None, fraction: float = 0.0) -> ReplayConfig:
    """Return the configuration with a warm-up trace, or a share that warms up, or both."""
    subset = SubsetConfig(warmup=warmup and str(warmup), warmup_fraction=fraction)
    return replace(config, subset=subset)


def of_each_model() -> list[tuple[str, str]]:
    """Return every engine with one of the policies, each of them in turn."""
    return [(model, POLICIES[i % len(POLICIES)]) for i, model in enumerate(MODELS)]


def table(run: Path, name: str, policy: str) -> list[Row]:
    """Return the rows of one policy: decisions, evictions or replicas."""
    return rows_of(run / name / f"policy={policy}" / "part-0.parquet")
