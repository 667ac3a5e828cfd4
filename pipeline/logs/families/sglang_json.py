"""SGLang with --log-requests-format json: an object for each request that came or ended."""

from collections.abc import Callable, Iterator
from typing import Any

from pipeline.logs.bodies import carried_of, numbered, prompts_of
from pipeline.logs.fields import mapping, moment, text_or_none
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip
from pipeline.logs.reprs import Cut
from pipeline.logs.sglang import (
    OTHER_ENDPOINT,
    SERVER_LINE,
    Told,
    requests_of,
    started,
    tenant_of,
)

_MARK = "..."
_HALF = 1024
"""Characters or ids that level 2 keeps on each side of a cut."""

_Found = LogRecord | Skip | BadLine


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict) or "obj" not in line:
        return False
    event = line.get("event")
    return isinstance(event, str) and event.startswith("request.")


def _reader() -> Callable[[dict[str, Any]], Iterator[_Found]]:
    told = Told()

    def read(line: dict[str, Any]) -> Iterator[_Found]:
        found = _openai(line) if line["event"] == "request.received.openai" else _engine(line)
        return map(told.once, found)

    return read


def _engine(line: dict[str, Any]) -> Iterator[_Found]:
    """Yield what the engine logged of a request, in the form that it computes."""
    ended = line["event"] == "request.finished"
    if not ended and line["event"] != "request.received":
        yield Skip("an event of another kind")
        return
    obj, out, time = line["obj"], mapping(line.get("out")), moment(line.get("timestamp"))
    if not isinstance(obj, dict):
        raise BadLine("obj is not an object")
    whole = {name: _seen_cut(obj[name]) for name in ("text", "input_ids") if name in obj}
    yield from requests_of(
        {"rid": line.get("rid"), **obj, **whole},
        out | {"text": _seen_cut(out.get("text"))},
        time=started(time, out) if ended and isinstance(time, str) else time,
        tenant=tenant_of(line.get("headers")),
        again=ended,
    )


def _openai(line: dict[str, Any]) -> Iterator[_Found]:
    """Yield a request as it came, before the engine gave it an id."""
    body = mapping(line["obj"])
    if "messages" not in body and "prompt" not in body:
        yield Skip(OTHER_ENDPOINT)
        return
    if _holds_cut(body):
        yield Skip("cut by the logger, but told again by request.received")
        return
    prompts, rid = prompts_of(body), text_or_none(line.get("rid"))
    for number, prompt in enumerate(prompts):
        yield LogRecord(
            prompt,
            time=moment(line.get("timestamp")),
            request_id=numbered(rid, number, len(prompts)),
            carried=carried_of(body, {"tenant": tenant_of(line.get("headers"))}),
            fallback=True,
        )


def _seen_cut(value: Any) -> Any:
    """Return a prompt, or each of several, as Cut where the logger cut it."""
    if isinstance(value, str):
        return Cut(value[:_HALF]) if _is_cut(value) else value
    if not isinstance(value, list):
        return value
    if not value or not isinstance(value[0], str | list) or value[0] == _MARK:
        return Cut(value[: value.index(_MARK)]) if _MARK in value else value
    parts = [_seen_cut(part) for part in value]
    return Cut(parts[:_HALF]) if _is_cut(value) else parts


def _is_cut(value: str | list[Any]) -> bool:
    """Tell whether a text or list has a mark right in its middle, and is as long as a cut one."""
    if isinstance(value, str):
        return len(value) == 2 * _HALF + len(_MARK) and value.startswith(_MARK, _HALF)
    return len(value) == 2 * _HALF + 1 and value[_HALF] == _MARK


def _holds_cut(body: dict[str, Any]) -> bool:
    waiting: list[Any] = [body]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, str | list) and _is_cut(value):
            return True
        elif isinstance(value, list):
            waiting += value
    return False


FAMILY = LogFamily(
    name="sglang-json",
    written_by="SGLang: --log-requests --log-requests-format json",
    mark="event request.received or request.finished, and obj",
    recognises=_recognises,
    fields=("obj",),
    reader=_reader,
    other_lines=SERVER_LINE,
)
