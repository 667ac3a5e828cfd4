"""Runs after a warm-up trace: it is replayed like the trace itself, and no row tells of it."""

from dataclasses import replace
from pathlib import Path

import pytest
from engine_days import (
    POLICIES,
    busy,
    of_each_model,
    one_replica,
    random_day,
    table,
    warmed,
    write_day,
)
from samples import SMALL, column, decisions, names_in, write_trace

from pipeline.config import (
    ClockConfig,
    FleetConfig,
    SubsetConfig,
)
from pipeline.errors import UsageError
from pipeline.report import find_report, open_run, select
from pipeline.run import replay_trace

OF_TRACE = ("seq", "for_seq", "last_used_seq", "asked_again_seq")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize(("model", "policy"), of_each_model())
def test_the_rows_of_a_warmed_up_run_are_the_last_of_a_run_over_both_traces(
    tmp_path: Path, model: str, policy: str
) -> None:
    yesterday = random_day(1, 50, name="yesterday ")
    today = random_day(2, 70, begins_us=yesterday[-1].arrival_us, name="today ")
    warmup = write_day(tmp_path / "w.parquet", yesterday)
    trace = write_day(tmp_path / "t.parquet", today)
    both = write_day(tmp_path / "both.parquet", yesterday + today)
    config = busy(model, policy)
    replay_trace(trace, tmp_path / "run", warmed(config, warmup), 16)
    replay_trace(both, tmp_path / "long", config)

    rows = table(tmp_path / "run", "decisions", policy)
    assert column(rows, "seq") == list(range(70))
    long = table(tmp_path / "long", "decisions", policy)[50:]
    assert rows == [row | {"seq": row["seq"] - 50} for row in long]
    assert not any(column(rows, "is_warmup"))

    lost = table(tmp_path / "run", "evictions", policy)
    wanted = [row for row in table(tmp_path / "long", "evictions", policy) if row["seq"] >= 50]
    for row in wanted:
        for name in OF_TRACE:
            row[name] = None if row[name] is None or row[name] < 50 else row[name] - 50
    assert lost == wanted
    assert None in column(lost, "last_used_seq")


def test_what_the_trace_evicts_of_the_warm_up_was_used_by_no_request_of_the_trace(
    tmp_path: Path, run: Path
) -> None:
    warmup = write_trace(tmp_path / "w.parquet", [(1, 2, 3)], [0])
    trace = write_trace(tmp_path / "t.parquet", [(7, 8, 9), (1, 2)], [5_000, 9_000])
    replay_trace(trace, run, warmed(one_replica(4), warmup))
    [row, later] = table(run, "evictions", "cache_aware")
    assert {name: row[name] for name in ("seq", "for_seq", "last_used_seq")} == {
        "seq": 0, "for_seq": 0, "last_used_seq": None,
    }  # fmt: skip
    assert (row["evicted_tokens"], row["age_requests"], row["age_ms"]) == (3, 1, 5.0)
    assert (row["asked_again_seq"], row["asked_again_ms"], row["asked_again_tokens"]) == (1, 4.0, 2)
    assert [later[name] for name in OF_TRACE] == [1, 1, 0, None]
    missed = decisions(run, "cache_aware")[1]
    assert (missed["cold_tokens"], missed["evicted_tokens_missed"]) == (0, 2)


def test_a_request_of_the_warm_up_that_is_in_flight_completes_during_the_trace(
    tmp_path: Path, run: Path
) -> None:
    # Yesterday's prompt runs from 0 to 3 ms and ends at 33. Its output then takes the place of
    # today's first, which ended at 12, and is found by the second.
    day = random_day(1, 1)[0]._replace(namespace=None, tenant="w")
    yesterday = [day._replace(prompt=(1, 2, 3), output=(4, 5, 6), arrival_us=0, output_tokens=3)]
    today = [
        day._replace(prompt=(7, 8), output=(), arrival_us=10_000, output_tokens=None),
        day._replace(prompt=(1, 2, 3, 4, 5, 6), output=(), arrival_us=40_000, output_tokens=0),
    ]
    warmup = write_day(tmp_path / "w.parquet", yesterday)
    trace = write_day(tmp_path / "t.parquet", today)
    config = one_replica(6, in_flight="pins", cache_output=True)
    told = replay_trace(trace, run, warmed(config, warmup))
    rows = decisions(run, "cache_aware")
    assert column(rows, "running_requests") == [1, 0]
    assert column(rows, "queued_requests") == [0, 0]
    assert column(rows, "queue_wait_ms") == [0.0, 0.0]
    assert column(rows, "resident_tokens") == [5, 6]
    assert column(rows, "matched_tokens") == [0, 6]
    assert column(rows, "evicted_tokens") == [0, 0]
    [row] = table(run, "evictions", "cache_aware")
    assert [row[name] for name in OF_TRACE] == [0, None, 0, None]
    assert (row["evicted_tokens"], row["start_tokens"], row["age_requests"]) == (2, 0, 0)
    assert told["totals"]["cache_aware"]["total_evicted_tokens"] == 2
    assert told["replayed"] == {
        "requests": 2,
        "counted_requests": 2,
        "warmup_trace_requests": 1,
        "without_output_tokens": 1,
        "unmet_absences": 0,
    }


def test_decisions_after_a_warm_up_join_with_the_trace_itself(tmp_path: Path, run: Path) -> None:
    warmup = write_trace(tmp_path / "w.parquet", SMALL, tenant=["w"] * 6)
    trace = write_trace(tmp_path / "t.parquet", SMALL, tenant=["a", "b", "a", None, "a", "b"])
    replay_trace(trace, run, warmed(one_replica(20), warmup))
    joined = select(
        open_run(run),
        "select count(*) as rows from decisions join trace using (seq, request_id, arrival,"
        " prompt_tokens) where decisions.tenant is not distinct from trace.tenant",
    )
    assert joined.to_pylist() == [{"rows": 6}]


def test_windows_and_totals_begin_with_the_trace_but_tell_all_that_is_resident(
    tmp_path: Path, run: Path
) -> None:
    # Without a match, pure_affinity sends 1 to the second replica and 2 to the first.
    warmup = write_trace(tmp_path / "w.parquet", [(1, 2, 3), (2,)], [0, 1000])
    trace = write_trace(tmp_path / "t.parquet", [(2, 2), (2, 2, 4)], [60_000_000, 61_000_000])
    config = replace(one_replica(9), fleet=FleetConfig(2, 9), policies=("pure_affinity",))
    totals = replay_trace(trace, run, warmed(config, warmup))["totals"]["pure_affinity"]
    assert (totals["total_requests"], totals["prompt_tokens"]) == (2, 5)
    assert totals["matched_tokens"] == 3
    assert totals["replica_loads"] == [
        {"replica_id": 0, "routed_requests": 2, "cached_tokens": 3, "evicted_tokens": 0},
        {"replica_id": 1, "routed_requests": 0, "cached_tokens": 3, "evicted_tokens": 0},
    ]
    windows = table(run, "replicas", "pure_affinity")
    assert [row["window_start"].timestamp() for row in windows] == [60, 60, 61, 61]
    assert column(windows, "requests") == [1, 0, 1, 0]
    assert column(windows, "prompt_tokens") == [2, 0, 3, 0]
    assert column(windows, "resident_tokens") == [2, 3, 3, 3]


@pytest.mark.parametrize(("times", "clock"), [([9, 9], "arrivals"), ([9, 10], "timestamps")])
def test_the_clock_is_that_of_the_trace_and_not_of_its_warm_up(
    tmp_path: Path, run: Path, times: list[int], clock: str
) -> None:
    warmup = write_trace(tmp_path / "w.parquet", [(1,), (2,)], [0, 5])
    trace = write_trace(tmp_path / "t.parquet", [(1,), (2,)], times)
    told = replay_trace(trace, run, warmed(one_replica(9), warmup))
    assert told["config"]["chosen_clock"] == clock


def test_a_trace_and_a_share_warm_up_one_after_the_other(tmp_path: Path, run: Path) -> None:
    warmup = write_trace(tmp_path / "w.parquet", [(1, 2), (5,), (6,)], [0, 1000, 2000])
    trace = write_trace(
        tmp_path / "t.parquet", [(1, 2, 3), (1, 2, 3, 4), (5, 5)], [3000, 4000, 5000]
    )
    told = replay_trace(trace, run, warmed(one_replica(99), warmup, 0.5))
    assert told["replayed"] == {
        "requests": 3,
        "counted_requests": 2,
        "warmup_trace_requests": 3,
        "without_output_tokens": 0,
        "unmet_absences": 0,
    }
    rows = decisions(run, "cache_aware")
    assert column(rows, "is_warmup") == [True, False, False]
    assert column(rows, "matched_tokens") == [2, 3, 1]
    totals = told["totals"]["cache_aware"]
    assert (totals["matched_tokens"], totals["prompt_tokens"]) == (4, 6)
    defined = select(open_run(run), find_report("hit_ratio_definitions").sql).to_pylist()
    assert [row["hit_ratio"] for row in defined][:2] == [0.6667, 0.6667]
    assert [int(row["denominator"]) for row in defined][:2] == [6, 9]


def test_a_warm_up_of_which_nothing_is_chosen_is_refused(tmp_path: Path, run: Path) -> None:
    warmup = write_trace(tmp_path / "w.parquet", [(1,), (2,)], tenant=["a", "b"])
    trace = write_trace(tmp_path / "t.parquet", [(1,), (2,)], tenant=["b", "c"])
    config = one_replica(9)
    chosen = replace(config, subset=SubsetConfig("tenant = 'c'", warmup=str(warmup)))
    with pytest.raises(UsageError) as caught:
        replay_trace(trace, run, chosen)
    assert str(caught.value) == (
        f"{warmup}: where and sample leave none of its 2 requests to warm up with: they hold for"
        " both traces"
    )
    assert "run" not in names_in(tmp_path)


@pytest.mark.parametrize("where", ["seq > 0", "tenant = 'a' or PREFIX_SEQ is null"])
def test_row_numbers_are_no_choice_in_a_run_with_a_warm_up(
    tmp_path: Path, small_trace: Path, run: Path, where: str
) -> None:
    warmup = write_trace(tmp_path / "w.parquet", SMALL)
    subset = SubsetConfig(where, warmup=str(warmup))
    with pytest.raises(UsageError) as caught:
        replay_trace(small_trace, run, replace(one_replica(9), subset=subset))
    assert str(caught.value) == (
        f"where is {where!r}: with a warm-up, row numbers are not those of the trace"
    )


def test_a_predicate_holds_for_the_warm_up_too(tmp_path: Path, run: Path) -> None:
    warmup = write_trace(tmp_path / "w.parquet", [(1, 2), (1, 2, 3)], tenant=["a", "b"])
    trace = write_trace(tmp_path / "t.parquet", [(1,), (1, 2, 3)], tenant=["b", "a"])
    subset = SubsetConfig("tenant = 'a'", warmup=str(warmup))
    told = replay_trace(trace, run, replace(one_replica(9), subset=subset))
    [row] = decisions(run, "cache_aware")
    assert (row["seq"], row["matched_tokens"], row["cold_tokens"]) == (1, 2, 1)
    assert (told["replayed"]["requests"], told["replayed"]["warmup_trace_requests"]) == (1, 1)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_begins_where_the_warm_up_left_it(tmp_path: Path, run: Path, policy: str) -> None:
    warmup = write_trace(tmp_path / "w.parquet", [(1,), (2, 2), (3,)])
    trace = write_trace(tmp_path / "t.parquet", [(3, 1), (8,)])
    config = replace(
        one_replica(99),
        fleet=FleetConfig(4, 99),
        clock=ClockConfig("arrivals", 0.0),
        policies=(policy,),
    )
    replay_trace(trace, run, warmed(config, warmup))
    wanted = {
        "round_robin": [3, 0],  # its next turns
        "pure_affinity": [3, 0],  # where 3 is, 8 modulo 4
        "cache_aware": [3, 0],  # queues of 1, 2, 1 and 0 ms; then of 1, 2, 1 and 2 ms
    }
    assert column(decisions(run, policy), "replica_id") == wanted[policy]
