"""Logs to a trace: order, names, rejected lines, metadata, and nothing half done."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from samples import column, common_prefix, names_in, rows_of, token_lists, write_log

from pipeline.errors import LogError
from pipeline.tokenize import Summary, TokenizeSettings, tokenize_logs
from pipeline.trace import TraceFile, TraceWriter

EPOCH_US = 1_772_359_200_000_000


def _line(name: str, time: float | str | None, prompt: object = (1, 2)) -> dict[str, Any]:
    return {"request_id": name, "timestamp": time, "body": {"prompt": prompt}}


def _tokenize(log: Path, lines: Sequence[dict[str, Any] | str], **options: Any) -> Summary:
    settings = TokenizeSettings(**options)
    return tokenize_logs([write_log(log, lines)], log.with_suffix(".parquet"), settings)


def _rejected(log: Path) -> list[tuple[int, str]]:
    listed = log.with_name(f"{log.stem}.parquet.rejects.jsonl")
    rows = [json.loads(line) for line in listed.read_text(encoding="utf-8").splitlines()]
    assert {row["file"] for row in rows} == {str(log)}
    assert all(set(row) == {"file", "line", "reason"} for row in rows)
    return [(row["line"], row["reason"]) for row in rows]


def _ids(trace: Path) -> list[str]:
    return column(rows_of(trace), "request_id")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


def test_requests_are_sorted_by_time_then_file_then_line(tmp_path: Path) -> None:
    first = write_log(tmp_path / "z.jsonl", [_line("z1", 9), _line("z2", 5), _line("z3", 5)])
    second = write_log(tmp_path / "a.jsonl", [_line("a1", 5), _line("a2", 9), _line("a3", 1)])
    trace = tmp_path / "out.parquet"
    summary = tokenize_logs([first, second], trace)
    assert _ids(trace) == ["a3", "z2", "z3", "a1", "z1", "a2"]
    assert column(rows_of(trace), "seq") == list(range(6))
    assert (summary.lines, summary.requests) == (6, 6)
    assert (summary.first_us, summary.last_us) == (1_000_000, 9_000_000)


def test_equal_times_keep_the_order_of_lines_however_many_there_are(log: Path) -> None:
    lines = [_line(f"{i}", 5 - i % 3, [i]) for i in range(9000)]
    _tokenize(log, lines)
    expected = [i for rest in (2, 1, 0) for i in range(rest, 9000, 3)]
    assert _ids(log.with_suffix(".parquet")) == [str(i) for i in expected]
    found = [ids.tolist() for ids in token_lists(log.with_suffix(".parquet"))]
    assert found == [[i] for i in expected]


def test_a_request_without_an_id_gets_its_row_number(log: Path) -> None:
    lines = [{"timestamp": 2, "prompt": "x"}, _line("named", 3), {"timestamp": 1, "prompt": "y"}]
    _tokenize(log, lines)
    assert _ids(log.with_suffix(".parquet")) == ["0", "1", "named"]


def test_three_clocks_in_one_file_are_told_apart_from_a_declared_one(log: Path) -> None:
    times = (1_735_689_602, 1_735_689_601_000, 1_735_689_600_000_000)
    lines = [_line(str(i), time) for i, time in enumerate(times)]
    with pytest.raises(LogError, match=r"a\.jsonl line 2: .* after year 9999"):
        _tokenize(log, lines, time_unit="s")
    _tokenize(log, lines, time_unit="s", max_rejects=1)
    assert [(line, "9999" in why) for line, why in _rejected(log)] == [(2, True), (3, True)]
    assert _ids(log.with_suffix(".parquet")) == ["0"]


def test_links_are_the_longest_prefix_shared_with_any_earlier_request(log: Path) -> None:
    prompts = [[1, 2, 3], [1, 2], [1, 2, 3, 4], [2], [1, 2, 4], [3], [1, 2, 4, 4], [2]]
    _tokenize(log, [{"prompt": [prompt]} for prompt in prompts])
    for row in rows_of(log.with_suffix(".parquet")):
        seq = row["seq"]
        longest = max((common_prefix(prompts[seq], p) for p in prompts[:seq]), default=0)
        assert row["prefix_tokens"] == longest
        assert (row["prefix_seq"] is None) == (longest == 0)
        if longest:
            assert common_prefix(prompts[seq], prompts[row["prefix_seq"]]) == longest


def test_rejected_lines_are_listed_with_file_line_and_reason(log: Path) -> None:
    lines = ["[1]", _line("a", 1), "{", {"other": 1}, _line("b", None), _line("c", 2, None)]
    summary = _tokenize(log, lines, max_rejects=1)
    assert summary.rejects_file == log.with_name("a.parquet.rejects.jsonl")
    assert _rejected(log) == [
        (1, "not a JSON object"),
        (3, "not a JSON object"),
        (4, "no prompt in a known form"),
        (5, "it has no time, but other lines have one"),
        (6, "the prompt is empty"),
    ]
    assert summary.rejects.total() == 5
    assert (summary.lines, summary.requests) == (6, 1)


def test_reasons_hold_nothing_of_the_prompt(log: Path) -> None:
    private = "the launch code is 4711"
    lines = [
        f'{{"prompt": "{private}',
        {"prompt": [private, 1]},
        {"messages": [private]},
        {"messages": [{"role": "user", "content": {private: 1}}]},
        {"timestamp": 1, "prompt": "x"},
    ]
    _tokenize(log, lines, max_rejects=1)
    assert "4711" not in log.with_name("a.parquet.rejects.jsonl").read_text(encoding="utf-8")


def test_more_rejected_lines_than_allowed_leave_nothing_behind(log: Path) -> None:
    lines = [_line("a", 1), "{", _line("b", 2), "["]
    with pytest.raises(LogError, match=r"2 of 4 lines rejected, .*a\.jsonl line 2: not a JSON"):
        _tokenize(log, lines, max_rejects=0.49)
    assert names_in(log.parent) == {"a.jsonl"}
    assert _tokenize(log, lines, max_rejects=0.5).requests == 2


def test_the_limit_that_was_exceeded_is_named_as_it_was_given(log: Path) -> None:
    with pytest.raises(LogError, match=r"max-rejects 0\.(1 ?%|001)"):
        _tokenize(log, [_line("a", 1), "{"], max_rejects=0.001)


def test_a_prompt_of_another_kind_than_most_is_rejected(log: Path) -> None:
    blocks = {"timestamp": 0, "input_length": 3, "output_length": 1, "hash_ids": [1]}
    summary = _tokenize(log, [_line("a", 1), blocks, _line("b", 2)], max_rejects=0.5)
    assert summary.families == {"openai": 2, "mooncake": 1}
    assert _rejected(log) == [(2, "blocks of 512 tokens among text or tokens")]


def test_a_rerun_without_rejects_removes_the_old_list(log: Path) -> None:
    _tokenize(log, [_line("a", 1), "{"], max_rejects=1)
    _tokenize(log, [_line("a", 1)])
    assert names_in(log.parent) == {"a.jsonl", "a.parquet"}


@pytest.mark.parametrize("lines", [[], [""], ["{a", "["]])
def test_a_log_without_requests_is_refused(log: Path, lines: list[str]) -> None:
    with pytest.raises(LogError, match="no requests in it"):
        _tokenize(log, lines, max_rejects=1)
    assert names_in(log.parent) == {"a.jsonl"}


def test_the_trace_says_where_it_came_from(tmp_path: Path) -> None:
    logs = [write_log(tmp_path / name, [{"prompt": "x"}]) for name in ("a.jsonl", "b.jsonl")]
    tokenize_logs(logs, tmp_path / "out.parquet")
    metadata = TraceFile.open(tmp_path / "out.parquet").metadata
    assert (metadata.tokenizer, metadata.sources) == (
        "qwen3 with chatml",
        ("a.jsonl", "b.jsonl"),
    )
    assert len(metadata.tokenizer_sha256 or "") == 64
    assert metadata.time_note == "a.jsonl: no times: file order; b.jsonl: no times: file order"
    assert (metadata.block_tokens, metadata.partial_block) == (None, None)


def test_a_trace_of_token_ids_names_no_tokenizer(log: Path) -> None:
    _tokenize(log, [{"prompt": [1, 2]}])
    assert TraceFile.open(log.with_suffix(".parquet")).metadata.tokenizer is None


def test_blocks_share_whole_blocks_but_no_more_than_either_prompt_has(log: Path) -> None:
    lengths = [(1300, [0, 1, 2]), (1700, [0, 1, 3, 4]), (400, [0]), (2**20, list(range(2048)))]
    _tokenize(log, [{"timestamp": 0, "input_length": n, "hash_ids": i} for n, i in lengths])
    rows = rows_of(log.with_suffix(".parquet"))
    assert column(rows, "prompt_tokens") == [1300, 1700, 400, 2**20]
    assert column(rows, "prefix_tokens") == [0, 1024, 400, 1300]
    metadata = TraceFile.open(log.with_suffix(".parquet")).metadata
    assert (metadata.block_tokens, metadata.partial_block) == (512, "ceil")


MOONCAKE = {"timestamp": 0, "input_length": 512, "hash_ids": [1]}
CODING_AGENT = {
    "id": "s",
    "block_size": 64,
    "hash_id_scope": "global",
    "requests": [{"t": 0, "in": 64, "out": 1, "hash_ids": [1]}],
}


@pytest.mark.parametrize(
    ("line", "said", "told"),
    [
        (MOONCAKE, None, "file"),
        (MOONCAKE, "file", "file"),
        (MOONCAKE, "global", "global"),
        (CODING_AGENT, None, None),  # global to the sessions of one publication
        (CODING_AGENT, "file", "file"),
        (CODING_AGENT, "global", "global"),
        ({"prompt": [1]}, "global", None),
    ],
)
def test_a_trace_says_whether_other_traces_have_the_same_block_ids(
    log: Path, line: dict[str, Any], said: str | None, told: str | None
) -> None:
    _tokenize(log, [line], block_ids=said, session_starts="together")
    assert TraceFile.open(log.with_suffix(".parquet")).metadata.block_ids == told


def test_the_same_logs_give_the_same_bytes(tmp_path: Path) -> None:
    lines = [_line(f"{i}", EPOCH_US / 1e6 + i % 7, f"Tell me of {i % 5}") for i in range(300)]
    log = write_log(tmp_path / "a.jsonl", lines)
    traces = [tmp_path / "one.parquet", tmp_path / "two.parquet"]
    for trace in traces:
        tokenize_logs([log], trace)
    assert traces[0].read_bytes() == traces[1].read_bytes()


def test_a_failure_while_writing_keeps_the_old_trace(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = log.with_suffix(".parquet")
    trace.write_bytes(b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(TraceWriter, "write", fail)
    with pytest.raises(OSError, match="disk full"):
        _tokenize(log, [_line("a", 1)])
    assert trace.read_bytes() == b"old"
    assert names_in(log.parent) == {"a.jsonl", "a.parquet"}
