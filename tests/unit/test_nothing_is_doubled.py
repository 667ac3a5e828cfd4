"""Lines that belong together, logs that look alike, files that must survive: all counted once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from samples import column, names_in, rows_of, token_lists, write_log

from pipeline.encode.settings import TokenizeSettings
from pipeline.errors import LogError
from pipeline.tokenize import Summary, tokenize_logs
from pipeline.tokenize.logs_to_trace import TraceWriter


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "t.parquet"


def _log(trace: Path, name: str, lines: Sequence[dict[str, Any]]) -> Path:
    (trace.parent / "logs").mkdir(exist_ok=True)
    return write_log(trace.parent / "logs" / name, lines)


def _all_counted(summary: Summary) -> bool:
    accounted = summary.requests + summary.skips.total() + summary.rejects.total()
    return accounted == summary.lines


def test_block_ids_of_one_file_say_nothing_about_tokens(trace: Path) -> None:
    logs = [_log(trace, name, [{"prompt": [7, 8, 9]}]) for name in ("a.jsonl", "b.jsonl")]
    tokenize_logs(logs, trace, TokenizeSettings(block_ids="file"))
    assert [ids.tolist() for ids in token_lists(trace)] == [[7, 8, 9], [7, 8, 9]]


def _batch(name: str, tokens: int, status: int = 200) -> list[list[dict[str, Any]]]:
    asked = {"custom_id": name, "method": "POST", "url": "/v1/completions"}
    body = {"usage": {"completion_tokens": tokens, "prompt_tokens": 2}} if status == 200 else {}
    answer = {"status_code": status, "body": body}
    return [
        [{**asked, "body": {"prompt": [1, tokens]}}],
        [{"custom_id": name, "id": "x", "response": answer, "error": None}],
    ]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_answers_go_to_the_requests_of_their_batch(trace: Path, order: tuple[int, ...]) -> None:
    files = [*_batch("request-1", 11), *_batch("request-1", 22)]
    logs = [_log(trace, f"{i}.jsonl", lines) for i, lines in enumerate(files)]
    summary = tokenize_logs([logs[i] for i in order], trace)
    assert column(rows_of(trace), "output_tokens") == [11, 22]
    assert _all_counted(summary)


def test_a_request_whose_answer_says_that_it_failed_is_skipped(trace: Path) -> None:
    files = [*_batch("good", 11), *_batch("bad", 22, status=400)]
    logs = [_log(trace, f"{i}.jsonl", lines) for i, lines in enumerate(files)]
    summary = tokenize_logs(logs, trace)
    assert column(rows_of(trace), "request_id") == ["good"]
    assert summary.skips["failed before prefill"] == 1
    assert _all_counted(summary)
    settings = TokenizeSettings(failed_requests="keep")
    assert tokenize_logs(logs, trace, settings).requests == 2


def test_without_times_an_id_that_repeats_is_no_retry(trace: Path) -> None:
    logs = [_log(trace, n, [{"request_id": "a", "prompt": [1]}] * 2) for n in ("1", "2")]
    summary = tokenize_logs(logs, trace)
    assert column(rows_of(trace), "request_id") == ["a", "a-2", "a-3", "a-4"]
    assert _all_counted(summary)


def _sglang(event: str, time: str) -> dict[str, Any]:
    told = {"timestamp": time, "event": f"request.{event}", "rid": "r1"}
    told["obj"] = {"rid": "r1", "input_ids": [1, 2]}
    if event == "finished":
        told["out"] = {"meta_info": {"completion_tokens": 3, "prompt_tokens": 2}}
    return told


@pytest.mark.parametrize(
    ("received", "finished", "rejects"),
    [
        ("2026-03-01T10:00:00", "2026-03-01T10:00:01", 0),
        ("2026-03-01T10:00:00", "garbage", 0),
        ("garbage", "2026-03-01T10:00:01", 1),
    ],
)
def test_a_request_told_twice_is_counted_once_whatever_its_times(
    trace: Path, received: str, finished: str, rejects: int
) -> None:
    log = _log(trace, "a", [_sglang("received", received), _sglang("finished", finished)])
    summary = tokenize_logs([log], trace, TokenizeSettings(max_rejects=1))
    assert (summary.requests, summary.rejects.total()) == (1, rejects)
    assert column(rows_of(trace), "output_tokens") == [3]
    assert _all_counted(summary)


def test_heads_of_cut_prompts_share_nothing_beyond_themselves(trace: Path) -> None:
    line = {
        "timestamp": "2026-03-01T10:00:00",
        "event": "request.finished",
        "obj": {"text": "You are x...y", "input_ids": [1, 2, "...", 9]},
        "out": {"meta_info": {"prompt_tokens": 50, "completion_tokens": 1}},
    }
    for folder in ("d1", "d2"):
        (trace.parent / folder).mkdir()
        lines = [{**line, "rid": folder, "obj": {**line["obj"], "rid": folder}}]  # type: ignore[dict-item]
        write_log(trace.parent / folder / "gw.jsonl", lines)
    logs = [trace.parent / folder / "gw.jsonl" for folder in ("d1", "d2")]
    tokenize_logs(logs, trace, TokenizeSettings(cut_prompts="prefix"))
    rows = rows_of(trace)
    assert column(rows, "prompt_tokens") == [50, 50]
    assert column(rows, "prefix_tokens") == [0, 2]


def test_a_trace_joins_a_log_of_the_same_tokenizer(trace: Path) -> None:
    log = _log(trace, "a.jsonl", [{"timestamp": 1, "prompt": "Hello there"}])
    first = trace.with_name("first.parquet")
    tokenize_logs([log], first)
    more = _log(trace, "b.jsonl", [{"timestamp": 2, "prompt": "Hello there, again"}])
    assert tokenize_logs([first, more], trace).requests == 2
    other = TokenizeSettings(chat_template="plain")
    with pytest.raises(LogError, match="they don't mix"):
        tokenize_logs([first, more], trace, other)


def test_a_template_that_changed_since_a_run_was_interrupted_is_used(
    trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template, models = trace.with_name("t.jinja"), trace.with_name("m.toml")
    template.write_text("{{ messages[0].content }}", encoding="utf-8")
    models.write_text(
        f'[[model]]\nmatch = "*"\ntokenizer = "qwen3"\nchat_template = "{template}"\n',
        encoding="utf-8",
    )
    log = _log(trace, "a.jsonl", [{"messages": [{"role": "user", "content": "Hello"}]}])
    settings = TokenizeSettings(tokenizer_map=models)
    with monkeypatch.context() as patch:

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(TraceWriter, "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tokenize_logs([log], trace, settings)
    template.write_text("{{ messages[0].content }} and more of it", encoding="utf-8")
    summary = tokenize_logs([log], trace, settings)
    assert summary.resumed == 0
    assert column(rows_of(trace), "prompt_tokens") == [5]


def test_no_log_is_replaced_by_what_is_written(trace: Path) -> None:
    good = _log(trace, "a.jsonl", [{"prompt": [1]}])
    rejects = trace.with_name("t.parquet.rejects.jsonl")
    rejects.write_text('{"prompt": [1]}\n', encoding="utf-8")
    with pytest.raises(LogError, match=r"rejects\.jsonl: is one of the logs"):
        tokenize_logs([good, rejects], trace)
    assert rejects.exists()


def test_what_can_be_known_before_is_said_before_any_log_is_read(trace: Path) -> None:
    good = _log(trace, "a.jsonl", [{"prompt": [1]}])
    with pytest.raises(LogError, match="gone: no such file"):
        tokenize_logs([good, trace.with_name("gone")], trace)
    with pytest.raises(LogError, match="logs: is a folder: name a file"):
        tokenize_logs([good], trace.parent / "logs")
    assert names_in(trace.parent) == {"logs"}
