import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from query_tables import SCHEMAS, decision, eviction, replica, run_config, write_run

from pipeline.config import EngineConfig, FleetConfig, ReplayConfig, RoutingConfig, SubsetConfig
from pipeline.errors import RunError
from pipeline.report import open_run, select, views_sql
from pipeline.tables import trace_schema

ROWS = {
    "decisions": [decision(0, is_warmup=True), decision(1), decision(2, policy="round_robin")],
    "evictions": [eviction(0, is_warmup=True), eviction(1), eviction(2)],
    "replicas": [replica(0), replica(1)],
}
TABLES = ["all_decisions", "all_evictions", "decisions", "evictions", "replicas"]
SEEDS = ["seed_decisions", "seed_replicas"]
RECORDED = ["policies", "settings", "timings"]
NAMES = sorted([*TABLES, *SEEDS, *RECORDED])


def ask(run: Path, sql: str) -> Any:
    with open_run(run) as connection:
        return select(connection, sql).to_pylist()


def setting(run: Path) -> dict[str, Any]:
    [row] = ask(run, "from settings")
    return row


def test_reports_count_what_comes_after_the_warm_up_and_all_rows_stay_there(tmp_path: Path) -> None:
    run = write_run(tmp_path, ROWS, ReplayConfig())
    views = ("decisions", "evictions", "all_decisions", "all_evictions")
    seqs = {view: [row["seq"] for row in ask(run, f"from {view} order by seq")] for view in views}
    counted, whole = [1, 2], [0, 1, 2]
    assert list(seqs.values()) == [counted, counted, whole, whole]
    policies = [row["policy"] for row in ask(run, "from decisions order by seq")]
    assert policies == ["cache_aware", "round_robin"]


def test_every_view_has_the_columns_of_its_contract(tmp_path: Path) -> None:
    run = write_run(tmp_path, {}, ReplayConfig())
    with open_run(run) as connection:
        shown = connection.sql("select view_name from duckdb_views() where not internal order by 1")
        assert [name for (name,) in shown.fetchall()] == NAMES
        for name in NAMES:
            assert select(connection, f"from {name}").column_names == SCHEMAS[name].names
        for name in RECORDED:
            assert select(connection, f"from {name}").schema == SCHEMAS[name]


def test_settings_are_one_row(tmp_path: Path) -> None:
    engine = EngineConfig("vllm", "block", 16, refresh="insert", when_full="wait")
    config = ReplayConfig(
        fleet=FleetConfig(2, 8_192),
        engine=replace(engine, recompute_last_token=True, in_flight="pins"),
        subset=SubsetConfig("tenant = 'a'", 0.1, "day 0.parquet", 0.25),
        routing=RoutingConfig("lag:50", 9_000, 2.5, "random", 7, 3),
    )
    row = setting(write_run(tmp_path, {}, config))
    assert row == {
        "engine": "vllm",
        "cache_unit": "block",
        "block_tokens": 16,
        "partial_block": "drop",
        "recompute_last_token": True,
        "refresh": "insert",
        "in_flight": "pins",
        "when_full": "wait",
        "cache_output": False,
        "replicas": 2,
        "capacity_tokens": 8_192,
        "chosen_clock": "arrivals",
        "prefill_ms_per_token": 0.025,
        "lookup_ms_per_token": 0.0015,
        "decode_ms_per_token": 20.0,
        "where_clause": "tenant = 'a'",
        "sample": 0.1,
        "warmup_trace": "day 0.parquet",
        "warmup_fraction": 0.25,
        "router_view": "lag:50",
        "router_capacity_tokens": 9_000,
        "router_ttl_ms": 2.5,
        "tie": "random",
        "seed": 7,
        "seeds": 3,
    }


def test_the_blocks_of_the_settings_are_those_that_the_run_chose(tmp_path: Path) -> None:
    config = run_config(ReplayConfig(), chosen_block_tokens=512)
    assert config["engine"]["block_tokens"] == 1
    assert setting(write_run(tmp_path, {}, ReplayConfig(), config=config))["block_tokens"] == 512


@pytest.mark.parametrize(
    "where",
    [
        "tenant = 'it''s' and \"model\" <> '\"'",
        "tenant = 'a'); drop view decisions; --",
        "tenant = $$x$$ and true -- a comment\n/* and ; more */",
        "tenant = E'\\' ä 的 {} %s'",
        "",
        None,
    ],
)
def test_a_setting_is_text_whatever_is_in_it(tmp_path: Path, where: str | None) -> None:
    config = ReplayConfig(subset=SubsetConfig(where=where, warmup=where))
    row = setting(write_run(tmp_path, ROWS, config))
    assert row["where_clause"] == row["warmup_trace"] == where
    assert len(duckdb.connect().extract_statements(views_sql(tmp_path))) == len(NAMES)


def test_a_path_that_is_no_text_is_still_shown(tmp_path: Path) -> None:
    config = ReplayConfig(subset=SubsetConfig(warmup="day\udcff.parquet"))
    assert setting(write_run(tmp_path, {}, config))["warmup_trace"] == "day?.parquet"


@pytest.mark.parametrize(
    "missing",
    ["engine", "subset", "chosen_block_tokens", "routing", "chosen_policies", "lanes", "config"],
)
def test_a_run_of_an_older_version_has_to_be_made_again(tmp_path: Path, missing: str) -> None:
    config = run_config(ReplayConfig())
    config.pop(missing, None)
    about = {missing: None} if missing in ("config", "lanes") else {"config": config}
    run = write_run(tmp_path, ROWS, ReplayConfig(), **about)
    message = re.escape(f"{run}: made by an older version: replay it again")
    with pytest.raises(RunError, match=f"^{message}$"):
        views_sql(run)
    with pytest.raises(RunError, match=f"^{message}$"):
        open_run(run)


def test_the_view_of_the_trace_has_no_token_ids(tmp_path: Path) -> None:
    trace = tmp_path / "a.parquet"
    whole = trace_schema("prompt_token_ids", outputs="ids")
    pq.write_table(pa.Table.from_pylist([], schema=whole), trace)
    run = write_run(tmp_path / "run", {}, ReplayConfig(), trace={"path": str(trace)})
    with open_run(run) as connection:
        names = select(connection, "from trace").column_names
    assert names == [n for n in whole.names if not n.endswith("_token_ids")]
    assert "whole_tokens" in names
