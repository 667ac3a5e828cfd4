"""LMCache agent traces and AIBrix workloads: prompts as text."""

from typing import Any

import pytest
from family_reading import read_lines

from pipeline.logs.families import aibrix, lmcache
from pipeline.logs.records import BadLine, Chat, LogRecord

TURN = {"timestamp": 1780000000250000, "input": "Hello", "output": "Hi", "session_id": "s"}
NOTHING = {"namespace": None, "model": None, "tenant": None, "session_id": None}


_read = read_lines


def test_an_agents_turn_is_its_whole_prompt() -> None:
    assert _read(lmcache.FAMILY, TURN) == [
        LogRecord(
            "Hello",
            time=1780000000250000,
            carried=NOTHING | {"session_id": "s"},
            answer="Hi",
        )
    ]


@pytest.mark.parametrize("prompt", ["", None])
def test_an_agents_turn_without_a_prompt_is_a_bad_line(prompt: object) -> None:
    with pytest.raises(BadLine, match="the prompt is empty"):
        _read(lmcache.FAMILY, TURN | {"input": prompt})


def test_an_answer_may_be_empty_or_unknown() -> None:
    found = [*_read(lmcache.FAMILY, TURN | {"output": ""})]
    found += _read(lmcache.FAMILY, TURN | {"output": [1]})
    assert [one.answer for one in found if isinstance(one, LogRecord)] == ["", None]


@pytest.mark.parametrize(
    "line",
    [
        {},
        "x",
        None,
        {"input": "x", "instructions": "y"},
        {"timestamp": 1, "input": "x", "output": "y"},
        TURN | {"input": [{"role": "user"}]},
        TURN | {"trace_id": "t"},
        TURN | {"type": "GENERATION"},
    ],
)
def test_other_lines_are_no_agents_turns(line: object) -> None:
    assert not lmcache.FAMILY.recognises(line)


def _row(*requests: Any) -> dict[str, Any]:
    return {"timestamp": 125, "requests": list(requests)}


def _prompt(prompt: object, **more: Any) -> dict[str, Any]:
    return {"prompt": prompt, "Prompt Length": 4, "Output Length": 3} | more


def test_a_row_is_the_requests_of_one_moment() -> None:
    second = {"prompt": "Bye", "prompt_length": 1, "output_length": 9, "session_id": 7}
    assert _read(aibrix.FAMILY, _row(_prompt("Hello", model="m"), second)) == [
        LogRecord(
            "Hello",
            time=125,
            carried=NOTHING | {"namespace": "m", "model": "m"},
            output_tokens=3,
        ),
        LogRecord("Bye", time=125, carried=NOTHING | {"session_id": "7"}, output_tokens=9),
    ]


def test_a_prompt_of_a_row_may_be_messages() -> None:
    messages = [{"role": "user", "content": "Hello"}]
    [record] = _read(aibrix.FAMILY, _row(_prompt(messages)))
    assert isinstance(record, LogRecord)
    assert record.prompt == Chat(messages)


def test_a_bad_request_does_not_cost_the_others_of_its_row() -> None:
    found = _read(aibrix.FAMILY, _row(_prompt(""), _prompt("Hello"), _prompt(7), "x"))
    assert [one for one in found if not isinstance(one, LogRecord)] == [
        BadLine("the prompt is empty"),
        BadLine("a prompt is neither text nor token ids"),
        BadLine("a request is not an object"),
    ]
    assert isinstance(found[1], LogRecord)


@pytest.mark.parametrize("prompt", [7, {"a": 1}, ["a", "b"], [1, "a"]])
def test_a_prompt_that_is_none_is_a_bad_line(prompt: object) -> None:
    found = _read(aibrix.FAMILY, _row(_prompt(prompt)))
    assert found == [BadLine("a prompt is neither text nor token ids")]


@pytest.mark.parametrize(
    "line",
    [
        {},
        "x",
        None,
        {"requests": []},
        {"requests": [1]},
        {"requests": [{"prompt": "x"}]},
        {"requests": [{"Output Length": 1}]},
        {"requests": [_prompt("x")], "block_size": 64},
    ],
)
def test_other_lines_are_no_workload(line: object) -> None:
    assert not aibrix.FAMILY.recognises(line)


def test_relative_times_are_microseconds_and_milliseconds() -> None:
    assert (lmcache.FAMILY.relative_unit, aibrix.FAMILY.relative_unit) == ("us", "ms")
