"""Dynamo request traces: the ends of requests, bare or wrapped, and what else is in them."""

from functools import partial
from typing import Any

import pytest
from family_reading import read_lines

from pipeline.logs.families.dynamo import FAMILY
from pipeline.logs.records import BadLine, Blocks, LogRecord, Skip

REPLAY = {"trace_block_size": 32, "input_length": 70, "input_sequence_hashes": [2**64 - 1, 5, 6]}
REQUEST = {
    "request_id": "r",
    "model": "m",
    "request_received_ms": 1000,
    "total_time_ms": 400,
    "output_tokens": 9,
    "cached_tokens": 32,
    "ttft_ms": 12.5,
    "replay": REPLAY,
}


def _line(**more: Any) -> dict[str, Any]:
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": 1500,
        "request": REQUEST,
    } | more


_read = partial(read_lines, FAMILY)


EXPECTED = LogRecord(
    prompt=Blocks([2**64 - 1, 5, 6], 70, 32),
    time=1000,
    request_id="r",
    carried={"namespace": "m", "model": "m", "tenant": None, "session_id": "a:b"},
    output_tokens=9,
    observed_cached_tokens=32,
    observed_ttft_ms=12.5,
)


def test_the_end_of_a_request_is_the_request_bare_or_wrapped() -> None:
    line = _line(agent_context={"session_id": "a:b", "parent_session_id": "a"})
    assert _read(line) == [EXPECTED]
    assert _read({"timestamp": 1501, "event": line}) == [EXPECTED]


def test_a_request_without_a_received_time_came_its_duration_before_its_end() -> None:
    request = REQUEST | {"request_received_ms": None}
    [record] = _read(_line(request=request))
    assert isinstance(record, LogRecord)
    assert record.time == 1100
    [record] = _read(_line(request=request | {"total_time_ms": None}))
    assert isinstance(record, LogRecord)
    assert record.time is None


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("tool_end", "tool event"),
        ("tool_error", "tool event"),
        ("request_payload", "not the end of a request"),
        (None, "not the end of a request"),
        (7, "not the end of a request"),
    ],
)
def test_other_records_are_skipped(kind: object, reason: str) -> None:
    assert _read(_line(event_type=kind)) == [Skip(reason)]


@pytest.mark.parametrize(
    ("replay", "reason"),
    [
        (None, "no replay with a trace_block_size"),
        ("x", "no replay with a trace_block_size"),
        (REPLAY | {"trace_block_size": 0}, "no replay with a trace_block_size"),
        (REPLAY | {"trace_block_size": "32"}, "trace_block_size is not a whole number"),
        (REPLAY | {"input_sequence_hashes": None}, "lengths only"),
        (REPLAY | {"input_sequence_hashes": [-1]}, "a block id"),
        (REPLAY | {"input_length": None}, "length"),
        (REPLAY | {"input_length": 20}, "20 tokens are 1 blocks of 32"),
    ],
)
def test_a_request_needs_its_blocks(replay: object, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _read(_line(request=REQUEST | {"replay": replay}))


def test_a_request_that_is_no_object_has_no_blocks() -> None:
    with pytest.raises(BadLine, match="no blocks"):
        _read(_line(request=[1]))


def test_another_version_is_refused() -> None:
    with pytest.raises(BadLine, match="another version"):
        _read(_line(schema="dynamo.request.trace.v2"))


def test_reports_that_are_no_numbers_are_left_out() -> None:
    odd = REQUEST | {"output_tokens": -1, "cached_tokens": "9", "ttft_ms": "12"}
    [record] = _read(_line(request=odd))
    assert isinstance(record, LogRecord)
    reports = (record.output_tokens, record.observed_cached_tokens, record.observed_ttft_ms)
    assert reports == (None, None, None)


@pytest.mark.parametrize(
    "line", [{}, "x", None, {"schema": 1}, {"schema": "other"}, {"event": "x"}, {"event": {}}]
)
def test_other_lines_are_not_recognised(line: object) -> None:
    assert not FAMILY.recognises(line)


def test_hashes_mean_the_same_in_all_files() -> None:
    assert (FAMILY.relative_unit, FAMILY.own_blocks) == ("ms", False)
