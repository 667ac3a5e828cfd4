"""The examples of engine logs: each is its family's alone, and odd values are a verdict."""

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from family_reading import read_file

from pipeline.logs.documents import document
from pipeline.logs.families import FAMILIES
from pipeline.logs.objects import parse_line
from pipeline.logs.records import BadLine, LogRecord, Skip
from pipeline.logs.streams import open_log

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = {
    "vllm": "vllm.log",
    "sglang-json": "sglang-json.log",
    "sglang-text": "sglang-text.log",
    "sglang-metrics": "sglang-metrics.log",
    "sglang-dump": "sglang-dump.pkl",
}
BY_NAME = {family.name: family for family in FAMILIES}
TOLD = "<|im_start|>system\nYou know the tides of this harbour.<|im_end|>\n<|im_start|>user\n"
ASKED = f"{TOLD}When's high water at Pier 4?<|im_end|>\n<|im_start|>assistant\n"
IDS = [151644, 8948, 198, 2610]
ODD: list[Any] = [
    None, True, -1, 1.5, float("nan"), 2**70, "", "x", "[", "{}", "\ud83d", [], [[]], [None], [{}],
    ["..."], {}, {"a": {"b": []}}, {"id": 1}, [[[[[1]]]]], "'" * 50, "..." * 700,
]  # fmt: skip


def _found(name: str) -> list[LogRecord | Skip | BadLine]:
    return read_file(EXAMPLES / FILES[name], name)


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        (
            "vllm",
            [
                ("chatcmpl-a1", ASKED, "1999-12-31 23:59:58"),
                ("cmpl-b2-0", [54, 485, 25], "2000-01-01 00:00:03"),
                ("chatcmpl-c3", [151644, 8948, 198], "2000-01-01 00:00:04"),
            ],
        ),
        (
            "sglang-json",
            [
                ("r1", IDS, "2026-05-02T06:30:00.251000"),
                ("r2", "Ebb:", "2026-05-02T06:30:01.000000"),
                ("r3", "Flood:", "2026-05-02T06:30:01.000000"),
            ],
        ),
        (
            "sglang-text",
            [
                ("r1", ASKED, "2026-05-02 06:30:01"),
                ("r2", [785, 33887], "2026-05-02 06:30:04"),
            ],
        ),
        ("sglang-metrics", [("r1", IDS, None), ("r2", "Ebb:", None)]),
        ("sglang-dump", [("r1", IDS, 1777703400.25), ("r2", "Ebb:", 1777703401.0)]),
    ],
)
def test_an_example_gives_the_requests_it_tells_of(name: str, requests: list[Any]) -> None:
    told = [r for r in _found(name) if isinstance(r, LogRecord) and not r.again and not r.fallback]
    assert [(r.request_id, r.prompt, r.time) for r in told] == requests


@pytest.mark.parametrize(
    ("name", "added"),
    [
        (
            "vllm",
            [
                ("chatcmpl-c3", None, None, None),
                ("chatcmpl-c3", 3, "Yes, at Pier 2.", None),
                ("chatcmpl-a1", None, "At 14:20.", None),
            ],
        ),
        ("sglang-json", [("r1", 6, "At 14:20.", 3)]),
        ("sglang-text", [("r1", 6, "At 14:20.", 16)]),
        ("sglang-metrics", []),
        ("sglang-dump", []),
    ],
)
def test_an_example_tells_again_of_some(name: str, added: list[Any]) -> None:
    again = [r for r in _found(name) if isinstance(r, LogRecord) and r.again]
    assert [
        (r.request_id, r.output_tokens, r.answer, r.observed_cached_tokens) for r in again
    ] == added


def test_what_else_stands_in_the_examples_is_skipped_or_counts_only_alone() -> None:
    skipped = {name: [f.reason for f in _found(name) if isinstance(f, Skip)] for name in FILES}
    line = "a line of the server's that tells of no request"
    assert skipped == {
        "vllm": [line, line],
        "sglang-json": [line, "health check or other path"],
        "sglang-text": [line],
        "sglang-metrics": [],
        "sglang-dump": [],
    }
    assert not any(isinstance(f, BadLine) for name in FILES for f in _found(name))
    fallback = [f for f in _found("sglang-json") if isinstance(f, LogRecord) and f.fallback]
    assert [f.carried["tenant"] for f in fallback] == ["harbour"]


def _values(path: Path) -> Iterator[Any]:
    """Yield the objects and texts of a file, as families are asked about them."""
    with open_log(path, lambda _: None) as stream:
        rows = document(stream)
        if rows is not None:
            yield from (row for _, row in rows if isinstance(row, dict))
            return
        for line in stream.read().splitlines():
            try:
                yield from parse_line(line).values
            except BadLine:
                continue


def test_no_example_of_another_kind_is_taken_for_one_of_an_engine() -> None:
    others = [path for path in EXAMPLES.iterdir() if path.name not in FILES.values()]
    assert others
    for path in others:
        for value in _values(path):
            assert not [name for name in FILES if BY_NAME[name].recognises(value)]


@pytest.mark.parametrize("name", FILES)
def test_an_example_is_of_no_other_kind(name: str) -> None:
    for value in _values(EXAMPLES / FILES[name]):
        named = [f.name for f in FAMILIES if not f.generic and f.recognises(value)]
        assert named in ([name], [])


def _with_odd_values(value: Any, odd: Any) -> Iterator[Any]:
    """Yield copies of an object, each with one value at any depth replaced."""
    if isinstance(value, str):
        if value.startswith("{"):
            yield from map(json.dumps, _with_odd_values(json.loads(value), odd))
        return
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        changed = copy.copy(value)
        changed[key] = odd
        yield changed
        if isinstance(value[key], dict | list | str):
            for inner in _with_odd_values(value[key], odd):
                changed = copy.copy(value)
                changed[key] = inner
                yield changed


def _verdicts(name: str, value: Any) -> list[Any]:
    """Return what a line gives, as the reading of logs takes it."""
    family = BY_NAME[name]
    if not family.recognises(value):
        return []
    try:
        return list(family.reader()(value))
    except BadLine as reason:
        return [reason]


@pytest.mark.parametrize("name", ["sglang-json", "sglang-metrics", "sglang-dump"])
def test_odd_values_anywhere_in_an_object_give_a_verdict(name: str) -> None:
    seen = 0
    for value in _values(EXAMPLES / FILES[name]):
        if not isinstance(value, dict):
            continue
        for odd in ODD:
            for changed in _with_odd_values(value, odd):
                for what in _verdicts(name, changed):
                    seen += 1
                    assert isinstance(what, LogRecord | Skip | BadLine)
                    assert "tides" not in (str(what) if isinstance(what, BadLine) else "")
    assert seen > 100


@pytest.mark.parametrize("name", ["vllm", "sglang-text"])
def test_lines_with_anything_in_them_give_a_verdict(name: str) -> None:
    choose = random.Random(0)  # noqa: S311 - always the same
    odd = [
        "'",
        '"',
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        "=",
        ": ",
        " ... ",
        "\\",
        "None",
        "\ud83d",
        "9",
    ]
    seen = 0
    for value in _values(EXAMPLES / FILES[name]):
        for _ in range(300):
            changed = value
            for _ in range(1 + choose.randrange(3)):
                at, end = choose.randrange(len(changed)), choose.randrange(4)
                changed = changed[:at] + choose.choice(odd) + changed[at + end :]
            for what in _verdicts(name, changed[: choose.choice([None, choose.randrange(400)])]):
                seen += 1
                assert isinstance(what, LogRecord | Skip | BadLine)
                assert "tides" not in (str(what) if isinstance(what, BadLine) else "")
    assert seen > 100
