"""Rows of tables: prompts, times and counts, also where all of them are text."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.logs.families.table import FAMILY
from pipeline.logs.reading import LogFile, read_log
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

MESSAGES = [{"role": "user", "content": "Hello"}]
TOOLS = [{"type": "function", "function": {"name": "look"}}]
NOTHING = {"namespace": None, "model": None, "tenant": None, "session_id": None}


def _read(row: dict[str, Any]) -> list[LogRecord | Skip]:
    assert FAMILY.recognises(row)
    return list(FAMILY.reader()(row))


def _one(row: dict[str, Any]) -> LogRecord:
    [record] = _read(row)
    assert isinstance(record, LogRecord)
    return record


def test_a_row_of_text_gives_all_that_its_columns_say() -> None:
    row = {
        "request_id": "r",
        "arrival": "1780000000.25",
        "model": "m",
        "tenant": "t",
        "session_id": "s",
        "namespace": "n",
        "prompt_token_ids": "[5, 6, 7]",
        "output_tokens": "9",
        "observed_cached_tokens": "2",
        "observed_ttft_ms": "41.5",
    }
    assert _one(row) == LogRecord(
        prompt=[5, 6, 7],
        time="1780000000.25",
        request_id="r",
        carried={"namespace": "n", "model": "m", "tenant": "t", "session_id": "s"},
        output_tokens=9,
        observed_cached_tokens=2,
        observed_ttft_ms=41.5,
    )


@pytest.mark.parametrize(
    ("columns", "prompt"),
    [
        ({"prompt_token_ids": [1, 2]}, [1, 2]),
        ({"prompt_token_ids": "[1, 2]", "prompt": "Hello"}, [1, 2]),
        ({"prompt_token_ids": None, "prompt": "Hello"}, "Hello"),
        ({"prompt_token_ids": "", "messages": MESSAGES}, Chat(MESSAGES)),
        ({"messages": json.dumps(MESSAGES)}, Chat(MESSAGES)),
        ({"prompt": json.dumps(MESSAGES)}, Chat(MESSAGES)),
        ({"messages": json.dumps(MESSAGES), "tools": json.dumps(TOOLS)}, Chat(MESSAGES, TOOLS)),
        ({"messages": MESSAGES, "tools": None, "arrival": 1}, Chat(MESSAGES)),
        ({"messages": "", "prompt": "Hello", "arrival": 1}, "Hello"),
        ({"prompt": "Hello", "output_tokens": 3}, "Hello"),
        ({"prompt": "[INST] Hello", "output_tokens": 3}, "[INST] Hello"),
        ({"prompt": '[{"role": cut', "output_tokens": 3}, '[{"role": cut'),
        ({"prompt": [1, 2], "output_tokens": 3}, [1, 2]),
        ({"body": json.dumps({"messages": MESSAGES}), "arrival": 1}, Chat(MESSAGES)),
        ({"request_body": json.dumps({"prompt": "Hello"}), "output_tokens": 3}, "Hello"),
        ({"request_body": {"prompt": "Hello"}, "arrival": 1}, "Hello"),
        ({"request": {"messages": MESSAGES, "tools": TOOLS}, "arrival": 1}, Chat(MESSAGES, TOOLS)),
        ({"body": "", "request": json.dumps({"prompt": "Hello"}), "arrival": 1}, "Hello"),
        (
            {"messages": json.dumps(MESSAGES), "chat_template_kwargs": '{"thinking": true}'},
            Chat(MESSAGES, None, {"thinking": True}),
        ),
    ],
)
def test_a_prompt_is_found_in_the_columns_that_may_hold_it(
    columns: dict[str, Any], prompt: object
) -> None:
    assert _one(columns).prompt == prompt


def test_a_body_says_its_model_and_user_and_the_response_its_usage() -> None:
    usage = {"completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 16}}
    row = {
        "arrival": 7.5,
        "body": json.dumps({"model": "m", "user": "u", "prompt": "Hello"}),
        "request_id": 17.0,
        "response": json.dumps({"usage": usage}),
        "status": "200",
    }
    assert _one(row) == LogRecord(
        prompt="Hello",
        time=7.5,
        request_id="17",
        carried=NOTHING | {"namespace": "m", "model": "m", "tenant": "u"},
        output_tokens=4,
        observed_cached_tokens=16,
    )


def test_several_prompts_of_a_body_are_several_requests() -> None:
    row = {"arrival": 7, "request_id": "r", "body": json.dumps({"prompt": ["a", "b"]})}
    found = [(one.request_id, one.prompt) for one in _read(row) if isinstance(one, LogRecord)]
    assert found == [("r-0", "a"), ("r-1", "b")]


@pytest.mark.parametrize("status", ["503", 503, 503.0])
def test_a_request_that_failed_says_so(status: object) -> None:
    assert _one({"request": {"prompt": "x"}, "status": status, "arrival": 1}).failed


def test_other_paths_are_skipped() -> None:
    row = {"prompt": "x", "arrival": 1, "path": "/v1/embeddings"}
    assert _read(row) == [Skip("another endpoint than chat and completions")]


def test_basetens_columns_have_names_of_their_own() -> None:
    row = {
        "timestamp_start_unix_ms": 1780000000000,
        "prompt": "Hello",
        "input_tokens": 1,
        "output_tokens": 4,
        "total_hashes": [1, 2],
        "provided_session_id": 7,
        "duration_ttft_ms": 80,
        "model_name": "m",
        "org_id": "o",
        "block_size": 64,
    }
    assert _one(row) == LogRecord(
        prompt="Hello",
        time=1780000000000,
        carried={"namespace": "m", "model": "m", "tenant": "o", "session_id": "7"},
        output_tokens=4,
        observed_ttft_ms=80,
    )


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt_token_ids": None}, "the prompt is empty"),
        ({"prompt_token_ids": "[]"}, "the prompt is empty"),
        ({"prompt_token_ids": "1 2"}, "neither text nor token ids"),
        ({"prompt_token_ids": "[1, -2]"}, "a token id is not"),
        ({"prompt_token_ids": [1, None]}, "a token id is not"),
        ({"prompt": "", "output_tokens": 1}, "the prompt is empty"),
        ({"messages": "redacted", "output_tokens": 1}, "the prompt is empty"),
        ({"messages": '[{"role": 7}]'}, "a message has no role"),
        ({"prompt": " ", "body": "{cut", "arrival": 1}, "the prompt is empty"),
        ({"request": {"prompt": 7}, "arrival": 1}, "neither text nor token ids"),
    ],
)
def test_a_row_without_a_usable_prompt_is_a_bad_line(row: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _read(row)


@pytest.mark.parametrize(
    "row",
    [
        {},
        "text",
        None,
        {"prompt": "Hello"},
        {"prompt": "[1, 2]", "timestamp": 1, "model": "m"},
        {"messages": MESSAGES, "timestamp": 1, "request_id": "r"},
        {"body": {"messages": MESSAGES}, "time": 1},
        {"messages": "redacted-by-other"},
        {"messages": "[]"},
        {"request": "GET /health HTTP/1.1"},
        {"request_body": '{"messages": []}', "msec": "1.5", "request_uri": "/v1"},
        {"request_body": '{"messages": []}', "start_time": "x", "response_code": 200},
        {"body": '{"prompt": "x"}', "custom_id": "1"},
        {"messages": MESSAGES, "time": 1},
        {"body": '{"messages": []}', "ts": 1, "url": "/v1/chat/completions"},
        {"body": '{"input": "x"}', "arrival": 1, "path": "/v1/embeddings"},
        {"body": '{"messages": []}', "arrival": 1, "custom_id": "1"},
        {"messages": json.dumps(MESSAGES), "call_type": "acompletion"},
        {"output_tokens": 5, "time": 1},
    ],
)
def test_rows_of_others_are_not_recognised(row: object) -> None:
    assert not FAMILY.recognises(row)


def test_a_parquet_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "requests.parquet"
    moments = pa.array(
        [datetime(2026, 5, 2, 21, tzinfo=UTC).replace(tzinfo=None), None], pa.timestamp("us")
    )
    ids = pa.array([[1, 2, 3], [4]], pa.list_(pa.int32()))
    counts = pa.array([9, None], pa.int64())
    pq.write_table(
        pa.table({"timestamp": moments, "prompt_token_ids": ids, "output_tokens": counts}), path
    )
    log = LogFile(path)
    assert [found.what for found in read_log(log)] == [
        LogRecord([1, 2, 3], time="2026-05-02T21:00:00+00:00", carried=NOTHING, output_tokens=9),
        LogRecord([4], carried=NOTHING),
    ]
    assert log.family is FAMILY


def test_a_csv_file_may_have_other_names_for_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "requests.csv"
    path.write_text('when,question,out\n5.5,"Hello, you",3\n6,,4\n')
    names = {"time": "when", "prompt": "question", "output_tokens": "out"}
    first, second = (found.what for found in read_log(LogFile(path), columns=names))
    assert first == LogRecord("Hello, you", time="5.5", carried=NOTHING, output_tokens=3)
    assert isinstance(second, BadLine)
    assert str(second) == "the prompt is empty"
