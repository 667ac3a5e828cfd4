"""`replay engines`, and what a run says of its engine, its warm-up and its part of the trace."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from command import Done, replay_here, replay_ok
from samples import SMALL, column, decisions, names_in, write_trace

pytestmark = pytest.mark.usefixtures("compiled")

TABLE = """\
setting               reference  sglang                       vllm
--------------------  ---------  ---------------------------  ----------------------------
cache-unit            leaf       leaf                         block
block-tokens          1          1, or the block trace's own  16, or the block trace's own
partial-block         drop       drop                         drop
recompute-last-token  false      true                         true
refresh               probe      match                        insert
in-flight             none       none                         none
when-full             reject     wait                         wait
cache-output          false      false                        false
"""
PRESETS: dict[str, dict[str, Any]] = {
    "reference": {
        "name": "reference",
        "cache_unit": "leaf",
        "block_tokens": 1,
        "own_blocks": False,
        "partial_block": "drop",
        "recompute_last_token": False,
        "refresh": "probe",
        "in_flight": "none",
        "when_full": "reject",
        "cache_output": False,
    },
    "sglang": {
        "name": "sglang",
        "cache_unit": "leaf",
        "block_tokens": 1,
        "own_blocks": True,
        "partial_block": "drop",
        "recompute_last_token": True,
        "refresh": "match",
        "in_flight": "none",
        "when_full": "wait",
        "cache_output": False,
    },
    "vllm": {
        "name": "vllm",
        "cache_unit": "block",
        "block_tokens": 16,
        "own_blocks": True,
        "partial_block": "drop",
        "recompute_last_token": True,
        "refresh": "insert",
        "in_flight": "none",
        "when_full": "wait",
        "cache_output": False,
    },
}
ONE = ("--policy", "cache_aware", "--replicas", "2", "--capacity-tokens", "64")
WHOLE_RUN = "matched / prompt tokens of served requests, whole run"
CAPPED = "matched (at most prompt - 1) / prompt tokens of served requests, whole run"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return six requests with times, tenants and, for some, the length of the output."""
    path = tmp_path_factory.mktemp("engines") / "day.parquet"
    return write_trace(
        path,
        SMALL,
        [second * 1_000_000 for second in range(6)],
        tenant=["a", "b", "a", None, "a", "b"],
        output_tokens=[5, None, 7, 8, None, 9],
    )


def config_of(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text(encoding="utf-8"))["config"]
    return found


def heading(printed: str) -> list[str]:
    """Return what stands above the comparison."""
    return printed[: printed.index("\n\n")].splitlines()


def check_refused(done: Done, message: str) -> None:
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("replay: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


def test_engines_are_listed_with_all_their_settings() -> None:
    assert replay_ok("engines") == TABLE


def test_engines_are_listed_for_programs_too() -> None:
    rows = json.loads(replay_ok("engines", "--format", "json"))
    assert [tuple(row) for row in rows] == [("setting", "reference", "sglang", "vllm")] * 8
    for row in rows:
        for name, preset in PRESETS.items():
            told = str(preset[row["setting"].replace("-", "_")]).lower()
            assert row[name].removesuffix(", or the block trace's own") == told
    lines = replay_ok("engines", "--format", "csv").splitlines()
    assert (len(lines), lines[0]) == (9, "setting,reference,sglang,vllm")


@pytest.mark.parametrize(("name", "preset"), PRESETS.items())
def test_a_preset_is_what_engines_tells(
    tmp_path: Path, trace: Path, name: str, preset: dict[str, Any]
) -> None:
    printed = replay_ok(trace, *ONE, "-o", tmp_path / "run", "--engine", name)
    config = config_of(tmp_path / "run")
    assert config["engine"] == preset
    assert config["chosen_block_tokens"] == preset["block_tokens"]
    ratio = CAPPED if preset["recompute_last_token"] else WHOLE_RUN
    assert heading(printed) == [
        f"6 requests over 2 replicas of 64 tokens; clock: timestamps; run: {tmp_path / 'run'}",
        f"engine: {name}; hit ratio: {ratio}",
    ]


@pytest.mark.parametrize(
    ("engine", "options", "changed"),
    [
        ("reference", "--cache-unit block", {"cache_unit": "block"}),
        ("vllm", "--cache-unit leaf", {"cache_unit": "leaf"}),
        ("sglang", "--block-tokens 4", {"block_tokens": 4}),
        ("vllm", "--block-tokens 64", {"block_tokens": 64}),
        ("reference", "--block-tokens 8 --partial-block keep",
         {"block_tokens": 8, "partial_block": "keep"}),
        ("reference", "--recompute-last-token", {"recompute_last_token": True}),
        ("vllm", "--no-recompute-last-token", {"recompute_last_token": False}),
        ("sglang", "--refresh probe", {"refresh": "probe"}),
        ("reference", "--refresh insert", {"refresh": "insert"}),
        ("vllm", "--refresh match", {"refresh": "match"}),
        ("sglang", "--in-flight pins", {"in_flight": "pins"}),
        ("reference", "--in-flight pins --when-full wait",
         {"in_flight": "pins", "when_full": "wait"}),
        ("vllm", "--in-flight pins --when-full reject",
         {"in_flight": "pins", "when_full": "reject"}),
    ],
)  # fmt: skip
def test_each_option_goes_before_the_preset(
    tmp_path: Path, trace: Path, engine: str, options: str, changed: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    printed = replay_ok(trace, *ONE, "-o", run, "--engine", engine, *options.split())
    own = PRESETS[engine]["own_blocks"] and "block_tokens" not in changed
    assert config_of(run)["engine"] == PRESETS[engine] | changed | {"own_blocks": own}
    wanted = changed.get("block_tokens", PRESETS[engine]["block_tokens"])
    assert config_of(run)["chosen_block_tokens"] == wanted
    told = ", ".join(
        f"{name.replace('_', '-')} {str(value).lower()}" for name, value in changed.items()
    )
    assert heading(printed)[1].startswith(f"engine: {engine} with {told}; hit ratio: matched ")


def test_what_is_given_as_the_preset_has_it_is_no_change(tmp_path: Path, trace: Path) -> None:
    options = ("--engine", "vllm", "--block-tokens", "16", "--no-cache-output")
    printed = replay_ok(trace, *ONE, "-o", tmp_path / "run", *options)
    assert heading(printed)[1] == f"engine: vllm; hit ratio: {CAPPED}"
    assert config_of(tmp_path / "run")["engine"]["own_blocks"] is False


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--engine vlm", "unknown engine 'vlm' (did you mean vllm?): choose from reference,"),
        ("--engine sg-lang", "unknown engine 'sg-lang' (did you mean sglang?): choose from"),
        ("--engine x", "unknown engine 'x': choose from reference, sglang, vllm"),
        ("--when-full wait", "when-full says nothing without --in-flight pins"),
        ("--block-tokens 513", "block-tokens is 513: give 1 to 512 tokens"),
        ("--where tenant", "where is 'tenant': it is VARCHAR, not true or false"),
        ("--where tenant=1", "where is 'tenant=1': "),
        ("--sample 0", "sample is 0.0: give a share of the sessions, 0 < x <= 1"),
        ("--warmup-fraction 1", "warmup-fraction is 1.0: give a share of the requests"),
        ("--engine vllm --capacity-tokens 9", "that is less than one block of 16 tokens"),
    ],
)
def test_a_setting_that_can_not_be_is_refused_in_one_line(
    tmp_path: Path, trace: Path, arguments: str, message: str
) -> None:
    check_refused(replay_here(trace, "-o", tmp_path / "run", *arguments.split()), message)
    assert names_in(tmp_path) == set()
    assert names_in(trace.parent) == {trace.name}


@pytest.mark.parametrize(
    ("options", "requests", "without"),
    [
        ((), "6", "1 request"),
        (("--where", "tenant = 'b'"), "2 of 6", "1 request"),
    ],
)
def test_requests_of_which_no_output_is_known_are_warned_of(
    tmp_path: Path, trace: Path, options: Sequence[str], requests: str, without: str
) -> None:
    pins = ("--engine", "vllm", "--in-flight", "pins", *options)
    printed = replay_ok(trace, *ONE, "-o", tmp_path / "run", *pins)
    run = tmp_path / "run"
    assert heading(printed) == [
        f"{requests} requests over 2 replicas of 64 tokens; clock: timestamps; run: {run}",
        f"engine: vllm with in-flight pins; hit ratio: {CAPPED}",
        f"warning: {without} without output_tokens: completed with the first token",
    ]
    known = replay_ok(trace, *ONE, "-o", tmp_path / "run", *pins, "--where", "output_tokens > 0")
    assert len(heading(known)) == 2


@pytest.mark.parametrize(
    ("options", "requests", "span", "warms_up"),
    [
        ("--warmup-fraction 0.5", "6", "after the first 3 requests", [True] * 3 + [False] * 3),
        ("--warmup-fraction 0.2", "6", "after the first 1 request", [True] + [False] * 5),
        ("--warmup-fraction 0.1", "6", "whole run", [False] * 6),
        ("--warmup {trace}", "6", "whole run, warmed up by 6 requests", [False] * 6),
        ("--warmup {trace} --where tenant='b' --warmup-fraction 0.5", "2 of 6",
         "after the first 1 request, warmed up by 2 requests", [True, False]),
    ],
)  # fmt: skip
def test_the_heading_says_which_requests_the_hit_ratio_counts(
    tmp_path: Path, trace: Path, options: str, requests: str, span: str, warms_up: list[bool]
) -> None:
    alone = tmp_path / "day.parquet"
    alone.write_bytes(trace.read_bytes())
    given = options.format(trace=trace).split()
    printed = replay_ok(alone, *ONE, "-o", tmp_path / "run", *given)
    first, engine = heading(printed)
    assert first.startswith(f"{requests} requests over 2 replicas of 64 tokens; clock: timestamps;")
    ratio = "matched / prompt tokens of served requests"
    assert engine == f"engine: reference; hit ratio: {ratio}, {span}"
    assert column(decisions(tmp_path / "run", "cache_aware"), "is_warmup") == warms_up
    rows = [line.split() for line in printed.splitlines()]
    assert ["requests", str(warms_up.count(False))] in rows
    told = json.loads(replay_ok(alone, *ONE, "-o", tmp_path / "run", *given, "--format", "json"))
    assert told["replayed"]["counted_requests"] == warms_up.count(False)
    assert told["policies"]["cache_aware"]["total_requests"] == warms_up.count(False)
