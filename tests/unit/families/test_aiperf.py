"""AIPerf inputs: payloads of sessions, and sessions of user turns."""

from functools import partial
from typing import Any

import pytest
from family_reading import read_lines

from pipeline.logs.families.aiperf import FAMILY
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

HELLO = {"role": "user", "content": "Hello"}
MORE = {"role": "user", "content": "And?"}
PAYLOAD = {"model": "m", "messages": [HELLO]}


_read = partial(read_lines, FAMILY)


def _inputs(*payloads: Any, session: object = "s") -> dict[str, Any]:
    return {"data": [{"session_id": session, "payloads": list(payloads)}]}


def test_each_payload_is_a_request_of_its_session() -> None:
    carried = {"namespace": "m", "model": "m", "tenant": None, "session_id": "s"}
    plain = {"namespace": None, "model": None, "tenant": None, "session_id": "s"}
    assert _read(_inputs(PAYLOAD, {"prompt": ["a", "b"]})) == [
        LogRecord(Chat([HELLO]), request_id="s-0", carried=carried),
        LogRecord("a", request_id="s-1-0", carried=plain),
        LogRecord("b", request_id="s-1-1", carried=plain),
    ]


def test_a_session_without_an_id_names_no_requests() -> None:
    [record] = _read(_inputs(PAYLOAD, session=None))
    assert isinstance(record, LogRecord)
    assert record.request_id is None


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"input": "x"}, "no prompt in a known form"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"messages": [{"content": "x"}]}, "a message has no role"),
        ("x", "a payload is not an object"),
        (None, "a payload is not an object"),
    ],
)
def test_a_bad_payload_leaves_the_rest_of_the_file(payload: object, reason: str) -> None:
    bad, good = _read(_inputs(payload, PAYLOAD))
    assert bad == BadLine(reason)
    assert isinstance(good, LogRecord)
    assert good.request_id == "s-1"


def test_a_session_without_payloads_is_skipped() -> None:
    line = _inputs(PAYLOAD)
    line["data"] += [{"session_id": "t", "payloads": []}, {"payloads": 7}, "x", None]
    assert _read(line)[1:] == [Skip("a conversation without turns")] * 4


def _turns(*turns: Any) -> dict[str, Any]:
    return {"session_id": "s", "turns": list(turns)}


def test_user_turns_add_up_without_the_answers_that_nobody_knows() -> None:
    found = _read(_turns({"text": "Hello", "output_length": 7}, {"text": "And?", "delay": 5}))
    carried = {"namespace": None, "model": None, "tenant": None, "session_id": "s"}
    assert found == [
        LogRecord(Chat([HELLO]), request_id="s-0", carried=carried, output_tokens=7),
        LogRecord(Chat([HELLO, MORE]), request_id="s-1", carried=carried),
    ]


def test_a_turn_comes_at_its_timestamp_or_its_delay_after_the_turn_before() -> None:
    found = _read(
        _turns(
            {"text": "a", "timestamp": 1000},
            {"text": "b", "delay": 250.5},
            {"text": "c"},
            {"text": "d", "timestamp": 9000, "delay": 1},
        )
    )
    times = [one.time for one in found if isinstance(one, LogRecord)]
    assert times == [1000, 1250.5, 1250.5, 9000]


def test_a_turn_may_have_several_texts_and_a_role() -> None:
    [record] = _read(_turns({"texts": ["a", "b"], "role": "system"}))
    assert isinstance(record, LogRecord)
    assert record.prompt == Chat([{"role": "system", "content": "a\nb"}])


def test_a_turn_without_text_is_no_request() -> None:
    found = _read(_turns({"text": None}, "x", {"text": "Hello"}))
    assert found[:2] == [BadLine("the prompt is empty")] * 2
    assert isinstance(found[2], LogRecord)


def test_too_many_turns_are_a_bad_line() -> None:
    with pytest.raises(BadLine, match="more than 5000 messages"):
        _read(_turns(*[{"text": "x"}] * 5001))


@pytest.mark.parametrize(
    "line",
    [
        {},
        "x",
        None,
        {"data": []},
        {"data": [1]},
        {"data": [{"payloads": 1}]},
        {"turns": []},
        {"turns": [1]},
        {"turns": [{"messages": []}]},
        {"turn": 2},
    ],
)
def test_other_lines_are_not_recognised(line: object) -> None:
    assert not FAMILY.recognises(line)


def test_relative_times_are_milliseconds() -> None:
    assert FAMILY.relative_unit == "ms"
