"""The rows of a run: rejected requests, replica windows, and totals that equal the SQL reports."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import (
    SMALL,
    SMALL_FLEET,
    Prompts,
    Row,
    column,
    decisions,
    grouped_prompts,
    rows_of,
    write_trace,
)

from pipeline.config import ClockConfig, CostModel, FleetConfig, ReplayConfig
from pipeline.report import find_report, open_run, select
from pipeline.run import replay_trace
from pipeline.tables import CARRIED_COLUMNS, DECISIONS

POLICIES = ("round_robin", "pure_affinity", "cache_aware")
SECOND = 1_000_000
WINDOW_SUMS = {
    "requests": None,
    "prompt_tokens": "prompt_tokens",
    "matched_tokens": "matched_tokens",
    "computed_tokens": "computed_tokens",
    "evicted_tokens": "evicted_tokens",
}


def _report(run: Path, name: str) -> dict[str, Row]:
    rows = select(open_run(run), find_report(name).sql).to_pylist()
    return {row["policy"]: row for row in rows}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def _replay(run: Path, prompts: Prompts, config: ReplayConfig, times: Any = None) -> dict[str, Any]:
    return replay_trace(write_trace(run.with_name("a.parquet"), prompts, times), run, config)


def test_a_request_larger_than_the_cache_is_one_rejected_row(run: Path) -> None:
    prompts = [(1, 2, 3, 4), range(50, 59), (1, 2, 3, 4, 5)]
    config = ReplayConfig(fleet=FleetConfig(2, 8), clock=ClockConfig("arrivals"))
    totals = _replay(run, prompts, config)["totals"]
    for policy, chosen in zip(POLICIES, (0, 1, 0), strict=True):
        rows = decisions(run, policy)
        assert column(rows, "outcome") == ["served", "rejected_too_long", "served"]
        assert column(rows, "replica_id") == [chosen, None, chosen]
        assert column(rows, "matched_tokens") == [0, None, 4]
        assert column(rows, "ttft_ms") == [0.10, None, 0.03]
        assert totals[policy]["rejected"] == {
            "rejected_empty": 0,
            "rejected_too_long": 1,
            "rejected_pinned": 0,
            "rejected_no_replica": 0,
            "failed": 0,
        }
        assert totals[policy]["cache_hit_ratio"] == round(4 / 9, 4)
        assert _report(run, "ttft")[policy]["missing"] == 1


def test_what_a_rejected_request_never_had_is_null_and_the_rest_is_there(small_run: Path) -> None:
    always = {"request_id", "seq", "arrival", "outcome", "prompt_tokens", "is_warmup"}
    always |= {c.name for c in CARRIED_COLUMNS}
    names = {c.name for c in DECISIONS} - {"queued_requests", "running_requests"}
    for policy in POLICIES:
        looks_up = {"believed_matched_tokens"} if policy != "round_robin" else set()
        rows = decisions(small_run, policy)
        assert column(rows, "request_id") == [f"r{i}" for i in range(len(SMALL))]
        assert column(rows, "prompt_tokens") == [len(p) for p in SMALL]
        rejected = [row for row in rows if row["outcome"] != "served"]
        assert column(rejected, "outcome") == ["rejected_too_long", "rejected_empty"]
        for row in rejected:
            assert {n for n in names - always if row[n] is not None} == set()
        for row in rows:
            if row["outcome"] == "served":
                there = {n for n in names - always if row[n] is not None}
                assert there == names - always - {"believed_matched_tokens"} | looks_up
                assert row["ttft_ms"] >= 0


def test_carried_columns_come_through_unchanged(small_run: Path) -> None:
    for policy in POLICIES:
        assert column(decisions(small_run, policy), "tenant") == ["a", "b", "a", None, "a", "b"]


@pytest.mark.parametrize(
    ("prompts", "fleet"),
    [
        (SMALL, FleetConfig(2, 6)),
        (grouped_prompts(7, 200), FleetConfig(3, 60)),
        (grouped_prompts(7, 40), FleetConfig(16, 1000)),
        ([(), (1, 2, 3, 4, 5, 6, 7)], FleetConfig(2, 6)),
        ([(1, 2), (1, *range(50, 80))], FleetConfig(1, 100)),  # a hit ratio of 1 / 33
        ([(1, 2), (1, *range(50, 79))], FleetConfig(1, 100)),  # of 1 / 32, half way at 4 digits
    ],
)
def test_totals_equal_the_sql_report(run: Path, prompts: Prompts, fleet: FleetConfig) -> None:
    all_totals = _replay(run, prompts, replace(SMALL_FLEET, fleet=fleet))["totals"]
    comparison, misses = _report(run, "policy_comparison"), _report(run, "miss_reasons")
    for policy, totals in all_totals.items():
        row, reasons = comparison[policy], misses[policy]
        assert totals["total_requests"] == row["requests"] == len(prompts)
        assert sum(totals["rejected"].values()) == row["rejected"]
        assert totals["max_ttft_ms"] == row["max_ttft_ms"]
        # at an exact half SQL rounds away from zero, the totals as Python does
        assert totals["cache_hit_ratio"] == pytest.approx(row["cache_hit_ratio"], abs=1.01e-4)
        assert totals["mean_ttft_ms"] == pytest.approx(row["mean_ttft_ms"], abs=1.01e-2)
        assert totals["total_evicted_tokens"] == row["evicted_tokens"]
        for name in ("prompt_tokens", "cold_tokens", "evicted_tokens_missed", "elsewhere_tokens"):
            assert totals[name] == reasons[name], name
        assert totals["prompt_tokens"] - totals["matched_tokens"] == reasons["computed_tokens"]


def test_a_mean_half_way_is_rounded_as_python_does_in_totals_and_alike_in_reports(
    run: Path,
) -> None:
    config = replace(SMALL_FLEET, cost=CostModel(), fleet=FleetConfig(1, 100))
    totals = _replay(run, [range(4), range(50, 56)], config)["totals"]
    reports = [_report(run, name) for name in ("policy_comparison", "ttft", "by_tenant")]
    for policy in POLICIES:
        means = {report[policy]["mean_ttft_ms"] for report in reports}
        assert means == {0.13}
        assert totals[policy]["mean_ttft_ms"] == round(0.125, 2) == 0.12


def test_loads_name_every_replica_idle_ones_too(run: Path) -> None:
    totals = _replay(run, [(5,), (5, 6), (5, 6, 7)], SMALL_FLEET)["totals"]
    idle = {"replica_id": 0, "routed_requests": 0, "cached_tokens": 0, "evicted_tokens": 0}
    loads = totals["pure_affinity"]["replica_loads"]
    assert loads == [idle, idle | {"replica_id": 1, "routed_requests": 3, "cached_tokens": 3}]
    extremes = ("max_replica_requests", "min_replica_requests")
    assert [totals["pure_affinity"][name] for name in extremes] == [3, 0]


def test_windows_are_dense_and_hold_what_a_replica_held_before(run: Path) -> None:
    times = [10 * SECOND + 500_000, 11 * SECOND, 14 * SECOND - 1, 14 * SECOND]
    _replay(run, [(5,), (5, 6), (4, 4), (5, 6, 7)], SMALL_FLEET, times)
    rows = rows_of(run / "replicas" / "policy=pure_affinity" / "part-0.parquet")
    seconds = [row["window_start"].timestamp() for row in rows]
    assert seconds == [10, 10, 11, 11, 12, 12, 13, 13, 14, 14]
    assert column(rows, "replica_id") == [0, 1] * 5
    assert column(rows, "window_ms") == [1000.0] * 10
    assert column(rows, "requests") == [0, 1, 0, 1, 0, 0, 1, 0, 0, 1]
    assert column(rows, "resident_tokens") == [0, 1, 0, 2, 0, 2, 2, 2, 2, 3]
    assert column(rows, "prompt_tokens") == [0, 1, 0, 2, 0, 0, 2, 0, 0, 3]
    assert column(rows, "matched_tokens") == [0, 0, 0, 1, 0, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("batch", [3, 65_536])
@pytest.mark.parametrize("replicas", [1, 5])
def test_windows_add_up_to_the_decisions(run: Path, batch: int, replicas: int) -> None:
    prompts = grouped_prompts(7, 200)
    times = [i * i * 9_000 for i in range(200)]
    trace = write_trace(run.with_name("a.parquet"), prompts, times)
    replay_trace(trace, run, replace(SMALL_FLEET, fleet=FleetConfig(replicas, 60)), batch)
    for policy in POLICIES:
        windows = rows_of(run / "replicas" / f"policy={policy}" / "part-0.parquet")
        served = decisions(run, policy)
        starts = sorted(set(column(windows, "window_start")))
        assert 50 < len(starts) <= 100
        assert len(windows) == len(starts) * replicas
        for window in windows:
            end = window["window_start"].timestamp() + window["window_ms"] / 1000
            here = [
                row
                for row in served
                if row["replica_id"] == window["replica_id"]
                and window["window_start"].timestamp() <= row["arrival"].timestamp() < end
            ]
            for name, source in WINDOW_SUMS.items():
                assert window[name] == sum(row[source] if source else 1 for row in here), name
            waits = column(here, "queue_wait_ms")
            assert window["max_queue_wait_ms"] == max(waits, default=0)
            if here:
                assert window["resident_tokens"] == here[-1]["resident_tokens"]


@pytest.mark.parametrize(
    ("last_s", "window_s"),
    [(0, 1), (99, 1), (100, 5), (24 * 3600, 900), (365 * 86_400, 4 * 86_400)],
)
def test_a_window_is_as_long_as_the_trace_needs(run: Path, last_s: int, window_s: int) -> None:
    _replay(run, [(1,), (1,)], SMALL_FLEET, [0, last_s * SECOND])
    rows = rows_of(run / "replicas" / "policy=round_robin" / "part-0.parquet")
    assert set(column(rows, "window_ms")) == {window_s * 1000.0}


def test_evictions_name_who_lost_what_and_when_it_was_asked_for_again(run: Path) -> None:
    prompts = [(1, 1, 1, 1), (2, 2, 2, 2), (1, 1, 1, 1), (3,)]
    times = [0, SECOND, 3 * SECOND, 4 * SECOND]
    _replay(run, prompts, replace(SMALL_FLEET, fleet=FleetConfig(1, 5)), times)
    for policy in POLICIES:
        rows = rows_of(run / "evictions" / f"policy={policy}" / "part-0.parquet")
        assert column(rows, "seq") == [1, 2]
        assert column(rows, "evicted_tokens") == [4, 4]
        assert column(rows, "last_used_seq") == [0, 1]
        assert column(rows, "age_ms") == [1000.0, 2000.0]
        assert column(rows, "asked_again_seq") == [2, None]
        assert column(rows, "asked_again_ms") == [2000.0, None]
