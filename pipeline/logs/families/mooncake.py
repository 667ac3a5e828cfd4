"""Mooncake block traces and their extensions: sessions with delays, prompts as text.

A later turn of a session may have a delay (ms after the turn before it) in place of a timestamp.
Every turn is taken for a whole prompt. Dynamo's mooncake-delta, whose later turns count and hash
only what they add, looks the same line by line and can't be told apart; lines that say of
themselves that they only add (AIPerf's message_mode, context_mode) are refused after the first,
because the answers in between aren't in the trace.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.logs.bodies import carried_of, filled, numbered, prompts_of
from pipeline.logs.fields import (
    block_record,
    count_or_none,
    first_of,
    moment,
    number_or_none,
    remember,
    text_or_none,
)
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Prompt

_BLOCK_TOKENS = 512
_SESSIONS = 100_000
_DELAYS = ("delay", "delay_ms")
_TEXTS = ("text_input", "payload", "messages")
_PROMPTS = frozenset({"messages", "prompt", "prompt_token_ids"})
_EXTENSIONS = frozenset(
    {
        *_DELAYS,
        "context_mode",
        "extra",
        "message_mode",
        "policy_class",
        "priority",
        "session_id",
        "strict_priority",
        "tool_wait_ms",
        "wait_for",
    }
)
_CHAT_MARKS = (_EXTENSIONS - {"extra", "priority", "session_id"}) | {"output_length"}


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict) or "chat_id" in line:
        return False
    if isinstance(line.get("text_input"), str) or {"input_length", "hash_ids"} <= line.keys():
        return True
    payload = line.get("payload")
    if isinstance(payload, dict):
        return "messages" in payload or "prompt" in payload
    if isinstance(line.get("messages"), list):
        return not _CHAT_MARKS.isdisjoint(line)
    is_length = "input_length" in line and _PROMPTS.isdisjoint(line)
    return is_length and not _EXTENSIONS.isdisjoint(line)


class _Reader:
    """Reads lines, and keeps when the last turn of each session came."""

    def __init__(self) -> None:
        self._last: dict[str, float | None] = {}

    def __call__(self, line: dict[str, Any]) -> Iterator[LogRecord]:
        session = text_or_none(line.get("session_id"))
        follows = session in self._last
        time = self._time(line, session)
        if session is not None:
            remember(self._last, session, _number(time), at_most=_SESSIONS)
        if follows and _only_adds(line):
            raise BadLine("a turn without the turns before it, whose answers are not logged")
        for record in _prompts(line):
            yield replace(record, time=time, output_tokens=count_or_none(line.get("output_length")))

    def _time(self, line: dict[str, Any], session: str | None) -> float | str | None:
        time = moment(line.get("timestamp"))
        if time is not None:
            return time
        delay = first_of(line, *_DELAYS)
        wait = number_or_none(delay)
        if delay is not None and (wait is None or wait < 0):
            raise BadLine("a delay is not a number from 0")
        if session is None or session not in self._last:
            if delay is None:
                return None
            raise BadLine("a delay without an earlier turn of its session")
        before = self._last[session]
        return None if before is None else before + (wait or 0)


def _only_adds(line: dict[str, Any]) -> bool:
    return line.get("message_mode") == "delta" or str(line.get("context_mode")).startswith("deltas")


def _number(time: float | str | None) -> float | None:
    """Return a time that a delay can be added to."""
    if isinstance(time, str):
        try:
            time = float(time)
        except ValueError:
            return None
    return number_or_none(time)


def _prompts(line: dict[str, Any]) -> Iterator[LogRecord]:
    request_id = text_or_none(line.get("request_id"))
    blocks, tokens = line.get("hash_ids"), line.get("input_length")
    if blocks is not None or (tokens is not None and first_of(line, *_TEXTS) is None):
        record = block_record(blocks, tokens, _BLOCK_TOKENS)
        yield replace(record, request_id=request_id, carried=carried_of(line, line))
        return
    payload = line.get("payload")
    body = payload if isinstance(payload, dict) else line
    text = line.get("text_input")
    prompts: list[Prompt] = prompts_of(body) if text is None else [filled(text)]
    for number, prompt in enumerate(prompts):
        yield LogRecord(
            prompt,
            request_id=numbered(request_id, number, len(prompts)),
            carried=carried_of(body, line),
        )


FAMILY = LogFamily(
    name="mooncake",
    written_by="Mooncake, AIPerf, Dynamo: block traces, with sessions or texts",
    mark="input_length and hash_ids; or text_input, payload, or messages and output_length",
    recognises=_recognises,
    fields=("input_length", "hash_ids", "text_input", "payload", "messages"),
    reader=_Reader,
    relative_unit="ms",
    own_blocks=True,
)
