"""`replay TRACE` and its neighbours: what they print, to the letter."""

import json
import re
from pathlib import Path

import pytest
from command import replay, replay_here, replay_ok
from samples import names_in, parquet_bytes, rows_of, write_tokens, write_trace

import pipeline

pytestmark = pytest.mark.usefixtures("compiled")

PROMPTS = [(1, 2, 3, 4), range(50, 59), (1, 2, 3, 4, 5), (9, 9)]
OPTIONS = (
    "--replicas", "2", "--capacity-tokens", "6",
    "--prefill-ms-per-token", "1", "--lookup-ms-per-token", "0.1",
)  # fmt: skip
COMPARISON = """\
4 requests over 2 replicas of 6 tokens; clock: arrivals, 12 ms each; run: {run}
engine: reference; hit ratio: matched / prompt tokens of served requests, whole run

policy                  cache_aware  pure_affinity  round_robin
----------------------  -----------  -------------  -----------
requests                          4              4            4
served                            3              3            3
rejected                          1              1            1
failed                            0              0            0
cache_hit_ratio              0.3636         0.3636       0.3636
cold_ratio                   0.6364         0.6364       0.6364
evicted_ratio                   0.0            0.0          0.0
elsewhere_ratio                 0.0            0.0          0.0
recomputed_ratio                0.0            0.0          0.0
mean_ttft_ms                   2.47           2.47         2.47
p50_ttft_ms                     2.0            2.0          2.0
p99_ttft_ms                    3.96           3.96         3.96
max_ttft_ms                     4.0            4.0          4.0
evicted_tokens                    1              1            0
requests_max_over_mean          2.0            2.0       1.3333
idle_replicas                     1              1            0
"""
TOTALS = [
    "policy", "total_requests", "rejected", "cache_hit_ratio", "prompt_tokens", "matched_tokens",
    "cold_tokens", "evicted_tokens_missed", "elsewhere_tokens", "recomputed_tokens",
    "mean_ttft_ms", "max_ttft_ms",
    "max_replica_requests", "min_replica_requests", "total_evicted_tokens", "replica_loads",
]  # fmt: skip


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "day.parquet", PROMPTS)


def test_a_replay_ends_with_the_comparison_of_the_policies(trace: Path) -> None:
    done = replay("day.parquet", *OPTIONS, cwd=trace.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == COMPARISON.format(run="runs/day")
    assert names_in(trace.parent) == {"day.parquet", "runs"}
    assert names_in(trace.parent / "runs") == {"day"}


def test_run_is_the_long_name_of_a_replay(trace: Path) -> None:
    printed = replay_ok("run", trace, *OPTIONS, "-o", trace.with_name("new"))
    assert printed == COMPARISON.format(run=trace.with_name("new"))


def test_options_may_stand_before_the_trace(trace: Path) -> None:
    printed = replay_ok(*OPTIONS, "--policy", "round_robin", trace, "-o", trace.with_name("new"))
    assert printed.splitlines()[3] == "policy                  round_robin"


def test_a_trace_may_have_a_name_without_a_suffix(trace: Path) -> None:
    trace.rename(trace.with_name("yesterday"))
    replay_ok("yesterday", cwd=trace.parent)
    assert names_in(trace.parent / "runs") == {"yesterday"}


def test_json_has_the_keys_of_the_reference_under_policies(trace: Path) -> None:
    arguments = (*OPTIONS, "--format", "json", "-o", str(trace.with_name("new")))
    result = json.loads(replay_ok(trace, *arguments))
    assert list(result) == ["trace", "replayed", "config", "timings", "policies"]
    assert list(result["policies"]) == ["round_robin", "pure_affinity", "cache_aware"]
    for totals in result["policies"].values():
        assert list(totals)[: len(TOTALS)] == TOTALS
        assert {"p50_ttft_ms", "p99_ttft_ms", "idle_replicas"} <= totals.keys()
        load = totals["replica_loads"][0]
        assert list(load) == ["replica_id", "routed_requests", "cached_tokens", "evicted_tokens"]
    aware = result["policies"]["cache_aware"]
    assert aware["rejected"] == {
        "rejected_empty": 0,
        "rejected_too_long": 1,
        "rejected_pinned": 0,
        "rejected_no_replica": 0,
        "failed": 0,
    }
    assert (aware["total_evicted_tokens"], aware["max_replica_requests"]) == (1, 3)
    run = json.loads(trace.with_name("new").joinpath("run.json").read_text(encoding="utf-8"))
    assert result["config"] == run["config"]
    assert result["timings"] == run["timings"]


def test_a_policy_alone_is_compared_with_nothing(trace: Path) -> None:
    printed = replay_ok(trace, "--policy", "pure_affinity", "-o", trace.with_name("new"))
    assert printed.splitlines()[3].split() == ["policy", "pure_affinity"]
    assert names_in(trace.with_name("new") / "decisions") == {"policy=pure_affinity"}


def test_a_rerun_replaces_its_own_run_and_nothing_else(trace: Path) -> None:
    (trace.parent / "runs").mkdir()
    neighbour = trace.parent / "runs" / "notes.txt"
    neighbour.write_text("keep")
    before = replay_ok("day.parquet", cwd=trace.parent)
    first = parquet_bytes(trace.parent / "runs" / "day")
    assert replay_ok("day.parquet", cwd=trace.parent) == before
    assert parquet_bytes(trace.parent / "runs" / "day") == first
    assert names_in(trace.parent / "runs") == {"day", "notes.txt"}


def test_the_clock_of_a_trace_with_times_is_named(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.parquet", PROMPTS, [0, 1000, 2000, 3000])
    printed = replay_ok(trace, "-o", tmp_path / "run")
    assert "clock: timestamps; run:" in printed.splitlines()[0]
    printed = replay_ok(trace, "-o", tmp_path / "run", "--clock", "arrivals")
    assert "clock: arrivals, 12 ms each; run:" in printed.splitlines()[0]


def test_tokens_are_dropped_and_links_made_without_a_word(tmp_path: Path) -> None:
    foreign = write_tokens(tmp_path / "foreign.parquet", PROMPTS)
    linked, bare = tmp_path / "linked.parquet", tmp_path / "bare.parquet"
    assert replay_ok("link", foreign, "-o", linked) == ""
    assert replay_ok("drop-tokens", linked, "-o", bare) == ""
    assert "prompt_token_ids" not in rows_of(bare)[0]
    for name, path in (("one", linked), ("two", bare)):
        replay_ok(path, *OPTIONS, "-o", tmp_path / name)
    assert parquet_bytes(tmp_path / "one") == parquet_bytes(tmp_path / "two")


def test_burst_prints_the_comparison_of_the_reference() -> None:
    result = json.loads(replay_ok("burst"))
    policies = result["policies"]
    names = ("cache_hit_ratio", "mean_ttft_ms", "max_ttft_ms", "total_evicted_tokens")
    found = {policy: tuple(row[name] for name in names) for policy, row in policies.items()}
    assert found == {
        "round_robin": (0.7353, 47.19, 108.8, 3072),
        "pure_affinity": (0.4412, 1217.24, 1625.6, 69_632),
        "cache_aware": (0.8235, 32.34, 108.8, 0),
    }
    loads = {p: [r["routed_requests"] for r in row["replica_loads"]] for p, row in policies.items()}
    assert loads == {
        "round_robin": [8, 8, 8, 8],
        "pure_affinity": [32, 0, 0, 0],
        "cache_aware": [4, 20, 4, 4],
    }


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize(
    "command", ["", "run", "tokenize", "link", "drop-tokens", "report", "sql", "views", "burst"]
)
def test_every_command_has_a_page_of_help_that_fits_a_terminal(command: str, option: str) -> None:
    text = replay_ok(*filter(None, (command, option)))
    assert text.startswith(f"Usage: replay {command}".rstrip())
    assert max(map(len, text.splitlines())) <= 100


def test_help_lists_commands_in_whole_sentences() -> None:
    text = replay_ok("-h")
    assert "..." not in re.sub(r"\[ARGS\]\.\.\.", "", text)


@pytest.mark.parametrize("option", ["-V", "--version"])
def test_the_version_is_told(option: str) -> None:
    assert replay_ok(option) == f"replay, version {pipeline.__version__}\n"


def test_no_arguments_are_answered_with_the_help_page() -> None:
    done = replay_here()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Usage: replay [OPTIONS] COMMAND [ARGS]...")
