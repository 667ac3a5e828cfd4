"""Mooncake block traces: timestamp, input_length, output_length, hash_ids of 512-token blocks."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.records import BadLine, Blocks, LogFamily, LogRecord, text_or_none, whole_number

_BLOCK_TOKENS = 512


def _recognises(line: dict[str, Any]) -> bool:
    return "hash_ids" in line and "input_length" in line


def _read(line: dict[str, Any]) -> Iterator[LogRecord]:
    ids, length = line["hash_ids"], whole_number(line["input_length"], "input_length")
    if length is None or not isinstance(ids, list):
        raise BadLine("input_length or hash_ids is missing")
    for block in ids:
        if whole_number(block, "a hash id", at_most=2**64 - 1) is None:
            raise BadLine("a hash id is null")
    blocks = -(-length // _BLOCK_TOKENS)
    if len(ids) != blocks:
        raise BadLine(f"{length} tokens are {blocks} blocks of 512, but there are {len(ids)} ids")
    yield LogRecord(
        prompt=Blocks(ids, length),
        time=line.get("timestamp"),
        carried={"session_id": text_or_none(line.get("session_id"))},
        output_tokens=whole_number(line.get("output_length"), "output_length"),
    )


FAMILY = LogFamily(
    name="mooncake",
    recognises=_recognises,
    read=_read,
    time_unit="ms",
    block_tokens=_BLOCK_TOKENS,
    partial_block="ceil",
)
