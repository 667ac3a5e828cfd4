"""Runs under engines' settings hold to the oracle, to a recount, and to themselves."""

from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from engine_days import MODELS, POLICIES, Day, busy, of_each_model, random_day, table, write_day
from engine_oracle import CacheState, Model, Request
from engine_oracle import replay as replay_oracle
from samples import column, decisions, parquet_bytes

from pipeline.run import replay_trace

IN_FLIGHT = [name for name, model in MODELS.items() if model.in_flight == "pins"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace.parquet"


def oracles(day: Day, model: str, policy: str) -> Any:
    """Return what the oracle tells of a day under `busy`'s fleet."""
    config = busy(model)
    settings = {k: v for k, v in asdict(config.engine).items() if k not in ("name", "own_blocks")}
    times = [one.arrival_us / 1000 for one in day]
    return replay_oracle(
        [Request(one.prompt, one.output, one.output_tokens, one.namespace) for one in day],
        policy=policy,
        model=Model(**settings),
        drain_ms=[0.0, *(later - earlier for earlier, later in pairwise(times))],
        replicas=config.fleet.replicas,
        capacity_tokens=config.fleet.capacity_tokens,
        **asdict(config.cost),
    )


def resident(cache: CacheState, block_tokens: int) -> int:
    """Count the tokens of all blocks that lie on the paths in a cache."""
    blocks = {
        (name, path[: first + block_tokens]): len(path[first : first + block_tokens])
        for name, path in cache.paths
        for first in range(0, len(path), block_tokens)
    }
    return sum(blocks.values())


@pytest.mark.parametrize(("model", "policy"), of_each_model())
def test_a_run_tells_what_the_oracle_tells(trace: Path, run: Path, model: str, policy: str) -> None:
    day = random_day(21, 90)
    totals = replay_trace(write_day(trace, day), run, busy(model, policy), 40)["totals"]
    wanted = oracles(day, model, policy)
    for row, decision in zip(decisions(run, policy), wanted.decisions, strict=True):
        told = asdict(decision)
        assert {name: row[name] for name in told} == told
    lost = table(run, "evictions", policy)
    assert [
        (row["seq"], row["for_seq"], row["replica_id"])
        for row in lost
        for _ in range(row["evicted_nodes"])
    ] == [(row.seq, row.for_seq, row.replica_id) for row in wanted.evictions]
    held = [resident(cache, MODELS[model].block_tokens) for cache in wanted.caches]
    assert column(totals[policy]["replica_loads"], "cached_tokens") == held
    assert column(table(run, "replicas", policy)[-2:], "resident_tokens") == held


@pytest.mark.parametrize("model", IN_FLIGHT)
def test_requests_in_flight_are_those_that_times_and_outputs_tell(
    trace: Path, run: Path, model: str
) -> None:
    day = random_day(22, 150)
    replay_trace(write_day(trace, day), run, busy(model))
    most = 0
    for policy in POLICIES:
        before: list[tuple[int, int, int]] = []
        for row, one in zip(decisions(run, policy), day, strict=True):
            if row["outcome"] != "served":
                assert row["queued_requests"] is row["running_requests"] is None
                continue
            now = one.arrival_us * 10
            here = [(start, end) for replica, start, end in before if replica == row["replica_id"]]
            assert row["queued_requests"] == sum(start > now for start, _ in here)
            assert row["running_requests"] == sum(start <= now < end for start, end in here)
            most = max(most, row["queued_requests"], row["running_requests"])
            start = now + round(row["queue_wait_ms"] * 10_000)
            end = start + round(row["exec_ms"] * 10_000) + (one.output_tokens or 0) * 15_000
            before.append((row["replica_id"], start, end))
    assert most >= 2


@pytest.mark.parametrize("model", [name for name in MODELS if name not in IN_FLIGHT])
def test_without_requests_in_flight_nothing_is_told_of_them(
    trace: Path, run: Path, model: str
) -> None:
    replay_trace(write_day(trace, random_day(22, 20)), run, busy(model, "cache_aware"))
    rows = decisions(run, "cache_aware")
    for name in ("queued_requests", "running_requests"):
        assert set(column(rows, name)) == {None}


@pytest.mark.parametrize("model", ["sglang", "vllm in flight", "a mixture"])
def test_a_rerun_gives_the_same_bytes_and_single_requests_the_same_rows(
    trace: Path, tmp_path: Path, model: str
) -> None:
    write_day(trace, random_day(23, 40))
    told = {
        name: replay_trace(trace, tmp_path / name, busy(model), size)["totals"]
        for name, size in (("one", 65_536), ("again", 65_536), ("single", 1))
    }
    assert parquet_bytes(tmp_path / "one") == parquet_bytes(tmp_path / "again")
    assert told["one"] == told["again"] == told["single"]
    for name in ("decisions", "evictions", "replicas"):
        for policy in POLICIES:
            assert table(tmp_path / "one", name, policy) == table(tmp_path / "single", name, policy)


@pytest.mark.parametrize(("model", "policy"), of_each_model())
def test_evicted_tokens_are_the_same_in_evictions_windows_and_totals(
    trace: Path, run: Path, model: str, policy: str
) -> None:
    totals = replay_trace(write_day(trace, random_day(24, 90)), run, busy(model, policy))["totals"]
    lost, windows = (table(run, name, policy) for name in ("evictions", "replicas"))
    evicted = sum(column(lost, "evicted_tokens"))
    assert evicted == sum(column(windows, "evicted_tokens")) > 0
    assert evicted == totals[policy]["total_evicted_tokens"]
    for load in totals[policy]["replica_loads"]:
        for rows in (lost, windows):
            here = [row for row in rows if row["replica_id"] == load["replica_id"]]
            assert sum(column(here, "evicted_tokens")) == load["evicted_tokens"]
    # A decision tells what its prompt evicted; outputs that are kept evict beside it.
    for row in decisions(run, policy):
        own = [e for e in lost if e["seq"] == e["for_seq"] == row["seq"]]
        if not MODELS[model].cache_output:
            assert (row["evicted_tokens"] or 0) == sum(column(own, "evicted_tokens"))
            assert (row["evicted_nodes"] or 0) == sum(column(own, "evicted_nodes"))
