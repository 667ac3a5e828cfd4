"""Sessions of coding agents: requests, sub-agents, local and global block ids."""

from functools import partial
from typing import Any

import pytest
from family_reading import read_lines

from pipeline.logs.families.coding_agent import FAMILY, _MixedIds
from pipeline.logs.records import BadLine, Blocks, LogRecord, Skip


def _request(t: object, tokens: object, ids: object, **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "n", "model": "m", "in": tokens, "out": 5, "hash_ids": ids} | more


def _session(*requests: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": "s",
        "block_size": 64,
        "hash_id_scope": "global",
        "requests": list(requests),
    } | more


_read = partial(read_lines, FAMILY)


def _ids(session: dict[str, Any]) -> list[list[int]]:
    prompts = [found.prompt for found in _read(session) if isinstance(found, LogRecord)]
    return [prompt.ids for prompt in prompts if isinstance(prompt, Blocks)]


def test_a_session_is_its_requests_in_order() -> None:
    first = _request(0.5, 130, [1, 2], type="s", ttft=0.25)
    second = _request(9, 200, [1, 2, 3, 4], model="n")
    assert _read(_session(first, second)) == [
        LogRecord(
            prompt=Blocks([1, 2], 130, 64),
            time=0.5,
            request_id="s-0",
            carried={"namespace": "m", "model": "m", "tenant": None, "session_id": "s"},
            output_tokens=5,
            observed_ttft_ms=250.0,
        ),
        LogRecord(
            prompt=Blocks([1, 2, 3, 4], 200, 64),
            time=9,
            request_id="s-1",
            carried={"namespace": "n", "model": "n", "tenant": None, "session_id": "s"},
            output_tokens=5,
        ),
    ]


def test_requests_of_a_sub_agent_stand_where_it_began_and_count_from_then() -> None:
    deep = {"t": 3.0, "type": "subagent", "requests": [_request(0.25, 64, [7])]}
    sub = {"t": 10.0, "type": "subagent", "requests": [_request(0.0, 64, [8]), deep]}
    found = _read(_session(_request(1.0, 64, [6]), sub, _request(11.0, 64, [9])))
    records = [record for record in found if isinstance(record, LogRecord)]
    assert [record.time for record in records] == [1.0, 10.0, 13.25, 11.0]
    assert [record.request_id for record in records] == ["s-0", "s-1", "s-2", "s-3"]
    assert {record.carried["session_id"] for record in records} == {"s"}


def test_a_sub_agent_without_requests_adds_nothing() -> None:
    sub = {"t": 10.0, "type": "subagent", "requests": []}
    assert len(_read(_session(sub, _request(11.0, 64, [9])))) == 1


def test_a_session_without_requests_is_skipped() -> None:
    assert _read(_session()) == [Skip("a session without requests")]


def test_global_ids_stay_as_they_are() -> None:
    assert _ids(_session(_request(0, 128, [5, 2**64 - 1]))) == [[5, 2**64 - 1]]


@pytest.mark.parametrize("scope", ["local", None, "elsewhere"])
def test_local_ids_are_the_same_within_a_session_and_no_others(scope: object) -> None:
    requests = [_request(0, 192, [1, 2, 3]), _request(1, 192, [1, 2, 4])]
    one = _ids(_session(*requests, hash_id_scope=scope))
    other = _ids(_session(*requests, hash_id_scope=scope, id="t"))
    assert one[0][:2] == one[1][:2]
    assert len({*one[0], *one[1], *other[0], *other[1]}) == 8
    assert one == _ids(_session(*requests, hash_id_scope=scope))
    assert all(0 <= block < 2**64 for ids in (*one, *other) for block in ids)


def test_ids_are_mixed_as_splitmix64_does() -> None:
    ids = _MixedIds("s")
    ids._seed = 0
    known = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert [ids[block] for block in range(1, 5)] == known


def test_the_seed_is_a_blake2b_of_the_session() -> None:
    # b2sum --length 64 of "w1", read from the last byte to the first
    assert _MixedIds("w1")._seed == int.from_bytes(bytes.fromhex("f23c848a5e8c39b8"), "little")


def test_local_ids_need_a_session_to_be_mixed_with() -> None:
    with pytest.raises(BadLine, match="local block ids of a session without an id"):
        _read(_session(_request(0, 64, [1]), hash_id_scope="local", id=None))


def test_a_session_without_an_id_may_have_global_ids() -> None:
    [record] = _read(_session(_request(0, 64, [1]), id=None))
    assert isinstance(record, LogRecord)
    assert (record.request_id, record.carried["session_id"]) == (None, None)


@pytest.mark.parametrize("ids", [[1, 2], [1, 2, 3]])
def test_the_last_block_may_have_an_id_or_none(ids: list[int]) -> None:
    [record] = _read(_session(_request(0, 150, ids)))
    assert isinstance(record, LogRecord)
    assert (record.cut, record.length) == (False, None)


def test_fewer_ids_than_full_blocks_are_a_prompt_that_was_cut() -> None:
    [record] = _read(_session(_request(0, 150, [1])))
    assert isinstance(record, LogRecord)
    assert (record.cut, record.length) == (True, 150)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (_request(None, 64, [1]), "t is not a number"),
        (_request("0", 64, [1]), "t is not a number"),
        (_request(10**400, 64, [1]), "t is not a number"),
        (_request(0, None, [1]), "the prompt's length or its block ids are missing"),
        (_request(0, 64, None), "lengths only: no content, so no prefix"),
        (_request(0, 0, []), "the prompt is empty"),
        (_request(0, 640, []), "cut by the logger"),
        ("x", "a request is not an object"),
        (None, "a request is not an object"),
    ],
)
def test_a_bad_request_leaves_the_rest_of_its_session(request_: object, reason: str) -> None:
    bad, good = _read(_session(request_, _request(0, 64, [1])))
    assert bad == BadLine(reason)
    assert isinstance(good, LogRecord)
    assert good.request_id == "s-1"


@pytest.mark.parametrize("size", [None, 0, -64, 1.5, "64", True, 2**40])
def test_a_session_needs_the_size_of_its_blocks(size: object) -> None:
    with pytest.raises(BadLine, match="block_size"):
        _read(_session(_request(0, 64, [1]), block_size=size))


def test_a_sub_agent_needs_to_say_when_it_began() -> None:
    inner = {"type": "subagent", "t": 5, "requests": [_request(0, 64, [1])]}
    skipped, again, good = _read(
        _session(
            {"type": "subagent", "requests": [_request(0, 64, [1]), inner]},
            _request(9, 64, [1]),
        )
    )
    assert skipped == again == BadLine("t is not a number")
    assert isinstance(good, LogRecord)
    assert good.time == 9


@pytest.mark.parametrize(
    "line", [{}, "x", None, {"requests": []}, {"block_size": 64}, {"block_size": 1, "requests": 1}]
)
def test_other_lines_are_not_recognised(line: object) -> None:
    assert not FAMILY.recognises(line)


def test_times_count_from_the_start_of_each_session() -> None:
    assert (FAMILY.relative_unit, FAMILY.own_clock, FAMILY.own_blocks) == ("s", True, False)
