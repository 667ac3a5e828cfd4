"""Examples of API and gateway logs, and of damaged ones: every record, by detection alone.

Most of them tell the same three requests of a shop's parts desk, so their texts are taken from the
bare bodies: whatever a format does to them, the same messages must come out.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pipeline.errors import LogError
from pipeline.logs.reading import LogFile, read_log
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

EPOCH = 1772359200.0  # 2026-03-01T10:00:00Z
OTHER_ENDPOINT = Skip("another endpoint than chat and completions")
NO_BODY = "the request body is not in the log"
EMPTY = "the prompt is empty"
IN_STOCK = "14 in stock."


def _carried(model: str | None, **known: str) -> dict[str, str | None]:
    return {"namespace": model, "model": model, "tenant": None, "session_id": None} | known


QWEN, LLAMA, GPT = _carried("qwen3-8b"), _carried("llama-base"), _carried("gpt-oss-120b")
NOBODY = _carried(None)


class Desk(NamedTuple):
    """The bare bodies: a question with a tool, the same with the tool's answer, an image."""

    asked: Chat
    looked_up: Chat
    shown: Chat

    @property
    def rules(self) -> dict[str, Any]:
        return self.asked.messages[0]

    @property
    def question(self) -> dict[str, Any]:
        return self.asked.messages[1]

    def image(self, **more: str) -> dict[str, Any]:
        """Return the picture as a part of a content."""
        url = self.shown.messages[1]["content"][1]["image_url"]["url"]
        return {"type": "image_url", "image_url": {"url": url, **more}}


@pytest.fixture(scope="session")
def desk(shared: Path) -> Desk:
    text = (shared / "log_examples/openai_chat_bodies.jsonl").read_text(encoding="utf-8")
    bodies = [json.loads(line) for line in text.splitlines()]
    return Desk(*(Chat(body["messages"], body.get("tools")) for body in bodies))


def _example(shared: Path, file: str, family: str) -> list[Any]:
    """Read a file of one family; bad lines as their reason, since no two BadLine are the same."""
    log = LogFile(shared / "log_examples" / file)
    found = [one.what for one in read_log(log)]
    assert log.family is not None
    assert log.family.name == family
    assert set(log.families) == {family}
    return [str(what) if isinstance(what, BadLine) else what for what in found]


def test_openai_chat_bodies(shared: Path, desk: Desk) -> None:
    assert _example(shared, "openai_chat_bodies.jsonl", "openai") == [
        LogRecord(desk.asked, carried=QWEN),
        LogRecord(desk.looked_up, carried=QWEN),
        LogRecord(desk.shown, carried=_carried("qwen3-vl", tenant="u-7f")),
    ]
    assert [m["role"] for m in desk.looked_up.messages] == ["system", "user", "assistant", "tool"]
    assert desk.looked_up.tools == desk.asked.tools
    assert desk.shown.messages[1]["content"][1] == desk.image(detail="low")


def test_openai_chat_envelope(shared: Path, desk: Desk) -> None:
    assert _example(shared, "openai_chat_envelope.jsonl", "openai") == [
        LogRecord(desk.asked, EPOCH + 0.25, "req-0001", QWEN, 24, observed_cached_tokens=128),
        LogRecord(desk.looked_up, "2026-03-01T10:00:01.900Z", "req-0002", QWEN),
    ]


def test_openai_completions(shared: Path) -> None:
    found = _example(shared, "openai_completions.jsonl", "openai")
    assert found == [
        LogRecord(prompt, carried=LLAMA)
        for prompt in (
            "List three gear ratios:",
            "Chain length for 48/17?",
            "Chain length for 46/16?",
            [9906, 1917, 0],
            [9906, 1917],
            [9906, 0],
            "def wheel(",
        )
    ]


def test_openai_responses(shared: Path) -> None:
    rules = {"role": "system", "content": "Answer in one sentence."}
    question = "Is part C-117 in stock?"
    [first, second, third] = _example(shared, "openai_responses.jsonl", "openai-responses")
    chat = Chat([rules, {"role": "user", "content": question}])
    assert first == LogRecord(chat, carried=GPT)
    assert second.carried == GPT
    system, asked, called, told = second.prompt.messages
    assert system == rules
    assert asked["role"] == "user"
    assert asked["content"][0] == {"type": "text", "text": question}
    assert asked["content"][1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    function = {"name": "stock_level", "arguments": '{"part":"C-117"}'}
    assert called == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_9", "type": "function", "function": function}],
    }
    assert told == {"role": "tool", "tool_call_id": "call_9", "content": "14"}
    parameters = {"type": "object", "properties": {"part": {"type": "string"}}}
    tool = {"name": "stock_level", "parameters": parameters}
    assert second.prompt.tools == [{"type": "function", "function": tool}]
    assert second.prompt.settings == {"reasoning_effort": "low"}
    assert third == "its previous response is not in the log"


def test_openai_batch_input(shared: Path, desk: Desk) -> None:
    hours = {"role": "user", "content": "Opening hours?"}
    assert _example(shared, "openai_batch_input.jsonl", "openai-batch") == [
        LogRecord(Chat([desk.rules, hours]), None, "job-1", QWEN),
        LogRecord("Gear inches are", None, "job-2", LLAMA),
        OTHER_ENDPOINT,
    ]


def test_openai_batch_output_adds_to_requests_and_is_none(shared: Path) -> None:
    assert _example(shared, "openai_batch_output.jsonl", "openai-batch") == [
        LogRecord(None, request_id="job-1", output_tokens=5, answer="Nine to six.", again=True),
        LogRecord(None, request_id="job-2", again=True, failed=True),
    ]


def test_anthropic_messages(shared: Path, desk: Desk) -> None:
    found = _example(shared, "anthropic_messages.jsonl", "anthropic")
    function = {"name": "stock_level", "arguments": '{"part": "C-117"}'}
    called = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Look it up.",
        "tool_calls": [{"id": "toolu_01", "type": "function", "function": function}],
    }
    parameters = {"type": "object", "properties": {"part": {"type": "string"}}}
    tool = {"name": "stock_level", "description": "Units in stock", "parameters": parameters}
    chat = Chat(
        [
            desk.rules,
            desk.question,
            called,
            {"role": "tool", "tool_call_id": "toolu_01", "content": "14"},
            {"role": "user", "content": [desk.image()]},
        ],
        [{"type": "function", "function": tool}],
    )
    brief = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    assert found == [
        LogRecord(chat, carried=_carried("claude-any")),
        LogRecord(Chat(brief), None, "b-1", _carried("claude-any")),
    ]


def test_envoy_access(shared: Path, desk: Desk) -> None:
    name = "2c1d7e9e-0000-4000-8000-000000000001"
    assert _example(shared, "envoy_access.jsonl", "access-log") == [
        LogRecord(desk.asked, "2026-03-01T10:00:00.251Z", name, QWEN),
        LogRecord(desk.asked, "2026-03-01T10:00:00.300Z", name, QWEN, failed=True),
    ]


def test_nginx_access(shared: Path, desk: Desk) -> None:
    assert _example(shared, "nginx_access.jsonl", "access-log") == [
        LogRecord(desk.asked, 1772359199.439, "9f3a6c", QWEN),  # 0.251 - 0.812 s
        NO_BODY,
        Skip("health check or other path"),
    ]


def test_langfuse_observations(shared: Path, desk: Desk) -> None:
    seen: dict[str, Any] = {"output_tokens": 24, "answer": IN_STOCK, "observed_ttft_ms": 361.0}
    carried = _carried("qwen3-8b", session_id="s-1")
    assert _example(shared, "langfuse_observations_api.jsonl", "langfuse") == [
        LogRecord(desk.asked, "2026-03-01T10:00:00.250Z", "obs-1", carried, **seen)
    ]
    chat, carried = Chat([desk.rules, desk.question]), carried | {"tenant": "u-7f"}
    assert _example(shared, "langfuse_observations_v2_blob.jsonl", "langfuse") == [
        LogRecord(chat, "2026-03-01 10:00:00.250000Z", "obs-1", carried, **seen),
        Skip("an observation that is no generation"),
    ]


def test_litellm_standard_logging(shared: Path, desk: Desk) -> None:
    carried = _carried("qwen3-8b", session_id="s-1")
    assert _example(shared, "litellm_standard_logging.jsonl", "litellm") == [
        LogRecord(
            desk.asked,
            1772359200.2501,
            "chatcmpl-0001",
            carried,
            24,
            IN_STOCK,
            observed_ttft_ms=360.9,
        ),
        "its prompt was redacted by LiteLLM",
    ]


def test_litellm_spendlogs_keep_the_head_of_a_cut_prompt(shared: Path) -> None:
    carried = _carried("hosted_vllm/qwen3-8b", session_id="s-1")
    head = Chat([{"role": "system", "content": "You are the parts-desk assistant"}])
    assert _example(shared, "litellm_spendlogs.jsonl", "litellm-spend") == [
        LogRecord(
            head,
            "2026-03-01T10:00:00.250000Z",
            "chatcmpl-0001",
            carried,
            24,
            observed_ttft_ms=361.0,
            cut=True,
            length=171,
        )
    ]


def _span(desk: Desk, time: str) -> LogRecord:
    function = {"name": "stock_level", "arguments": '{"part": "C-117"}'}
    called = {
        "role": "assistant",
        "content": None,
        "reasoning_content": "Look it up.",
        "tool_calls": [{"id": "call_9", "type": "function", "function": function}],
    }
    told = {"role": "tool", "tool_call_id": "call_9", "content": "14"}
    return LogRecord(
        prompt=Chat([desk.rules, desk.question, called, told], desk.asked.tools),
        time=time,
        request_id="00f067aa0ba902b7",
        carried=_carried("qwen3-8b", session_id="s-1"),
        output_tokens=24,
        answer=IN_STOCK,
        observed_cached_tokens=128,
    )


def test_otel_genai_spans(shared: Path, desk: Desk) -> None:
    expected = [_span(desk, "2026-03-01T10:00:00.250000Z")]
    assert _example(shared, "otel_genai_spans.jsonl", "otel") == expected


def test_otel_otlp_file_exporter(shared: Path, desk: Desk) -> None:
    assert _example(shared, "otel_otlp_file_exporter.jsonl", "otel") == [
        _span(desk, "1772359200250000000"),
        LogRecord(
            Chat([{"role": "user", "content": "Hi"}]),
            "1772359201062000000",
            "00f067aa0ba902b7",
            NOBODY,
            again=True,
        ),
    ]


def test_sagemaker_data_capture(shared: Path) -> None:
    chat = Chat([{"role": "user", "content": "Hi"}])
    assert _example(shared, "sagemaker_data_capture.jsonl", "sagemaker") == [
        LogRecord(chat, "2026-03-01T10:00:00Z", "e-1", NOBODY, 3)
    ]


def _bad(shared: Path, file: str) -> tuple[LogFile, list[tuple[int, Any]]]:
    """Return a file of those that are damaged, and what its lines gave."""
    log = LogFile(shared / "log_examples/bad" / file)
    found = [(one.line, one.what) for one in read_log(log)]
    return log, [(n, str(what) if isinstance(what, BadLine) else what) for n, what in found]


@pytest.mark.parametrize(
    ("file", "lines", "repairs"),
    [
        ("bom_crlf_blank.jsonl", [1, 3], {}),
        ("concatenated_objects.json", [1, 1], {"several objects on one line": 1}),
        ("multi_member.jsonl.gz", [1, 2], {}),
        ("two_frames.jsonl.zst", [1, 2], {}),
    ],
)
def test_odd_packing_changes_no_request(
    shared: Path, desk: Desk, file: str, lines: list[int], repairs: dict[str, int]
) -> None:
    log, found = _bad(shared, file)
    assert found == [(line, LogRecord(desk.asked, EPOCH, carried=QWEN)) for line in lines]
    assert log.repairs == repairs


def test_truncated_last_line(shared: Path, desk: Desk) -> None:
    _, found = _bad(shared, "truncated_last_line.jsonl")
    whole = LogRecord(desk.asked, EPOCH, carried=QWEN)
    assert found == [(1, whole), (2, whole), (3, "the last line is cut off")]


@pytest.mark.parametrize("file", ["truncated.jsonl.gz", "truncated.jsonl.zst"])
def test_truncated_compression_ends_the_reading(shared: Path, file: str) -> None:
    with pytest.raises(LogError, match=rf"{file}: damaged or truncated"):
        _bad(shared, file)


def test_dup_ids_retries(shared: Path) -> None:
    log, found = _bad(shared, "dup_ids_retries.jsonl")
    assert found == [
        (line, LogRecord(Chat([{"role": "user", "content": text}]), time, name, NOBODY, failed=bad))
        for line, text, time, name, bad in (
            (1, "x", 10.0, "r1", True),
            (2, "x", 10.4, "r1", False),
            (3, "y", 9.9, "r0", False),
            (4, "z", 10.4, "r2", False),
            (5, "w", 10.4, "r3", False),
            (6, "clock stepped back", 4.0, "r4", False),
        )
    ]
    assert log.families == {"openai": 6}


@pytest.mark.parametrize(
    ("file", "text", "time", "repairs"),
    [
        ("invalid_utf8.jsonl", "caf\ufffd", 1, {"bytes that are no UTF-8, read as U+FFFD": 1}),
        ("lone_surrogate.jsonl", "cut \ud83d here", 1, {}),
        ("nan.jsonl", "x", None, {"NaN or Infinity, read as null": 1}),
    ],
)
def test_odd_characters_and_numbers(
    shared: Path, file: str, text: str, time: int | None, repairs: dict[str, int]
) -> None:
    log, found = _bad(shared, file)
    chat = Chat([{"role": "user", "content": text}])
    assert found == [(1, LogRecord(chat, time, carried=NOBODY))]
    assert log.repairs == repairs


def test_mixed_schemas_keep_the_kind_of_prompt_that_most_lines_have(
    shared: Path, desk: Desk
) -> None:
    log, found = _bad(shared, "mixed_schemas.jsonl")
    assert found == [
        (1, LogRecord(desk.asked, EPOCH, carried=QWEN)),
        (2, "blocks of 512 tokens among text or tokens"),
        (3, LogRecord("x", None, "1", NOBODY)),
    ]
    assert log.families == {"openai": 1, "mooncake": 1, "openai-batch": 1}


def test_nulls(shared: Path) -> None:
    log, found = _bad(shared, "nulls.jsonl")
    assert found == [
        *((line, EMPTY) for line in (1, 2, 3, 4)),
        (5, LogRecord("x", None, carried=NOBODY)),
        (6, "no prompt in a known form"),
        *((line, "not a JSON object") for line in (7, 8, 9)),
    ]
    assert log.lines == 9


def test_pretty_array(shared: Path) -> None:
    _, found = _bad(shared, "pretty_array.json")
    assert found == [(1, LogRecord("x", 1, carried=NOBODY))]
