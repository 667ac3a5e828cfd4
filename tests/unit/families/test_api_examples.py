"""The examples of API and gateway logs: each is its family's, and odd values are a verdict."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from family_reading import read_file

from pipeline.logs.families import FAMILIES
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

EXAMPLES = Path(__file__).parents[2] / "examples"
TOLD = "You answer for the harbour office of a small island. Name the quay."
RULES = {"role": "system", "content": TOLD}
FERRY = {"role": "user", "content": "Where does the noon ferry land?"}
OTHER_ENDPOINT = "another endpoint than chat and completions"
NAMES = (
    "access-log", "anthropic", "langfuse", "litellm", "litellm-spend", "openai", "openai-batch",
    "openai-responses", "otel", "sagemaker",
)  # fmt: skip


def _found(name: str) -> list[LogRecord | Skip | BadLine]:
    return read_file(EXAMPLES / f"{name}.jsonl", name)


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        ("access-log", [("n1", 1780300800.5, None), ("n2", 1780300802.998, None)]),
        ("anthropic", [("msg-1", 1780300800123, 21), ("msg-2", 1780300802000, None)]),
        (
            "langfuse",
            [
                ("g1", "2026-06-01 08:00:00.500000Z", 4),
                ("g2", "2026-06-01 08:00:04.000000Z", None),
            ],
        ),
        ("litellm", [("chatcmpl-l1", 1780300800.5, 4), ("cmpl-l2", 1780300803.0, 6)]),
        (
            "litellm-spend",
            [
                ("chatcmpl-s1", "2026-06-01 08:00:00.5Z", 4),
                ("chatcmpl-s2", "2026-06-01 08:00:02Z", 4),
            ],
        ),
        (
            "openai",
            [
                ("h-1", 1780300800.5, 4),
                ("h-2", 1780300807.25, 5),
                ("h-3-0", 1780300808.0, None),
                ("h-3-1", 1780300808.0, None),
            ],
        ),
        ("openai-batch", [("log-1", None, None), ("log-2", None, None), ("log-1", None, 4)]),
        (
            "openai-responses",
            [
                ("resp_h1", "2026-06-01T08:00:00.500Z", 18),
                ("resp_h2", "2026-06-01T08:00:02.000Z", 4),
                ("resp_h3", "2026-06-01T08:00:09.000Z", 3),
            ],
        ),
        (
            "otel",
            [
                ("00000000000000a1", "1780300800500000000", 4),
                ("00000000000000a3", "1780300802000000000", 7),
                ("00000000000000a3", "1780300802610000000", None),
                ("00000000000000b1", "2026-06-01T08:00:09.250000Z", 2),
            ],
        ),
        (
            "sagemaker",
            [("ev-1", "2026-06-01T08:00:01Z", 4), ("ev-2", "2026-06-01T08:00:04Z", None)],
        ),
    ],
)
def test_an_example_is_read_by_the_family_of_its_name(name: str, requests: list[Any]) -> None:
    records = [what for what in _found(name) if isinstance(what, LogRecord)]
    assert [(r.request_id, r.time, r.output_tokens) for r in records] == requests
    assert isinstance(records[0].prompt, Chat)
    head = [{"role": "system", "content": "You answer for the harbour office"}]
    assert records[0].prompt.messages == [RULES, FERRY]
    assert [r.prompt.messages for r in records if r.cut and isinstance(r.prompt, Chat)] == (
        [head] if name == "litellm-spend" else []
    )


@pytest.mark.parametrize(
    ("name", "reasons"),
    [
        ("access-log", ["health check or other path", "the request body is not in the log"]),
        ("anthropic", []),
        ("langfuse", ["an observation that is no generation"]),
        (
            "litellm",
            [
                "answered from the gateway's own cache: no engine saw it",
                "another call than chat, completions, responses and messages",
            ],
        ),
        (
            "litellm-spend",
            ["its prompt is not in the log: store_prompts_in_spend_logs is off"],
        ),
        ("openai", [OTHER_ENDPOINT]),
        ("openai-batch", [OTHER_ENDPOINT]),
        ("openai-responses", ["its previous response is not in the log"]),
        ("otel", ["a span or event that is no generation"]),
        ("sagemaker", []),
    ],
)
def test_the_other_lines_of_an_example_say_why_they_are_no_requests(
    name: str, reasons: list[str]
) -> None:
    others = [what for what in _found(name) if not isinstance(what, LogRecord)]
    assert [what.reason if isinstance(what, Skip) else str(what) for what in others] == reasons


def _lines(name: str) -> list[dict[str, Any]]:
    text = (EXAMPLES / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_of_one_family_and_perhaps_of_the_generic_one(name: str) -> None:
    for line in _lines(name):
        known = {family.name for family in FAMILIES if family.recognises(line)}
        assert known - {"openai"} == {name} - {"openai"}


DEEP: list[Any] = []
for _ in range(500):
    DEEP = [DEEP]
JUNK = (
    None, True, -1, 10**30, float("nan"), float("inf"), "", "x", "[", "{", "[]", '{"a": 1}',
    "\ud83d",
    [], {}, [None], ["x"], [{}], {"role": 1}, {"a": [1]}, DEEP,
)  # fmt: skip


def _changed(value: Any) -> Iterator[Any]:
    """Yield copies of a value, each with one thing in it, at any depth, left out or odd."""
    keys: Any = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        copied = copy.copy(value)
        del copied[key]
        yield copied
        for junk in JUNK:
            copied = copy.copy(value)
            copied[key] = junk
            yield copied
        inner = value[key]
        if isinstance(inner, str) and inner[:1] in ("{", "["):
            texts = (json.dumps(changed) for changed in _changed(json.loads(inner)))
            for text in texts:
                copied = copy.copy(value)
                copied[key] = text
                yield copied
        elif isinstance(inner, dict | list):
            for changed in _changed(inner):
                copied = copy.copy(value)
                copied[key] = changed
                yield copied


@pytest.mark.parametrize("name", NAMES)
def test_odd_values_anywhere_in_a_line_are_a_verdict_on_it(name: str) -> None:
    family = next(family for family in FAMILIES if family.name == name)
    reader, verdicts = family.reader(), 0
    for line in _lines(name):
        for odd in _changed(line):
            if not family.recognises(odd):
                continue
            try:
                found = list(reader(odd))
            except BadLine as reason:
                found = [reason]
            verdicts += len(found)
            for what in found:
                _check(what)
    assert verdicts > 500


def _check(what: LogRecord | Skip | BadLine) -> None:
    """See that a record holds nothing that a trace can't."""
    if not isinstance(what, LogRecord):
        assert isinstance(what, Skip | BadLine)
        return
    assert what.prompt is None or (isinstance(what.prompt, Chat | str | list) and what.prompt)
    assert what.prompt is not None or what.again
    assert what.time is None or isinstance(what.time, float | int | str)
    names = (what.request_id, what.answer, *what.carried.values())
    assert all(name is None or isinstance(name, str) for name in names)
    for count in (what.output_tokens, what.observed_cached_tokens, what.length):
        assert count is None or (type(count) is int and 0 <= count < 2**32)
    assert what.observed_ttft_ms is None or what.observed_ttft_ms >= 0
    assert isinstance(what.failed, bool)
