"""One order of all requests: retries, repeated ids, lines that belong together, sessions, ties."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from samples import column, rows_of, write_log

from pipeline.errors import LogError, UsageError
from pipeline.logs.reading import families_by_name
from pipeline.logs.records import Chat, LogFamily, LogRecord, Skip
from pipeline.tokenize import Summary, TokenizeSettings, tokenize_logs

Lines = Sequence[dict[str, Any] | str]


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "t.parquet"


def tokenize(trace: Path, lines: Lines, **settings: Any) -> Summary:
    log = write_log(trace.with_name("a.jsonl"), lines)
    return tokenize_logs([log], trace, TokenizeSettings(**settings))


def ids(trace: Path) -> list[str]:
    return column(rows_of(trace), "request_id")


def seconds(trace: Path) -> list[float]:
    return [moment.timestamp() for moment in column(rows_of(trace), "arrival")]


def line(
    name: str | None, time: float, prompt: Sequence[int] = (1, 2), **more: Any
) -> dict[str, Any]:
    return {"request_id": name, "timestamp": time, "body": {"prompt": list(prompt)}, **more}


def test_of_several_attempts_the_last_one_is_kept(trace: Path) -> None:
    lines = [line("a", 1), line("b", 2, [3]), line("a", 5), line("a", 9)]
    summary = tokenize(trace, lines)
    assert (ids(trace), seconds(trace)) == (["b", "a"], [2.0, 9.0])
    assert summary.skips == {"retry: an attempt of the same request came later": 2}


def test_all_attempts_can_be_kept_each_with_an_id_of_its_own(trace: Path) -> None:
    summary = tokenize(trace, [line("a", 1), line("a", 5), line("a", 9)], retries="all")
    assert ids(trace) == ["a", "a-2", "a-3"]
    assert (summary.renamed, summary.skips) == (2, {})


def test_attempts_far_apart_are_requests_of_their_own(trace: Path) -> None:
    tokenize(trace, [line("a", 0), line("a", 601), line("a", 700)])
    assert (ids(trace), seconds(trace)) == (["a", "a-2"], [0.0, 700.0])
    tokenize(trace, [line("a", 0), line("a", 601)], retry_window_s=601)
    assert seconds(trace) == [601.0]


def test_one_id_with_two_prompts_is_two_requests(trace: Path) -> None:
    summary = tokenize(trace, [line("a", 1, [1]), line("a", 2, [2]), line(None, 3, [2])])
    assert ids(trace) == ["a", "a-2", "2"]
    assert (summary.renamed, summary.skips.total()) == (1, 0)


def test_a_request_that_failed_before_prefill_is_skipped_or_kept(trace: Path) -> None:
    lines = [line("a", 1, status=503), line("b", 2, status=200), line("c", 3, status=499)]
    lines[2]["response"] = {"usage": {"prompt_tokens": 2, "completion_tokens": 1}}
    assert tokenize(trace, lines).skips == {"failed before prefill": 1}
    assert ids(trace) == ["b", "c"]
    assert tokenize(trace, lines, failed_requests="keep").requests == 3


def test_every_line_is_a_row_a_skip_or_a_reject(trace: Path) -> None:
    lines = [line("a", 1), line("a", 2), line("b", 1, status=500), "{", line("c", 3, [])]
    lines += [{"path": "/health", "timestamp": 4, "body": {"prompt": "x"}}]
    summary = tokenize(trace, lines, max_rejects=1)
    parts = summary.requests, summary.skips.total(), summary.rejects.total()
    assert parts == (1, 3, 2)
    assert sum(parts) == summary.lines == 6


def test_requests_of_one_second_are_spread_over_it_where_a_log_knows_only_seconds(
    trace: Path,
) -> None:
    lines = [line(str(i), 100 + i // 4, [i]) for i in range(10)]
    tokenize(trace, lines)
    assert seconds(trace) == [100.0] * 4 + [101.0] * 4 + [102.0] * 2
    tokenize(trace, lines, spread_ties=True)
    assert seconds(trace) == [100, 100.25, 100.5, 100.75, 101, 101.25, 101.5, 101.75, 102, 102.5]
    lines.append(line("x", 102.25, [99]))
    tokenize(trace, lines, spread_ties=True)
    assert seconds(trace)[:4] == [100.0] * 4


def test_the_largest_step_back_and_the_ties_are_told(trace: Path) -> None:
    times = [10.0, 10.4, 9.9, 10.4, 10.4, 4.0]
    summary = tokenize(trace, [line(str(i), t, [i]) for i, t in enumerate(times)])
    assert ids(trace) == ["5", "2", "0", "1", "3", "4"]
    assert (summary.largest_step_back_us, summary.ties) == (6_400_000, 2)


@pytest.mark.parametrize("backwards", [False, True])
def test_a_log_with_turns_before_the_turns_that_they_extend_looks_reversed(
    trace: Path, backwards: bool
) -> None:
    turns = [[s, *range(10, 10 + 5 * n)] for n in range(1, 9) for s in range(5)]
    if backwards:
        turns.reverse()
    lines = [{"prompt": turn} for turn in turns]
    assert tokenize(trace, lines).looks_reversed == backwards


SESSIONS = [
    {"session_id": s, "timestamp": t, "input_length": 512, "hash_ids": [i]}
    for i, (s, t) in enumerate([("a", 0), ("a", 3000), ("b", 0), ("b", 5000), ("c", 1000)])
]


@pytest.fixture
def own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the times of Mooncake logs count from the start of each session."""
    family = families_by_name["mooncake"]
    monkeypatch.setitem(family.__dict__, "own_clock", value=True)


@pytest.mark.usefixtures("own_clock")
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("together", [0, 0, 1, 3, 5]),
        ("in-turn", [0, 3, 4, 9, 11]),
        ("every:10", [0, 3, 10, 15, 21]),
    ],
)
def test_sessions_with_clocks_of_their_own_start_as_told(
    trace: Path, how: str, expected: list[float]
) -> None:
    tokenize(trace, SESSIONS, session_starts=how)
    assert seconds(trace) == expected


@pytest.mark.usefixtures("own_clock")
def test_sessions_that_start_at_random_start_the_same_every_time(trace: Path) -> None:
    tokenize(trace, SESSIONS, session_starts="random:60")
    first = trace.read_bytes()
    starts = dict(zip(column(rows_of(trace), "session_id"), seconds(trace), strict=True))
    assert len(set(starts.values())) == 3
    tokenize(trace, SESSIONS, session_starts="random:60")
    assert trace.read_bytes() == first


@pytest.mark.usefixtures("own_clock")
def test_without_being_told_when_sessions_start_there_is_no_order(trace: Path) -> None:
    with pytest.raises(LogError, match=r"a\.jsonl: its times count .* --session-starts random:60"):
        tokenize(trace, SESSIONS)
    with pytest.raises(UsageError, match="'every:x': give together, in-turn"):
        tokenize(trace, SESSIONS, session_starts="every:x")


def events(*records: LogRecord | Skip) -> LogFamily:
    """Return a family whose n-th line is the n-th of these records."""
    return LogFamily("events", "tests", "event", lambda v: "event" in v, lambda: _reader(records))


def _reader(records: Sequence[LogRecord | Skip]) -> Any:
    return lambda value: [records[value["event"]]]


def tell(
    monkeypatch: pytest.MonkeyPatch, trace: Path, *records: LogRecord | Skip, **settings: Any
) -> Summary:
    monkeypatch.setitem(families_by_name, "events", events(*records))
    lines = [{"event": i} for i in range(len(records))]
    return tokenize(trace, lines, log_format="events", **settings)


def test_lines_that_add_to_a_request_fill_what_it_does_not_say(
    monkeypatch: pytest.MonkeyPatch, trace: Path
) -> None:
    summary = tell(
        monkeypatch,
        trace,
        LogRecord([1, 2], 1.0, "a", {"model": "m"}),
        LogRecord([3], 2.0, "b", output_tokens=5),
        LogRecord(None, request_id="b", carried={"namespace": "lora"}, output_tokens=9, again=True),
        LogRecord(None, request_id="a", carried={"model": "other"}, output_tokens=7, again=True),
        LogRecord(None, request_id="gone", output_tokens=7, again=True),
    )
    rows = rows_of(trace)
    assert column(rows, "request_id") == ["a", "b"]
    assert column(rows, "output_tokens") == [7, 5]
    assert column(rows, "model") == ["m", None]
    assert column(rows, "namespace") == [None, "lora"]
    assert summary.skips == {
        "told again: one request, several lines": 2,
        "tells of a request whose prompt is not in the log": 1,
    }


def test_a_request_told_twice_is_one_row_at_the_time_of_the_first_telling(
    monkeypatch: pytest.MonkeyPatch, trace: Path
) -> None:
    tell(
        monkeypatch,
        trace,
        LogRecord([1, 2], 5.0, "a", output_tokens=4, again=True),
        LogRecord([1, 2], 1.0, "a"),
        LogRecord([3], 7.0, "b", output_tokens=6, again=True),
    )
    assert (ids(trace), seconds(trace)) == (["a", "b"], [1.0, 7.0])
    assert column(rows_of(trace), "output_tokens") == [4, 6]


def test_a_fallback_counts_only_where_nothing_better_is_logged(
    monkeypatch: pytest.MonkeyPatch, trace: Path
) -> None:
    fallback = LogRecord([8, 8], 1.0, fallback=True)
    assert tell(monkeypatch, trace, fallback, LogRecord([3], 2.0, "b")).requests == 1
    assert ids(trace) == ["b"]
    assert tell(monkeypatch, trace, fallback, fallback).requests == 2


def test_a_prompt_that_was_cut_is_rejected_or_kept_as_a_head(
    monkeypatch: pytest.MonkeyPatch, trace: Path
) -> None:
    records = [
        LogRecord([1, 2, 3], 1.0, "a", cut=True, length=6),
        LogRecord([1, 2, 3, 4, 5, 6], 2.0, "b"),
        LogRecord([1, 2, 3], 3.0, "c", cut=True, length=6),
    ]
    summary = tell(monkeypatch, trace, *records, max_rejects=1)
    assert summary.rejects == {"cut by the logger: --cut-prompts prefix keeps the head": 2}
    summary = tell(monkeypatch, trace, *records, cut_prompts="prefix")
    assert (summary.cut, summary.requests) == (2, 3)
    rows = rows_of(trace)
    assert column(rows, "prompt_tokens") == [6, 6, 6]
    assert column(rows, "prefix_tokens") == [0, 3, 3]


def test_a_cut_message_of_another_form_is_a_reject(
    monkeypatch: pytest.MonkeyPatch, trace: Path
) -> None:
    records = [
        LogRecord(Chat([{"role": "user", "content": 5}]), 1.0, "a", cut=True),
        LogRecord([1, 2], 2.0, "b"),
    ]
    summary = tell(monkeypatch, trace, *records, cut_prompts="prefix", max_rejects=1)
    assert (ids(trace), summary.rejects.total()) == (["b"], 1)
