"""Sessions of coding agents (kv-cache-tester, Weka), one object each: requests in blocks.

A local block id counts in its session alone: it becomes a 64-bit mix of it with a blake2b of the
session's id, so that no two ids of a session meet, and those of two sessions only by chance.
"""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from pipeline.logs.bodies import carried_of
from pipeline.logs.fields import (
    block_record,
    count_or_none,
    number_or_none,
    text_or_none,
    whole_number,
)
from pipeline.logs.records import BadLine, Blocks, LogFamily, LogRecord, Skip

_LARGEST_BLOCK = 1 << 20
_MASK = 2**64 - 1


def _recognises(line: Any) -> bool:
    return (
        isinstance(line, dict) and "block_size" in line and isinstance(line.get("requests"), list)
    )


def _read(session: dict[str, Any]) -> Iterator[LogRecord | Skip | BadLine]:
    name = text_or_none(session.get("id"))
    block_tokens = whole_number(session["block_size"], "block_size", at_most=_LARGEST_BLOCK)
    if not block_tokens:
        raise BadLine("block_size is missing")
    if not session["requests"]:
        yield Skip("a session without requests")
    mixed = None if session.get("hash_id_scope") == "global" else _MixedIds(name)
    for number, (start, request) in enumerate(_requests(session["requests"], 0)):
        try:
            record = _request(request, start, block_tokens)
        except BadLine as reason:
            yield reason
            continue
        if mixed is not None and isinstance(record.prompt, Blocks):
            ids = [mixed[block] for block in record.prompt.ids]
            record = replace(record, prompt=replace(record.prompt, ids=ids))
        yield replace(
            record,
            request_id=None if name is None else f"{name}-{number}",
            carried=carried_of(request) | {"session_id": name},
        )


def _requests(entries: list[Any], start: float | None) -> Iterator[tuple[float | None, Any]]:
    """Yield requests and when the clock of theirs began: sub-agents have one of their own."""
    for entry in entries:
        inner = entry.get("requests") if isinstance(entry, dict) else None
        if not isinstance(inner, list):
            yield start, entry
            continue
        began = number_or_none(entry.get("t"))
        yield from _requests(inner, None if start is None or began is None else start + began)


def _request(request: Any, start: float | None, block_tokens: int) -> LogRecord:
    if not isinstance(request, dict):
        raise BadLine("a request is not an object")
    after, ttft = number_or_none(request.get("t")), number_or_none(request.get("ttft"))
    if after is None or start is None:
        raise BadLine("t is not a number")
    return replace(
        block_record(request.get("hash_ids"), request.get("in"), block_tokens),
        time=start + after,
        output_tokens=count_or_none(request.get("out")),
        observed_ttft_ms=None if ttft is None else ttft * 1000,
    )


class _MixedIds(dict[int, int]):
    """The local ids of a session as ids that no other session has, made as they are asked for."""

    def __init__(self, session: str | None) -> None:
        if session is None:
            raise BadLine("local block ids of a session without an id")
        digest = blake2b(session.encode("utf-8", "replace"), digest_size=8).digest()
        self._seed = int.from_bytes(digest, "little")

    def __missing__(self, block: int) -> int:
        """Mix as splitmix64 does, which gives different ids for different blocks."""
        bits = (self._seed + block * 0x9E3779B97F4A7C15) & _MASK
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & _MASK
        self[block] = mixed = bits ^ (bits >> 31)
        return mixed


FAMILY = LogFamily(
    name="coding-agent",
    written_by="kv-cache-tester, Weka: sessions of coding agents in blocks",
    mark="block_size and requests",
    recognises=_recognises,
    fields=("block_size",),
    reader=lambda: _read,
    own_clock=True,
)
