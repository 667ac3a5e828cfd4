"""The day that ships with the project: exact numbers, and why they must be so."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from pipeline.config import ReplayConfig
from pipeline.logs.lines import Line, read_lines
from pipeline.logs.streams import open_log
from pipeline.report import open_run
from pipeline.run import replay_trace
from pipeline.tokenize import tokenize_logs

TRACES = Path(__file__).parents[2] / "traces"
GOLDEN = {  # policy: hit ratio, mean and max TTFT in ms, evicted tokens, most on one replica
    "round_robin": (0.6827, 26.04, 679.11, 1_421_251, 676),
    "pure_affinity": (0.7923, 577.08, 7836.14, 1_246_930, 2390),
    "cache_aware": (0.7907, 19.21, 672.56, 838_806, 2444),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("day1") / "run"
    replay_trace(TRACES / "day1.parquet", target, ReplayConfig())
    return target


@pytest.fixture(scope="module")
def views(run: Path) -> duckdb.DuckDBPyConnection:
    return open_run(run)


@pytest.mark.parametrize("policy", GOLDEN)
def test_a_policy_gives_its_golden_numbers(views: duckdb.DuckDBPyConnection, policy: str) -> None:
    row = views.execute(
        "select round(sum(matched_tokens) / sum(prompt_tokens), 4), round(avg(ttft_ms), 2),"
        " max(ttft_ms), sum(evicted_tokens),"
        " (select max(n) from (select count(*) as n from decisions"
        "  where policy = $1 and outcome = 'served' group by replica_id))"
        " from decisions where policy = $1 and outcome = 'served'",
        [policy],
    ).fetchall()
    assert row == [GOLDEN[policy]]


def test_every_policy_computes_the_same_cold_tokens_and_no_more_than_all_are_hit(
    views: duckdb.DuckDBPyConnection,
) -> None:
    cold = views.sql("select distinct total from (select sum(cold_tokens) as total from decisions"
                     " group by policy)").fetchall()  # fmt: skip
    linked = views.sql("select sum(prompt_tokens) - sum(prefix_tokens) from trace").fetchall()
    assert cold == linked


def test_the_burst_overloads_the_warm_replica_under_pure_affinity_alone(
    views: duckdb.DuckDBPyConnection,
) -> None:
    waits = dict(views.sql("select policy, max(queue_wait_ms) from decisions"
                           " where tenant = 'reader' group by policy").fetchall())  # fmt: skip
    assert waits["pure_affinity"] > 50 * waits["cache_aware"]
    assert waits["pure_affinity"] > 50 * waits["round_robin"]


def test_the_log_that_ships_tokenizes_to_the_trace_that_ships(tmp_path: Path) -> None:
    tokenize_logs([TRACES / "day1.jsonl.zst"], tmp_path / "day1.parquet")
    made = open_trace(tmp_path / "day1.parquet")
    shipped = open_trace(TRACES / "day1.parquet")
    assert made.columns == shipped.columns
    assert duckdb.sql("select * from made except select * from shipped").fetchall() == []


def open_trace(path: Path) -> duckdb.DuckDBPyRelation:
    return duckdb.sql(f"from read_parquet('{path}')")


def test_the_script_makes_the_log_that_ships(tmp_path: Path) -> None:
    log = tmp_path / "day1.jsonl.zst"
    script = [sys.executable, str(TRACES / "make_day1.py"), "--log-only", "-o", str(log)]
    subprocess.run(script, check=True, capture_output=True)
    assert list(lines(log)) == list(lines(TRACES / "day1.jsonl.zst"))


def lines(log: Path) -> Iterator[Line]:
    with open_log(log, lambda _: None) as stream:
        yield from read_lines(stream)
