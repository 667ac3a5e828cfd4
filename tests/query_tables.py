"""Runs made by hand, as views and as folders, and the report queries that are asked about them."""

import json
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import ReplayConfig
from pipeline.run_folder import FORMAT, TABLES, seed_folder, table_file
from pipeline.tables import DECISIONS, EVICTIONS, REPLICAS, SERVED, schema, trace_schema

QUERIES = Path(__file__).parents[1] / "queries"
POLICY = pa.field("policy", pa.string())
SETTINGS = {
    "engine": pa.string(),
    "cache_unit": pa.string(),
    "block_tokens": pa.int64(),
    "partial_block": pa.string(),
    "recompute_last_token": pa.bool_(),
    "refresh": pa.string(),
    "in_flight": pa.string(),
    "when_full": pa.string(),
    "cache_output": pa.bool_(),
    "replicas": pa.int64(),
    "capacity_tokens": pa.int64(),
    "chosen_clock": pa.string(),
    "prefill_ms_per_token": pa.float64(),
    "lookup_ms_per_token": pa.float64(),
    "decode_ms_per_token": pa.float64(),
    "where_clause": pa.string(),
    "sample": pa.float64(),
    "warmup_trace": pa.string(),
    "warmup_fraction": pa.float64(),
    "router_view": pa.string(),
    "router_capacity_tokens": pa.int64(),
    "router_ttl_ms": pa.float64(),
    "tie": pa.string(),
    "seed": pa.int64(),
    "seeds": pa.int64(),
}
CHOSEN_POLICIES = {
    "policy": pa.string(),
    "name": pa.string(),
    "source": pa.string(),
    "parameters": pa.string(),
    "router_view": pa.string(),
    "router_tokens": pa.int64(),
    "router_ttl_ms": pa.float64(),
    "tie": pa.string(),
    "chooses_at_random": pa.bool_(),
    "seeds": pa.int64(),
}
TIMINGS = {
    "policy": pa.string(),
    "seed": pa.int64(),
    "requests": pa.int64(),
    "replay_s": pa.float64(),
    "write_s": pa.float64(),
    "requests_per_s": pa.float64(),
}
SEED = pa.field("seed", pa.int64())
SCHEMAS = {
    "decisions": schema(DECISIONS).append(POLICY),
    "evictions": schema(EVICTIONS).append(POLICY),
    "all_decisions": schema(DECISIONS).append(POLICY),
    "all_evictions": schema(EVICTIONS).append(POLICY),
    "replicas": schema(REPLICAS).append(POLICY),
    "seed_decisions": schema(DECISIONS).append(POLICY).append(SEED),
    "seed_replicas": schema(REPLICAS).append(POLICY).append(SEED),
    "settings": pa.schema(SETTINGS),
    "policies": pa.schema(CHOSEN_POLICIES),
    "timings": pa.schema(TIMINGS),
    "trace": trace_schema(None),
}
WINDOW_US = 1_000_000
START_US = 1_760_000_000_000_000

Row = dict[str, Any]
Frames = dict[str, pl.DataFrame]


class Run:
    """A run's views in one DuckDB connection, and the same rows as polars frames.

    `rows` has decisions and evictions with those of the warm-up, and in seed_decisions and
    seed_replicas what further seeds than the first, 0, gave, as the run's files do.
    """

    def __init__(self, rows: dict[str, list[Row]], threads: int = 2, block_tokens: int = 1) -> None:
        views = {"settings": [{"block_tokens": block_tokens}], **rows}
        for name in ("decisions", "evictions"):
            views[f"all_{name}"] = rows.get(name, [])
            views[name] = counted(views[f"all_{name}"])
        for name in ("decisions", "replicas"):
            first = [row | {"seed": 0} for row in views.get(name, [])]
            views[f"seed_{name}"] = first + counted(rows.get(f"seed_{name}", []))
        tables = {
            name: pa.Table.from_pylist(views.get(name, []), schema=wanted)
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


def counted(rows: list[Row]) -> list[Row]:
    """Leave out what is of the warm-up."""
    return [row for row in rows if not row.get("is_warmup")]


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
        "is_warmup": False,
    }
    row |= known
    if row["outcome"] != SERVED:
        return row | {"replica_id": None}
    row.setdefault("matched_tokens", 0)
    row.setdefault("computed_tokens", row["prompt_tokens"] - row["matched_tokens"])
    row.setdefault("cold_tokens", row["computed_tokens"])
    zeros = ("evicted_tokens_missed", "elsewhere_tokens", "recomputed_tokens")
    for name in (*zeros, "evicted_tokens", "evicted_nodes"):
        row.setdefault(name, 0)
    return row


def eviction(seq: int, **known: Any) -> Row:
    """Return one leaf of one token that `seq` evicted: what is not given is zero or absent."""
    row = {
        "seq": seq,
        "arrival": START_US + seq,
        "policy": "cache_aware",
        "for_seq": seq,
        "cause": "room",
        "replica_id": 0,
        "evicted_tokens": 1,
        "evicted_nodes": 1,
        "start_tokens": 0,
        "last_used_seq": seq,
        "age_requests": 0,
        "age_ms": 0.0,
        "asked_again_tokens": 0,
        "is_warmup": False,
    }
    return row | known


def replica(replica_id: int, **known: Any) -> Row:
    """Return one window of one replica: what is not given is zero."""
    zeros = {c.name: 0 for c in REPLICAS}
    return (
        zeros
        | {"replica_id": replica_id, "window_start": START_US, "policy": "cache_aware"}
        | {"window_ms": WINDOW_US / 1000}
        | known
    )


def write_run(
    folder: Path, rows: dict[str, list[Row]], config: ReplayConfig, /, **about: Any
) -> Path:
    """Write a run folder of hand-made rows; `about` replaces what run.json says by itself."""
    for policy in config.policies:
        for table in TABLES:
            _write_table(folder, table, policy, rows.get(table, []))
        seeds = {row["seed"] for row in rows.get("seed_decisions", []) if row["policy"] == policy}
        for seed, name in product(sorted(seeds), ("decisions", "replicas")):
            further = [row for row in rows.get(f"seed_{name}", []) if row["seed"] == seed]
            _write_table(seed_folder(folder, seed), name, policy, further)
    run = {"format": FORMAT, "config": run_config(config), "lanes": lanes(config)} | about
    Path(folder, "run.json").write_text(json.dumps(run), encoding="utf-8")
    return folder


def _write_table(folder: Path, table: str, policy: str, rows: list[Row]) -> None:
    wanted = SCHEMAS[table].remove(SCHEMAS[table].get_field_index(POLICY.name))
    mine = [row for row in rows if row["policy"] == policy]
    file = table_file(folder, table, policy)
    file.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(mine, schema=wanted), file)


def run_config(config: ReplayConfig, **chosen: Any) -> Row:
    """Return what run.json has as its configuration; `chosen` replaces what the run chose."""
    policies = [
        dict.fromkeys(CHOSEN_POLICIES) | {"policy": policy, "parameters": {}}
        for policy in config.policies
    ]
    defaults = {
        "chosen_clock": "arrivals",
        "chosen_block_tokens": config.engine.block_tokens,
        "chosen_policies": policies,
    }
    return {**asdict(config), **defaults, **chosen}


def lanes(config: ReplayConfig) -> list[Row]:
    """Return what run.json says of how long each policy took: nothing."""
    return [dict.fromkeys(TIMINGS) | {"policy": policy} for policy in config.policies]


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
