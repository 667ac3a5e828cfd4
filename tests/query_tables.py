"""Small random runs that obey the contracts, and the report queries that are asked about them."""

from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from pipeline.tables import DECISIONS, EVICTIONS, REPLICAS, SERVED, schema, trace_schema

QUERIES = Path(__file__).parents[1] / "queries"
POLICY = pa.field("policy", pa.string())
SCHEMAS = {
    "decisions": schema(DECISIONS).append(POLICY),
    "evictions": schema(EVICTIONS).append(POLICY),
    "replicas": schema(REPLICAS).append(POLICY),
    "trace": trace_schema(None),
}
WINDOW_US = 1_000_000
START_US = 1_760_000_000_000_000

Row = dict[str, Any]
Frames = dict[str, pl.DataFrame]


class Shape(NamedTuple):
    """How large a run is, and what share of its requests is turned away."""

    requests: int
    policies: tuple[str, ...] = ("cache_aware", "pure_affinity", "round_robin")
    replicas: int = 4
    idle: int = 1
    rejected_ratio: float = 0.1
    longest_prompt: int = 100_000


class Run:
    """A run's views in one DuckDB connection, and the same rows as polars frames."""

    def __init__(self, rows: dict[str, list[Row]], threads: int = 2) -> None:
        tables = {
            name: pa.Table.from_pylist(rows.get(name, []), schema=wanted)
            for name, wanted in SCHEMAS.items()
        }
        self.frames: Frames = {name: pl.DataFrame(table) for name, table in tables.items()}
        self.connection = duckdb.connect(config={"threads": threads})
        for name, table in tables.items():
            self.connection.register(name, table)

    def answer(self, query: str) -> pl.DataFrame:
        """Run queries/`query`.sql."""
        sql = (QUERIES / f"{query}.sql").read_text(encoding="utf-8")
        return pl.DataFrame(self.connection.sql(sql).to_arrow_table())


def decision(seq: int, **known: Any) -> Row:
    """Return one served decision: what is not given is zero, absent or the consequence."""
    row = {
        "request_id": f"r{seq}",
        "seq": seq,
        "arrival": START_US + seq,
        "policy": "cache_aware",
        "outcome": SERVED,
        "replica_id": 0,
        "prompt_tokens": 0,
    }
    row |= known
    if row["outcome"] != SERVED:
        return row | {"replica_id": None}
    row.setdefault("matched_tokens", 0)
    row.setdefault("computed_tokens", row["prompt_tokens"] - row["matched_tokens"])
    row.setdefault("cold_tokens", row["computed_tokens"])
    for name in ("evicted_tokens_missed", "elsewhere_tokens", "evicted_tokens", "evicted_nodes"):
        row.setdefault(name, 0)
    return row


def replica(replica_id: int, **known: Any) -> Row:
    """Return one window of one replica: what is not given is zero."""
    zeros = {c.name: 0 for c in REPLICAS}
    return (
        zeros
        | {"replica_id": replica_id, "window_start": START_US, "policy": "cache_aware"}
        | {"window_ms": WINDOW_US / 1000}
        | known
    )


def random_run(seed: int, shape: Shape) -> dict[str, list[Row]]:
    """Return rows of every table, lawful and consistent with each other."""
    rng = np.random.default_rng(seed)
    trace = _trace(rng, shape)
    rows: dict[str, list[Row]] = {"trace": trace, "decisions": [], "evictions": [], "replicas": []}
    for policy in shape.policies:
        decisions, evictions = [], []
        for request in trace:
            lost = _evictions(rng, request) if request["outcome"] == SERVED else []
            decisions.append(_decide(rng, request, shape, lost))
            evictions += [e | {"replica_id": decisions[-1]["replica_id"]} for e in lost]
        named = {
            "decisions": decisions,
            "evictions": evictions,
            "replicas": _windows(rng, decisions, shape.replicas),
        }
        for name, new in named.items():
            rows[name] += [row | {"policy": policy} for row in new]
    return rows


def _trace(rng: np.random.Generator, shape: Shape) -> list[Row]:
    tenants = [None, "", "acme", "umlaut-ä", "zeta", "Zeta"]
    arrival = START_US
    rows = []
    for seq in range(shape.requests):
        arrival += int(rng.choice([0, 0, 7, 250_000, 900_001]))
        prompt = int(rng.choice([0, 1, 17, 400, 8192, rng.integers(1, 100_000)]))
        prompt = min(prompt, shape.longest_prompt)
        served = rng.random() >= shape.rejected_ratio
        refusal = "rejected_too_long" if prompt else "rejected_empty"
        rows.append(
            {
                "seq": seq,
                "request_id": f"r{seq % 7}-{seq}",
                "arrival": arrival,
                "tenant": tenants[rng.integers(len(tenants))],
                "prompt_tokens": prompt,
                "outcome": SERVED if served else refusal,
                "first_token_id": 0,
                "prefix_seq": seq - 1 if seq else None,
                "prefix_tokens": int(rng.integers(0, prompt + 1)) if seq else 0,
            }
        )
    return rows


def _decide(rng: np.random.Generator, request: Row, shape: Shape, lost: list[Row]) -> Row:
    links = {"first_token_id", "prefix_seq", "prefix_tokens"}
    row = {name: value for name, value in request.items() if name not in links}
    if row["outcome"] != SERVED:
        return row
    prompt, known = request["prompt_tokens"], request["prefix_tokens"]
    cuts = np.sort(rng.integers(0, known + 1, size=2))
    parts = np.diff(cuts, prepend=0, append=known).tolist()
    rng.shuffle(parts)
    matched, evicted, elsewhere = parts
    queue = float(rng.choice([0.0, 0.0, 1.25, 100 / 3, rng.random() * 1000]))
    execution = round(matched * 0.001 + (prompt - matched) * 0.025, 4)
    return row | {
        "replica_id": int(rng.integers(max(1, shape.replicas - shape.idle))),
        "matched_tokens": matched,
        "computed_tokens": prompt - matched,
        "cold_tokens": prompt - known,
        "evicted_tokens_missed": evicted,
        "elsewhere_tokens": elsewhere,
        "best_matched_tokens": matched + elsewhere,
        "queue_wait_ms": queue,
        "exec_ms": execution,
        "ttft_ms": round(queue + execution, 2),
        "evicted_tokens": sum(e["evicted_tokens"] for e in lost),
        "evicted_nodes": len(lost),
        "resident_tokens": int(rng.integers(prompt, prompt + 10_000)),
    }


def _evictions(rng: np.random.Generator, request: Row) -> list[Row]:
    rows = []
    for _ in range(rng.integers(0, 3)):
        last_used = int(rng.integers(0, request["seq"] + 1))
        again = rng.random() < 0.4
        rows.append(
            {
                "seq": request["seq"],
                "arrival": request["arrival"],
                "evicted_tokens": int(rng.integers(1, 500)),
                "start_tokens": int(rng.integers(0, 500)),
                "last_used_seq": last_used,
                "age_requests": request["seq"] - last_used,
                "age_ms": float(rng.integers(0, 10_000_000)) / 1000,
                "asked_again_seq": request["seq"] + 1 if again else None,
                "asked_again_ms": float(rng.integers(0, 9)) if again else None,
            }
        )
    return rows


def _windows(rng: np.random.Generator, decisions: list[Row], replicas: int) -> list[Row]:
    last = max((row["arrival"] for row in decisions), default=START_US)
    rows = []
    for start in range(START_US, last + 1, WINDOW_US):
        for replica_id in range(replicas):
            here = [
                row
                for row in decisions
                if row.get("replica_id") == replica_id
                and start <= row["arrival"] < start + WINDOW_US
            ]
            sums = {
                name: sum(row[name] for row in here)
                for name in ("prompt_tokens", "matched_tokens", "computed_tokens", "evicted_tokens")
            }
            rows.append(
                replica(
                    replica_id,
                    window_start=start,
                    requests=len(here),
                    max_queue_wait_ms=max((row["queue_wait_ms"] for row in here), default=0.0),
                    resident_tokens=int(rng.integers(0, 50_000)),
                    **sums,
                )
            )
    return rows


def ratio(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """Divide, and know no answer where there is nothing to divide by."""
    return pl.when(whole > 0).then(part / whole)


def assert_same(actual: pl.DataFrame, expected: pl.DataFrame) -> None:
    """Compare a report with exact answers: floats are rounded right, all else is equal."""
    assert actual.columns == expected.columns
    assert actual.height == expected.height
    for name in expected.columns:
        digits = 4 if name.endswith(("_ratio", "_over_mean")) else 2
        for row, (got, want) in enumerate(zip(actual[name], expected[name], strict=True)):
            where = f"{name}, row {row}: {got!r} instead of {want!r}"
            if got is None or not isinstance(want, float):
                assert got == want, where
            else:
                assert round(got, digits) == got, where
                assert abs(got - want) <= 0.5 * 10**-digits + 1e-9 * max(1, abs(want)), where
