"""Traces that would replay to nonsense without a word are refused instead."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from samples import SMALL_FLEET, write_trace

from pipeline.config import ClockConfig, CostModel
from pipeline.errors import TraceError, UsageError
from pipeline.run import replay_trace
from pipeline.tokenize import TokenizeSettings, tokenize_logs
from pipeline.trace import TraceFile


def foreign(path: Path, arrival_us: list[int]) -> Path:
    times = pl.Series("arrival", arrival_us).cast(pl.Datetime("us"))
    frame = pl.DataFrame({"prompt_token_ids": [[1, 2]] * len(arrival_us)})
    frame.with_columns(times).write_parquet(path)
    return path


def test_an_arrival_beyond_year_9999_is_refused(tmp_path: Path) -> None:
    trace = foreign(tmp_path / "a.parquet", [0, 10**18])
    with pytest.raises(TraceError, match="row 1: its arrival is beyond year 9999"):
        replay_trace(trace, tmp_path / "run", SMALL_FLEET)
    assert not (tmp_path / "run").exists()


def test_costs_that_pass_64_bits_are_refused(tmp_path: Path) -> None:
    trace = foreign(tmp_path / "a.parquet", [0, 200_000_000_000_000_000])
    config = replace(SMALL_FLEET, clock=ClockConfig("timestamps"), cost=CostModel(1e6, 1e6))
    assert replay_trace(trace, tmp_path / "run", config)["totals"]
    trace = foreign(tmp_path / "b.parquet", [-(10**16) * 6, 250_000_000_000_000_000])
    assert replay_trace(trace, tmp_path / "run2", config)["totals"]
    huge = write_trace(tmp_path / "c.parquet", [[1, 2]])
    table = pl.read_parquet(huge).drop("prompt_token_ids")
    lengths = pl.Series("prompt_tokens", [2**32 - 1]).cast(pl.UInt32)
    many = pl.concat([table.with_columns(lengths)] * 200_000)
    seq = pl.int_range(pl.len(), dtype=pl.UInt64)
    many = many.with_columns(seq=seq, first_token_id=seq)
    many.write_parquet(huge)
    with pytest.raises(UsageError, match="pass what 64 bits"):
        replay_trace(huge, tmp_path / "run3", config)


def test_links_that_say_nothing_is_shared_although_it_is_are_refused(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.parquet", [[1, 2], [1, 2, 3]])
    stale = pl.read_parquet(path).with_columns(
        prefix_seq=pl.lit(None, pl.UInt64), prefix_tokens=pl.lit(0, pl.UInt32)
    )
    stale.write_parquet(tmp_path / "stale.parquet")
    with pytest.raises(TraceError, match="row 1: prefix_tokens is 0, which is less than"):
        TraceFile.open(tmp_path / "stale.parquet").columns()


def test_a_trace_whose_name_is_given_to_another_meanwhile_is_read_on_as_it_was(
    tmp_path: Path,
) -> None:
    path = write_trace(tmp_path / "a.parquet", [[1, 2]])
    other = write_trace(tmp_path / "b.parquet", [[1, 2], [3]])
    trace = TraceFile.open(path)
    trace.columns()
    shutil.move(other, path)
    assert [len(batch) for batch in trace.batches(["seq"], 10)] == [1]


@pytest.mark.parametrize(
    ("line", "requests"),
    [
        ('{"timestamp": 1, "request_id": "a\\ud800", "prompt": "x"}', 2),
        ('{"timestamp": 1' + "0" * 400 + ', "prompt": "x"}', 1),
    ],
)
def test_an_odd_line_does_not_end_the_others(tmp_path: Path, line: str, requests: int) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text(f'{line}\n{{"timestamp": 2, "prompt": "y"}}\n', encoding="utf-8")
    summary = tokenize_logs([log], tmp_path / "t.parquet", TokenizeSettings(max_rejects=0.5))
    assert summary.requests == requests


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_a_query(tmp_path: Path, number: signal.Signals, code: int) -> None:
    run = tmp_path / "run"
    replay_trace(write_trace(tmp_path / "a.parquet", [[1, 2]]), run, SMALL_FLEET)
    query = "select count(*) from range(10000000) a, range(10000000) b where a.range + b.range > 5"
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline.cli", "sql", str(run), query],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(3)
    os.kill(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"Traceback" not in errors
