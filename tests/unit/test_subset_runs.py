"""Runs of a part of a trace: its requests decide as if no others had ever been in the trace."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from engine_days import (
    Day,
    Request,
    busy,
    of_each_model,
    one_replica,
    random_day,
    table,
    warmed,
    write_day,
)
from samples import SMALL, Row, column, decisions, names_in, rows_of, write_tokens, write_trace

from pipeline.config import ClockConfig, ReplayConfig, SubsetConfig
from pipeline.errors import UsageError
from pipeline.prepare import write_links
from pipeline.report import open_run, select
from pipeline.run import replay_trace
from pipeline.trace import TraceFile

PREDICATES: list[tuple[str, Callable[[int, Request], bool]]] = [
    ("tenant = 'a'", lambda _, one: one.tenant == "a"),
    ("output_tokens > 2", lambda _, one: (one.output_tokens or 0) > 2),
    ("seq % 3 <> 1", lambda seq, _: seq % 3 != 1),
    ("tenant is null or session_id is null", lambda _, one: None in (one.tenant, one.session_id)),
]
REQUESTS = ("seq", "for_seq", "last_used_seq", "asked_again_seq")
TENANTS = ["a", "b", "a", None, "a", "b"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def chosen(config: ReplayConfig, where: str | None = None, sample: float = 1.0) -> ReplayConfig:
    return replace(config, subset=SubsetConfig(where, sample))


def filtered(trace: Path, seqs: list[int]) -> Path:
    """Write some of a trace's rows as a trace of their own, linked anew."""
    rows, linked = trace.with_name("rows.parquet"), trace.with_name("filtered.parquet")
    pq.write_table(pq.ParquetFile(trace).read().take(seqs), rows)
    write_links(TraceFile.open(rows), linked)
    return linked


def numbered(rows: list[Row], seqs: list[int]) -> list[Row]:
    """Return rows of a filtered trace with the numbers that its requests had before."""
    for row in rows:
        row |= {n: seqs[row[n]] for n in REQUESTS if row.get(n) is not None}
    return rows


def check_like_filtered(trace: Path, seqs: list[int], part: ReplayConfig) -> None:
    """Hold a run of a part of a trace against a run of these rows alone."""
    runs = trace.with_name("part"), trace.with_name("alone")
    told = [
        replay_trace(trace, runs[0], part, 16),
        replay_trace(filtered(trace, seqs), runs[1], replace(part, subset=SubsetConfig())),
    ]
    [policy] = part.policies
    for name in ("decisions", "evictions"):
        rows, alone = (table(run, name, policy) for run in runs)
        assert rows == numbered(alone, seqs)
    assert table(runs[0], "replicas", policy) == table(runs[1], "replicas", policy)
    assert told[0]["totals"] == told[1]["totals"]
    assert told[0]["replayed"] == told[1]["replayed"]
    assert told[0]["trace"]["requests"] == len(rows_of(trace))


@pytest.mark.parametrize("number", range(7))
def test_a_part_of_a_trace_decides_as_a_trace_of_these_rows_that_was_linked_anew(
    tmp_path: Path, number: int
) -> None:
    (model, policy), (where, holds) = of_each_model()[number], PREDICATES[number % 4]
    day = random_day(number, 120)
    seqs = [seq for seq, one in enumerate(day) if holds(seq, one)]
    assert 20 < len(seqs) < 100
    config = chosen(busy(model, policy), where)
    check_like_filtered(write_day(tmp_path / "t.parquet", day), seqs, config)
    assert table(tmp_path / "part", "evictions", policy)


@pytest.mark.parametrize(
    ("model", "policy"), [("reference", "cache_aware"), ("vllm", "round_robin")]
)
def test_with_the_clock_of_arrivals_only_requests_of_the_part_drain_queues(
    tmp_path: Path, model: str, policy: str
) -> None:
    day = random_day(8, 100)
    seqs = [seq for seq in range(100) if day[seq].tenant == "b"]
    config = replace(busy(model, policy), clock=ClockConfig("arrivals", 0.7))
    trace = write_day(tmp_path / "t.parquet", day)
    check_like_filtered(trace, seqs, chosen(config, "tenant = 'b'"))
    assert max(row["queue_wait_ms"] or 0 for row in decisions(tmp_path / "part", policy)) > 0


def test_the_clock_is_that_of_the_part(tmp_path: Path, run: Path) -> None:
    trace = write_trace(tmp_path / "t.parquet", [(1,)] * 4, [0, 9, 9, 10], tenant=list("abba"))
    clocks = {
        where: replay_trace(trace, run, chosen(one_replica(9), where))["config"]["chosen_clock"]
        for where in ("tenant = 'a'", "tenant = 'b'", "true")
    }
    assert list(clocks.values()) == ["timestamps", "arrivals", "timestamps"]


def test_a_sample_replays_whole_sessions_as_if_they_were_alone(tmp_path: Path) -> None:
    day = random_day(9, 150)
    trace = write_day(tmp_path / "t.parquet", day)
    config = chosen(busy("sglang", "cache_aware"), sample=0.5)
    replay_trace(trace, tmp_path / "run", config)
    seqs = column(decisions(tmp_path / "run", "cache_aware"), "seq")
    sessions = {one.session_id for one in day} - {None}
    kept = {day[seq].session_id for seq in seqs} - {None}
    assert 0 < len(kept) < len(sessions)
    assert {s for s in range(150) if day[s].session_id in kept} <= set(seqs)
    check_like_filtered(trace, seqs, config)


def test_decisions_keep_the_row_numbers_of_the_trace_and_join_with_it(
    small_trace: Path, run: Path
) -> None:
    told = replay_trace(small_trace, run, chosen(one_replica(20), "tenant <> 'b'"))
    rows = decisions(run, "cache_aware")
    assert column(rows, "seq") == [0, 2, 4]
    assert column(rows, "request_id") == ["r0", "r2", "r4"]
    assert column(rows, "outcome") == ["served", "served", "rejected_empty"]
    joined = select(
        open_run(run),
        "select seq, t.prefix_tokens from decisions join trace as t"
        " using (seq, request_id, arrival, prompt_tokens, tenant) order by seq",
    )
    assert joined.to_pylist() == [
        {"seq": 0, "prefix_tokens": 0},
        {"seq": 2, "prefix_tokens": 4},
        {"seq": 4, "prefix_tokens": 0},
    ]
    assert told["trace"]["requests"] == len(SMALL)
    assert told["replayed"]["requests"] == told["replayed"]["counted_requests"] == 3


def test_what_only_others_had_is_cold_and_they_are_not_asked_for_again(
    tmp_path: Path, run: Path
) -> None:
    # Without b, nobody had (1, 2) before the second, and its eviction is not regretted.
    prompts = [(1, 2), (1, 2, 3), (7, 8, 9), (1, 2, 3, 4), (7, 8)]
    trace = write_trace(tmp_path / "t.parquet", prompts, range(5), tenant=list("baabb"))
    replay_trace(trace, run, chosen(one_replica(4), "tenant = 'a'"))
    assert column(decisions(run, "cache_aware"), "cold_tokens") == [3, 3]
    [row] = table(run, "evictions", "cache_aware")
    assert [row[name] for name in REQUESTS] == [2, 2, 1, None]
    assert (row["asked_again_ms"], row["asked_again_tokens"]) == (None, 0)
    replay_trace(trace, run, one_replica(4))
    tail, head = table(run, "evictions", "cache_aware")[:2]
    for row in (tail, head):
        assert [row[name] for name in REQUESTS] == [2, 2, 1, 3]
    assert (tail["asked_again_tokens"], head["asked_again_tokens"]) == (1, 2)


def test_an_eviction_tells_how_many_requests_were_replayed_since_the_last_use(
    tmp_path: Path, run: Path
) -> None:
    trace = write_trace(
        tmp_path / "t.parquet",
        [(1, 2), (5,), (5,), (7, 8, 9)],
        [0, 1, 2, 5000],
        tenant=list("abba"),
    )
    replay_trace(trace, run, chosen(one_replica(4), "tenant = 'a'"))
    [row] = table(run, "evictions", "cache_aware")
    assert (row["seq"], row["last_used_seq"], row["age_requests"], row["age_ms"]) == (3, 0, 1, 5.0)


def test_windows_span_the_requests_that_are_replayed(tmp_path: Path, run: Path) -> None:
    times = [second * 1_000_000 for second in (0, 50, 52, 200)]
    trace = write_trace(
        tmp_path / "t.parquet", [(1,), (1,), (2,), (3,)], times, tenant=list("baab")
    )
    replay_trace(trace, run, chosen(one_replica(9), "tenant = 'a'"))
    windows = table(run, "replicas", "cache_aware")
    assert column(windows, "requests") == [1, 0, 1]
    assert {row["window_start"].timestamp() for row in windows} == {50, 51, 52}


@pytest.mark.parametrize(
    ("where", "sample"), [("tenant = 'z'", 1.0), (None, 1e-9), ("tenant = 'b' and seq = 0", 0.99)]
)
def test_nothing_is_written_where_nothing_is_left(
    tmp_path: Path, where: str | None, sample: float
) -> None:
    trace = write_trace(tmp_path / "t.parquet", SMALL, tenant=TENANTS)
    with pytest.raises(UsageError, match="6 requests none is left to replay"):
        replay_trace(trace, tmp_path / "run", chosen(one_replica(9), where, sample))
    assert names_in(tmp_path) == {"t.parquet"}


@pytest.mark.parametrize("where", ["tennant = 'a'", "prompt_tokens", "random() < 0.5", "("])
def test_a_predicate_is_refused_before_links_are_made(tmp_path: Path, where: str) -> None:
    foreign = write_tokens(tmp_path / "f.parquet", SMALL, tenant=TENANTS)
    with pytest.raises(UsageError, match="where is "):
        replay_trace(foreign, tmp_path / "run", chosen(one_replica(9), where))
    assert names_in(tmp_path) == {"f.parquet"}


def test_a_trace_without_links_gets_them_and_is_then_filtered(tmp_path: Path, run: Path) -> None:
    foreign = write_tokens(tmp_path / "f.parquet", SMALL, tenant=TENANTS)
    replay_trace(foreign, run, chosen(one_replica(20), "tenant = 'a' and prompt_tokens > 0"))
    rows = decisions(run, "cache_aware")
    assert column(rows, "request_id") == ["0", "2"]
    assert column(rows, "matched_tokens") == [0, 4]
    joined = "select seq from decisions join trace using (seq, request_id)"
    assert select(open_run(run), joined).num_rows == 2


def test_a_part_of_a_warmed_up_trace_is_that_part_of_both(tmp_path: Path) -> None:
    def of_a(day: Day) -> Day:
        return [one for one in day if one.tenant == "a"]

    yesterday = random_day(11, 60, name="yesterday ")
    today = random_day(12, 80, begins_us=yesterday[-1].arrival_us + 1000)
    config = busy("sglang in flight", "cache_aware")
    told: dict[str, Any] = {}
    for name, days, where in (
        ("part", (yesterday, today), "tenant = 'a'"),
        ("alone", (of_a(yesterday), of_a(today)), None),
    ):
        warmup, trace = (
            write_day(tmp_path / f"{name}{number}", day) for number, day in enumerate(days)
        )
        asked = warmed(config, warmup)
        asked = replace(asked, subset=replace(asked.subset, where=where))
        told[name] = replay_trace(trace, tmp_path / f"run of {name}", asked)
    rows, alone = (table(tmp_path / f"run of {n}", "decisions", "cache_aware") for n in told)
    assert rows == numbered(alone, [seq for seq, one in enumerate(today) if one.tenant == "a"])
    assert told["part"]["replayed"] == told["alone"]["replayed"]
    assert told["part"]["totals"] == told["alone"]["totals"]


def test_a_window_of_time_is_a_part_too(tmp_path: Path, run: Path) -> None:
    day = random_day(13, 60)
    middle = day[30].arrival_us
    trace = write_day(tmp_path / "t.parquet", day)
    where = f"arrival < '1970-01-01 00:00:{middle / 1e6:09.6f}'"
    replay_trace(trace, run, chosen(busy("vllm", "round_robin"), where))
    rows = decisions(run, "round_robin")
    assert column(rows, "seq") == [s for s in range(60) if day[s].arrival_us < middle]
