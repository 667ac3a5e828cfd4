"""A run folder: what it says of itself, and that it replaces only its own kind, as a whole."""

import json
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from samples import (
    SMALL,
    SMALL_FLEET,
    grouped_prompts,
    names_in,
    parquet_bytes,
    rows_of,
    write_large_trace,
    write_trace,
)

import pipeline
from pipeline import run as run_module
from pipeline.config import ENGINES, ClockConfig, FleetConfig, ReplayConfig
from pipeline.errors import RunError, TraceError, UsageError
from pipeline.run import replay_trace
from pipeline.tables import DECISIONS, EVICTIONS, REPLICAS, schema
from pipeline.trace import writer

POLICIES = ("round_robin", "pure_affinity", "cache_aware")
BUSY = replace(SMALL_FLEET, fleet=FleetConfig(3, 60))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "day.parquet", grouped_prompts(7, 200), range(0, 200_000, 1000))


def test_a_run_has_three_tables_by_policy_and_one_description(small_run: Path) -> None:
    tables = {"decisions", "evictions", "replicas"}
    assert names_in(small_run) == {*tables, "run.json"}
    for name in tables:
        assert names_in(small_run / name) == {f"policy={policy}" for policy in POLICIES}
        for policy in POLICIES:
            assert names_in(small_run / name / f"policy={policy}") == {"part-0.parquet"}


@pytest.mark.parametrize(
    ("table", "columns"),
    [("decisions", DECISIONS), ("evictions", EVICTIONS), ("replicas", REPLICAS)],
)
def test_every_file_of_a_run_has_the_schema_of_its_contract(
    small_run: Path, table: str, columns: Any
) -> None:
    for file in (small_run / table).rglob("*.parquet"):
        assert pq.read_schema(file) == schema(columns)


def test_run_json_says_what_was_replayed_and_how(small_trace: Path, small_run: Path) -> None:
    run = json.loads((small_run / "run.json").read_text(encoding="utf-8"))
    assert list(run) == [
        "format", "schema_version", "versions", "trace", "replayed", "config", "totals",
        "timings", "lanes",
    ]  # fmt: skip
    assert (run["format"], run["schema_version"]) == ("replay-run", "1")
    assert run["versions"]["replay-pipeline"] == pipeline.__version__
    assert run["versions"]["numba"] == version("numba")
    assert run["trace"]["path"] == str(small_trace)
    assert run["trace"]["requests"] == len(SMALL)
    assert len(run["trace"]["fingerprint"]) == 32
    chosen = {
        "source": "the reference", "parameters": {}, "router_view": "exact", "router_tokens": None,
        "router_ttl_ms": None, "chooses_at_random": False, "seeds": 1,
    }  # fmt: skip
    assert run["config"] == {
        "fleet": {"replicas": 2, "capacity_tokens": 6, "each": [], "absences": []},
        "engine": asdict(ENGINES["reference"]),
        "cost": asdict(SMALL_FLEET.cost),
        "clock": {"clock": "arrivals", "decay_ms_per_arrival": 12.0},
        "subset": {"where": None, "sample": 1.0, "warmup": None, "warmup_fraction": 0.0},
        "routing": asdict(ReplayConfig().routing),
        "policies": list(POLICIES),
        "chosen_clock": "arrivals",
        "chosen_block_tokens": 1,
        "chosen_policies": [
            chosen | {"policy": policy, "name": policy, "tie": tie}
            for policy, tie in zip(POLICIES, (None, "lowest", "lowest"), strict=True)
        ],
    }
    assert run["replayed"] == {
        "requests": len(SMALL),
        "counted_requests": len(SMALL),
        "warmup_trace_requests": 0,
        "without_output_tokens": 0,
        "unmet_absences": 0,
    }
    assert list(run["totals"]) == list(POLICIES)
    lanes = [(lane["policy"], lane["seed"], lane["requests"]) for lane in run["lanes"]]
    assert lanes == [(policy, 0, len(SMALL)) for policy in POLICIES]


def test_timings_are_seconds_and_what_is_done_alone_fits_into_the_whole(trace: Path) -> None:
    timings = replay_trace(trace, trace.with_name("run"), BUSY)["timings"]
    assert list(timings) == ["link_s", "tree_s", "replay_s", "write_s", "total_s"]
    assert all(isinstance(s, float) and s >= 0 for s in timings.values())
    assert timings["link_s"] + timings["tree_s"] <= timings["total_s"]


def test_the_result_is_what_run_json_holds(trace: Path) -> None:
    run = replay_trace(trace, trace.with_name("run"), BUSY)
    stored = json.loads((trace.with_name("run") / "run.json").read_text(encoding="utf-8"))
    assert json.loads(json.dumps(run)) == stored


def test_a_rerun_gives_the_same_bytes(trace: Path) -> None:
    runs = [trace.with_name("one"), trace.with_name("two")]
    for run in runs:
        replay_trace(trace, run, BUSY)
    assert parquet_bytes(runs[0]) == parquet_bytes(runs[1])


@pytest.mark.parametrize("batch", [1, 7, 199, 200, 201])
def test_the_size_of_a_batch_changes_no_row(
    trace: Path, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_TOKENS", 1000)
    write_trace(trace, grouped_prompts(7, 200), range(0, 200_000, 1000))
    one, other = trace.with_name("one"), trace.with_name("other")
    totals = [
        replay_trace(trace, one, BUSY)["totals"],
        replay_trace(trace, other, BUSY, batch)["totals"],
    ]
    assert totals[0] == totals[1]
    files = sorted(p.relative_to(one) for p in one.rglob("*.parquet"))
    assert len(files) == 9
    for file in files:
        assert rows_of(one / file) == rows_of(other / file)


def test_a_policy_decides_the_same_alone_and_among_others(trace: Path) -> None:
    replay_trace(trace, trace.with_name("all"), BUSY)
    together = parquet_bytes(trace.with_name("all"))
    for policy in POLICIES:
        replay_trace(trace, trace.with_name("one"), replace(BUSY, policies=(policy,)))
        alone = parquet_bytes(trace.with_name("one"))
        assert len(alone) == 3
        assert alone == {name: together[name] for name in alone}


def test_a_run_replaces_the_one_before_and_leaves_nothing_of_it(trace: Path) -> None:
    run = trace.with_name("run")
    replay_trace(trace, run, BUSY)
    replay_trace(trace, run, replace(BUSY, policies=("cache_aware",)))
    assert names_in(run / "decisions") == {"policy=cache_aware"}
    assert names_in(trace.parent) == {"day.parquet", "run"}


def test_a_run_that_fails_midway_leaves_the_one_before(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = trace.with_name("run")
    replay_trace(trace, run, BUSY)
    before = parquet_bytes(run)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("pipeline.decisions.DecisionWriter.write", fail)
    with pytest.raises(OSError, match="disk full"):
        replay_trace(trace, run, replace(BUSY, policies=("cache_aware",)))
    assert parquet_bytes(run) == before
    assert names_in(trace.parent) == {"day.parquet", "run"}


def test_an_empty_folder_becomes_a_run_with_its_parents(trace: Path) -> None:
    run = trace.with_name("runs") / "deep" / "day"
    run.mkdir(parents=True)
    replay_trace(trace, run, BUSY)
    replay_trace(trace, trace.with_name("new") / "deep" / "day", BUSY)
    assert (run / "run.json").is_file()
    assert names_in(run.parent) == {"day"}


@pytest.mark.parametrize("description", [None, "", "[]", "{}", '{"format": "other"}', "\xff"])
def test_a_folder_that_is_not_a_run_of_ours_is_not_touched(
    trace: Path, description: str | None
) -> None:
    folder = trace.with_name("mine")
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    if description is not None:
        (folder / "run.json").write_text(description, encoding="latin-1")
    before = {p.name: p.read_bytes() for p in folder.iterdir()}
    with pytest.raises(RunError, match="mine: exists and is not a run folder: remove it, or name"):
        replay_trace(trace, folder, BUSY)
    assert {p.name: p.read_bytes() for p in folder.iterdir()} == before
    assert names_in(trace.parent) == {"day.parquet", "mine"}


def test_a_file_is_not_replaced_by_a_run(trace: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        replay_trace(trace, trace, BUSY)
    assert rows_of(trace)


def test_settings_are_checked_before_anything_is_read_or_written(tmp_path: Path) -> None:
    run, nowhere = tmp_path / "run", tmp_path / "nowhere.parquet"
    with pytest.raises(UsageError, match="batch-requests is 0: give 1 to 100,000,000"):
        replay_trace(nowhere, run, BUSY, 0)
    with pytest.raises(UsageError, match=r"'cache_awar' \(did you mean cache_aware\?\)"):
        replay_trace(nowhere, run, replace(BUSY, policies=("cache_awar",)))
    with pytest.raises(UsageError, match="policy round_robin is named twice"):
        replay_trace(nowhere, run, replace(BUSY, policies=("round_robin", "round_robin")))
    with pytest.raises(TraceError, match="no such file"):
        replay_trace(nowhere, run, BUSY)
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("asked", "arrival_us", "chosen"),
    [
        (None, [5, 5, 5], "arrivals"),
        (None, [5, 5, 6], "timestamps"),
        ("arrivals", [5, 5, 6], "arrivals"),
        ("timestamps", [5, 5, 5], "timestamps"),
    ],
)
def test_the_clock_is_that_of_the_trace_if_its_arrivals_differ(
    tmp_path: Path, asked: str | None, arrival_us: list[int], chosen: str
) -> None:
    trace = write_trace(tmp_path / "a.parquet", [[1], [2], [3]], arrival_us)
    config = ReplayConfig(clock=ClockConfig(asked))
    run = replay_trace(trace, tmp_path / "run", config)
    assert run["config"]["chosen_clock"] == chosen
    assert run["config"]["clock"]["clock"] == asked


def test_a_trace_without_tokens_is_replayed_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    step = run_module.Lane.step

    def count(self: Any, batch: Any, *rest: Any) -> None:
        sizes.append(len(batch.carried))
        step(self, batch, *rest)

    monkeypatch.setattr(run_module.Lane, "step", count)
    trace = write_large_trace(tmp_path / "a.parquet", 10_000)
    replay_trace(trace, tmp_path / "run", replace(BUSY, policies=("round_robin",)), 3000)
    assert sizes == [3000, 3000, 3000, 1000]
