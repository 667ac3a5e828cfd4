"""AIPerf inputs: inputs.json with the payloads of sessions, and sessions of user turns.

A session of turns holds what the user says alone: the answers in between come from the engine
under test, so that the prompts of later turns are here without them.
"""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import EMPTY, carried_of, numbered, prompts_of
from pipeline.logs.fields import count_or_none, mapping, moment, number_or_none, text_or_none
from pipeline.logs.records import BadLine, Chat, LogFamily, LogRecord, Skip
from pipeline.logs.turns import LONGEST, NO_TURNS


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    sessions, turns = line.get("data"), line.get("turns")
    if isinstance(sessions, list) and sessions and isinstance(sessions[0], dict):
        return isinstance(sessions[0].get("payloads"), list)
    if isinstance(turns, list) and turns and isinstance(turns[0], dict):
        return not {"text", "texts"}.isdisjoint(turns[0])
    return False


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip | BadLine]:
    if "turns" in line:
        return _user_turns(line)
    return _sessions(line["data"])


def _sessions(sessions: list[Any]) -> Iterator[LogRecord | Skip | BadLine]:
    for session in sessions:
        payloads = mapping(session).get("payloads")
        if not isinstance(payloads, list) or not payloads:
            yield Skip(NO_TURNS)
            continue
        name = text_or_none(session.get("session_id"))
        for number, payload in enumerate(payloads):
            try:
                yield from _payload(payload, number, name)
            except BadLine as reason:
                yield reason


def _payload(payload: Any, number: int, session: str | None) -> Iterator[LogRecord]:
    if not isinstance(payload, dict):
        raise BadLine("a payload is not an object")
    prompts = prompts_of(payload)
    name = None if session is None else f"{session}-{number}"
    for at, prompt in enumerate(prompts):
        yield LogRecord(
            prompt,
            request_id=numbered(name, at, len(prompts)),
            carried=carried_of(payload) | {"session_id": session},
        )


def _user_turns(line: dict[str, Any]) -> Iterator[LogRecord | Skip | BadLine]:
    session = text_or_none(line.get("session_id"))
    carried = carried_of(line) | {"session_id": session}
    if len(line["turns"]) > LONGEST:
        raise BadLine(f"more than {LONGEST} messages in a conversation")
    messages: list[dict[str, Any]] = []
    time: float | str | None = None
    for number, turn in enumerate(map(mapping, line["turns"])):
        text = _text(turn)
        time = _time(turn, time)
        if not text:
            yield BadLine(EMPTY)
            continue
        messages = [*messages, {"role": text_or_none(turn.get("role")) or "user", "content": text}]
        yield LogRecord(
            prompt=Chat(messages),
            time=time,
            request_id=None if session is None else f"{session}-{number}",
            carried=carried,
            output_tokens=count_or_none(turn.get("output_length")),
        )


def _text(turn: dict[str, Any]) -> str:
    """Return the text of a turn, which may be written as several."""
    text, texts = turn.get("text"), turn.get("texts")
    if isinstance(text, str):
        return text
    parts = texts if isinstance(texts, list) else []
    return "\n".join(part for part in parts if isinstance(part, str))


def _time(turn: dict[str, Any], before: float | str | None) -> float | str | None:
    """Return when a turn comes: its timestamp, else its delay after the turn before."""
    time, delay = moment(turn.get("timestamp")), number_or_none(turn.get("delay"))
    if time is not None or not isinstance(before, int | float):
        return time
    return before + (delay or 0)


FAMILY = LogFamily(
    name="aiperf",
    written_by="AIPerf: inputs.json, and sessions of user turns",
    mark="data with payloads, or turns with text",
    recognises=_recognises,
    fields=("data", "turns"),
    reader=lambda: _read,
    relative_unit="ms",
)
