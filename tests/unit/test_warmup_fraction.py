"""Runs in which the first share of the requests warms up: its rows are there, but don't count."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from engine_days import busy, of_each_model, one_replica, random_day, table, warmed, write_day
from samples import Row, column, decisions, write_trace

from pipeline.config import SubsetConfig
from pipeline.report import find_report, open_run, select
from pipeline.run import replay_trace


def sums(rows: Sequence[Row], *names: str) -> list[int]:
    return [sum(row[name] or 0 for row in rows) for name in names]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize(("model", "policy"), of_each_model())
def test_a_share_that_warms_up_changes_no_row_but_what_counts(
    tmp_path: Path, model: str, policy: str
) -> None:
    trace = write_day(tmp_path / "t.parquet", random_day(3, 90))
    told = {}
    for name, fraction in (("all", 0.0), ("some", 0.4)):
        config = warmed(busy(model, policy), fraction=fraction)
        told[name] = replay_trace(trace, tmp_path / name, config, 25)["totals"][policy]
    for name in ("decisions", "evictions"):
        rows = table(tmp_path / "some", name, policy)
        assert column(rows, "is_warmup") == [row["seq"] < 36 for row in rows]
        for row in rows:
            row["is_warmup"] = False
        assert rows == table(tmp_path / "all", name, policy)

    counted = table(tmp_path / "all", "decisions", policy)[36:]
    lost = [row for row in table(tmp_path / "all", "evictions", policy) if row["seq"] >= 36]
    served = [row for row in counted if row["outcome"] == "served"]
    windows = table(tmp_path / "some", "replicas", policy)
    totals = told["some"]
    assert totals["total_requests"] == 54
    assert 54 - sum(totals["rejected"].values()) == len(served) == sums(windows, "requests")[0]
    names = ("prompt_tokens", "matched_tokens")
    assert sums(served, *names) == sums(windows, *names) == [totals[name] for name in names]
    evicted = sums(lost, "evicted_tokens")[0]
    assert evicted == totals["total_evicted_tokens"] == sums(windows, "evicted_tokens")[0] > 0
    assert totals["max_ttft_ms"] == max(column(served, "ttft_ms"))
    held = [load["cached_tokens"] for load in totals["replica_loads"]]
    assert held == [load["cached_tokens"] for load in told["all"]["replica_loads"]]
    assert column(windows[-2:], "resident_tokens") == held
    assert windows[0]["window_start"] <= counted[0]["arrival"]


def test_reports_count_the_later_requests_and_definitions_show_both(
    tmp_path: Path, run: Path
) -> None:
    trace = write_trace(tmp_path / "t.parquet", [(1, 2), (1, 2), (1, 2, 3, 4)])
    replay_trace(trace, run, warmed(one_replica(9), fraction=0.5))
    connection = open_run(run)
    [row] = select(connection, find_report("policy_comparison").sql).to_pylist()
    assert (row["requests"], row["cache_hit_ratio"]) == (2, 0.6667)
    defined = select(connection, find_report("hit_ratio_definitions").sql).to_pylist()
    ratios = {row["definition"]: row["hit_ratio"] for row in defined}
    assert ratios == {
        "tokens_after_warmup": 0.6667,
        "tokens_whole_run": 0.5,
        "request_mean": 0.75,
        "requests_with_hit": 1.0,
        "whole_blocks": 0.6667,
        "tokens_but_the_last": 0.5,
        "unlimited_cache": 0.6667,
    }
    for view, rows in (("decisions", 2), ("all_decisions", 3)):
        counted = select(connection, f"select count(*) as n from {view}")  # noqa: S608 - a name
        assert counted.to_pylist() == [{"n": rows}]


@pytest.mark.parametrize(("fraction", "warms_up"), [(0.29, 29), (0.58, 58), (0.995, 99)])
def test_a_share_is_the_decimal_that_was_given(
    tmp_path: Path, run: Path, fraction: float, warms_up: int
) -> None:
    # As floats, 0.29 * 100 and 0.58 * 100 are a bit less than 29 and 58.
    trace = write_trace(tmp_path / "t.parquet", [(1,)] * 100)
    told = replay_trace(trace, run, warmed(one_replica(9), fraction=fraction))
    assert told["replayed"]["counted_requests"] == 100 - warms_up


@pytest.mark.parametrize(
    ("where", "fraction", "warms_up"),
    [
        (None, 0.999, [True, True, True, True, True, False]),
        (None, 0.1, [False] * 6),
        (None, 0.5, [True] * 3 + [False] * 3),
        ("tenant = 'a'", 0.999, [True, True, False]),
        ("tenant = 'a'", 0.5, [True, False, False]),
        ("tenant = 'b' and prompt_tokens < 9", 0.999, [False]),
    ],
)
def test_a_share_is_one_of_the_requests_that_are_replayed_and_leaves_the_last(
    small_trace: Path, run: Path, where: str | None, fraction: float, warms_up: list[bool]
) -> None:
    subset = SubsetConfig(where, warmup_fraction=fraction)
    told = replay_trace(small_trace, run, replace(one_replica(9), subset=subset))
    assert column(decisions(run, "cache_aware"), "is_warmup") == warms_up
    assert told["replayed"]["requests"] == len(warms_up)
    assert told["replayed"]["counted_requests"] == warms_up.count(False)
    assert told["totals"]["cache_aware"]["total_requests"] == warms_up.count(False)
