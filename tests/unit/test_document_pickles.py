"""Dumps of SGLang's: pickles, read as data alone; hostile, damaged and endless ones."""

import gzip
import io
import os
import pickle
import pickletools
import random
import sys
import time
import types
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from document_rows import PACKED, Read, reads_in

from pipeline.errors import LogError
from pipeline.logs import documents, pickles
from pipeline.logs.pickles import BadPickle, read_pickle


@pytest.fixture
def rows(tmp_path: Path) -> Read:
    return reads_in(tmp_path)


@pytest.fixture
def sglang(monkeypatch: pytest.MonkeyPatch) -> type:
    """Return a class that pickles as SGLang's request does."""
    name = "sglang.srt.managers.io_struct"
    module = types.ModuleType(name)

    class GenerateReqInput:
        def __init__(self, **fields: Any) -> None:
            self.__dict__.update(fields)

    GenerateReqInput.__module__, GenerateReqInput.__qualname__ = name, "GenerateReqInput"
    vars(module)["GenerateReqInput"] = GenerateReqInput
    for parent in ("sglang", "sglang.srt", "sglang.srt.managers"):
        monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    monkeypatch.setitem(sys.modules, name, module)
    return GenerateReqInput


def _dump(requests: Any, protocol: int = 4) -> bytes:
    return pickle.dumps({"server_args": None, "requests": requests}, protocol)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("packed", PACKED)
def test_a_dump_gives_its_requests_without_their_classes(
    rows: Read, sglang: type, protocol: int, packed: str
) -> None:
    first = sglang(rid="a", text="x é", input_ids=(1, 300, 70_000, 2**33), sampling_params={"n": 1})
    second = sglang(rid="b", text=None, input_ids=[0, -1], stream=True)
    out = {"text": "y", "meta_info": {"e2e_latency": 0.25, "id": "a"}}
    content = _dump([(first, out, 1.5, 2.5), (second, {}, 3.5, None)], protocol)
    one = {"rid": "a", "text": "x é", "input_ids": (1, 300, 70_000, 2**33)}
    two = {"rid": "b", "text": None, "input_ids": [0, -1], "stream": True}
    assert rows(PACKED[packed](content), f"d.pkl{packed}") == [
        (1, {"obj": {**one, "sampling_params": {"n": 1}}, "out": out, "created": 1.5,
             "finished": 2.5}),
        (2, {"obj": two, "out": {}, "created": 3.5, "finished": None}),
    ]  # fmt: skip


def test_a_dump_larger_than_what_is_looked_at_first_is_read_whole(rows: Read) -> None:
    requests = [({"rid": str(n), "ids": list(range(n))}, {}, float(n), 0.0) for n in range(500)]
    found = rows(_dump(requests), "d.pkl")
    assert [row["obj"]["ids"] for _, row in found] == [list(range(n)) for n in range(500)]


def test_what_both_picklers_write_is_read_alike(rows: Read) -> None:
    said = [({"a": [1.5, True, None, b"x" * 300, "y" * 300, {1, 2}, -(2**70)]}, {}, 1, 2)] * 2
    expected = [(n, dict(zip(("obj", "out", "created", "finished"), said[0], strict=True)))
                for n in (1, 2)]  # fmt: skip
    written = io.BytesIO()
    pickle._Pickler(written, 4).dump({"requests": said})  # type: ignore[attr-defined]
    assert rows(written.getvalue(), "d.pkl") == expected
    assert rows(_dump(said), "d.pkl") == expected
    assert rows(pickletools.optimize(_dump(said)), "d.pkl") == expected


def test_a_status_of_http_is_its_number(rows: Read) -> None:
    from http import HTTPStatus  # noqa: PLC0415 - its pickle names it

    found = rows(_dump([({}, {"status_code": HTTPStatus.BAD_REQUEST}, 1.0, 2.0)]), "d.pkl")
    assert found[0][1]["out"] == {"status_code": 400}


def test_a_request_of_another_form_is_a_bad_row(rows: Read) -> None:
    found = rows(_dump(["text", (1, 2), None, ({}, {}, 1.0, 2.0)]), "d.pkl")
    reason = "it isn't obj, out, created and finished"
    good = {"obj": {}, "out": {}, "created": 1.0, "finished": 2.0}
    assert found == [(1, reason), (2, reason), (3, reason), (4, good)]


class _Calls:
    """Pickles as a call."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("function", [eval, exec, getattr, __import__, open, print, bytearray])
def test_a_pickle_that_wants_something_called_is_refused(
    rows: Read, function: Callable[..., Any], protocol: int
) -> None:
    with pytest.raises(
        LogError, match=r"not an SGLang dump: it wants '(__builtin__|builtins|io)\."
    ):
        rows(_dump([_Calls(function, "1")], protocol), "d.pkl")


@pytest.mark.parametrize("protocol", [2, 4])
def test_nothing_that_a_pickle_names_is_called(rows: Read, tmp_path: Path, protocol: int) -> None:
    made = tmp_path / "made"
    content = pickle.dumps({"requests": [_Calls(os.mkdir, str(made))]}, protocol)
    with pytest.raises(LogError, match=rf"it wants '{os.name}\.mkdir'"):
        rows(content, "d.pkl")
    assert not made.exists()
    pickle.loads(content)  # noqa: S301 - our own
    assert made.exists()  # so it would have been


def test_a_shell_command_in_a_dump_is_refused(rows: Read) -> None:
    with pytest.raises(LogError, match=rf"it wants '{os.name}\.system'"):
        rows(_dump([(_Calls(os.system, "true"), {}, 1.0, 2.0)]), "d.pkl")


@pytest.mark.parametrize(
    "value", [np.arange(3), np.float64(1.0), datetime(2026, 3, 1, tzinfo=UTC), Path("x")]
)
def test_a_pickle_of_other_classes_is_refused(rows: Read, value: Any) -> None:
    with pytest.raises(LogError, match="which data has no need of"):
        rows(_dump([({"v": value}, {}, 1.0, 2.0)]), "d.pkl")


def test_modules_whose_names_only_begin_alike_are_refused(rows: Read) -> None:
    with pytest.raises(LogError, match="it wants"):
        rows(b"\x80\x02csglang_evil\nX\n)\x81.", "d.pkl")


def test_a_name_that_a_pickle_wants_can_not_write_to_the_terminal(rows: Read) -> None:
    with pytest.raises(LogError) as error:
        rows(b"\x80\x02c\x1b[2Jevil\xc3\xa9\nX\n.", "d.pkl")
    assert str(error.value).isascii()
    assert str(error.value).isprintable()


def test_what_a_pickle_sets_on_a_class_stays_in_it(rows: Read, sglang: type) -> None:
    named = b"csglang.a\nB\n"
    state = b"}X\x08\x00\x00\x00__init__" + named + b"s"
    with pytest.raises(LogError, match="breaks off or is damaged"):
        rows(b"\x80\x02" + named + b"N" + state + b"\x86b.", "d.pkl")
    found = rows(_dump([(sglang(rid="a"), {}, 1.0, 2.0)]), "d.pkl")
    assert found[0][1]["obj"] == {"rid": "a"}


@pytest.mark.parametrize(
    "said",
    [
        None, 1, "text", [], [({}, {}, 1.0, 2.0)], {}, {"requests": None}, {"requests": "abcd"},
        {"requests": {"a": 1}}, {"request": []},
    ],
)  # fmt: skip
def test_a_pickle_of_anything_else_is_no_dump(rows: Read, said: Any) -> None:
    with pytest.raises(LogError, match="not an SGLang dump: it has no requests"):
        rows(pickle.dumps(said, 4), "d.pkl")


def test_a_dump_that_is_cut_off_anywhere_is_refused(rows: Read, sglang: type) -> None:
    content = _dump([(sglang(rid="a", input_ids=(1, 300, 70_000)), {"t": 1.5}, 1.0, 2.0)])
    for kept in range(2, len(content)):
        with pytest.raises(LogError, match="not an SGLang dump"):
            rows(content[:kept], "d.pkl")


def test_a_dump_that_something_follows_is_refused(rows: Read) -> None:
    with pytest.raises(LogError, match="something follows it"):
        rows(_dump([]) * 2, "d.pkl")


def test_damaged_dumps_raise_nothing_but_a_verdict(sglang: type) -> None:
    content = _dump([(sglang(rid="a", input_ids=(1, 300)), {"t": [1.5, {"x": b"y"}]}, 1.0, 2.0)])
    choose = random.Random(0)  # noqa: S311 - always the same
    read = 0
    for _ in range(2000):
        damaged = bytearray(content)
        for _ in range(1 + choose.randrange(3)):
            damaged[choose.randrange(2, len(damaged))] = choose.randrange(256)
        with suppress(BadPickle):
            read_pickle(bytes(damaged))
            read += 1
    assert 0 < read < 2000


def _laughs(depth: int, opened: bytes, closed: bytes) -> bytes:
    """Return a pickle of lists that hold the one before ten times, the requests at last."""
    first = b"\x80\x04" + opened + b"K\x01" + closed + b"\x94"
    levels = [opened + b"h%c" % n * 10 + closed + b"\x94" for n in range(depth)]
    return first + b"0".join(levels)


def _requests(content: bytes) -> bytes:
    """Return a pickle whose requests are a list with what another leaves on the stack."""
    return b"\x80\x04}\x8c\x08requests](" + content.removeprefix(b"\x80\x04") + b"es."


@pytest.mark.parametrize(
    "content",
    [
        _requests(_laughs(12, b"](", b"e")),
        _requests(_laughs(12, b"(", b"t")),
        _requests(_laughs(200, b"](", b"e")),
        _requests(b"X\x00\x00\x10\x00" + b"x" * (1 << 20) + b"\x94](" + b"h\x00" * 10_000 + b"e"),
        _requests(b"]\x94h\x00a"),
        _requests(b"]\x94(h\x00h\x00h\x00e"),
        _requests(b"}\x94\x8c\x01ah\x00s"),
    ],
)  # fmt: skip
def test_a_pickle_that_holds_itself_or_one_thing_many_times_is_refused(
    rows: Read, content: bytes
) -> None:
    begin = time.monotonic()
    with pytest.raises(LogError, match=r"it holds (itself|the same many times)"):
        rows(content, "d.pkl")
    assert time.monotonic() - begin < 5


def test_many_requests_may_share_a_prompt(rows: Read) -> None:
    prompt = list(range(1000))
    shared = [({"rid": str(n), "input_ids": prompt}, {}, 1.0, 2.0) for n in range(64)]
    assert len(rows(_dump(shared), "d.pkl")) == 64


def test_a_key_that_would_take_for_ever_to_hash_is_refused(rows: Read) -> None:
    content = _laughs(40, b"(", b"t")
    for put in (content + b"0}h\x28K\x01s.", content + b"0\x8f(h\x28\x90."):
        with pytest.raises(LogError, match="neither text nor numbers"):
            rows(put, "d.pkl")


def test_a_large_memo_number_takes_no_memory(rows: Read) -> None:
    for put in (b"Nr\xff\xff\xff\x7f.", b"Nq\x05.", b"Nj\xff\xff\xff\x7f.", b"Nh\x05."):
        with pytest.raises(LogError, match="breaks off or is damaged"):
            rows(b"\x80\x02" + put, "d.pkl")


@pytest.mark.parametrize(
    "code",
    [b"\x8d" + b"\xff" * 8, b"\x8e" + b"\xff" * 8, b"X\xff\xff\xff\xff", b"B\xff\xff\xff\x7f"],
)  # fmt: skip
def test_a_length_beyond_the_end_takes_no_memory(rows: Read, code: bytes) -> None:
    with pytest.raises(LogError, match="breaks off or is damaged"):
        rows(b"\x80\x04" + code + b"x.", "d.pkl")


def test_a_pickle_of_too_many_parts_is_refused(rows: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "_MOST_PARTS", 1000)
    assert len(rows(_dump([[]] * 500), "d.pkl")) == 500
    with pytest.raises(LogError, match="more than 1000 texts, lists and objects"):
        rows(b"\x80\x04" + b"]" * 2000 + b".", "d.pkl")
    attributes = b"}(" + b"".join(b"\x8c\x02%02dN" % n for n in range(50)) + b"u\x94"
    made = b"csglang.a\nB\n)\x81h\x00b"
    with pytest.raises(LogError, match="more than 1000 texts, lists and objects"):
        rows(b"\x80\x04" + attributes + made * 100 + b".", "d.pkl")


def test_a_pickle_that_is_too_large_is_refused(rows: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_LARGEST_PICKLE", 1 << 20)
    with pytest.raises(LogError, match="a pickle of more than 1 MB"):
        rows(gzip.compress(_dump([({"t": "x" * (2 << 20)}, {}, 1.0, 2.0)])), "d.pkl.gz")


@pytest.mark.parametrize(
    "code", [b"P0\n", b"Q", b"\x82\x01", b"i", b"o", b"\x96", b"\x97", b"I1\n"]
)
def test_opcodes_that_data_does_not_need_are_refused(rows: Read, code: bytes) -> None:
    with pytest.raises(LogError, match="it holds more than data"):
        rows(b"\x80\x04N" + code + b".", "d.pkl")
