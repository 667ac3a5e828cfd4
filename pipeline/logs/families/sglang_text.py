"""SGLang's text log: a Receive line and a Finish line for each request, as Python reprs."""

import re
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip
from pipeline.logs.reprs import fields, value, value_or_none
from pipeline.logs.sglang import (
    OTHER_ENDPOINT,
    SERVER_LINE,
    Told,
    requests_of,
    started,
    tenant_of,
)

_LINE = re.compile(r"([^'\"]{0,300}?)\b(Receive|Finish|Receive OpenAI): obj=")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")
_PROMPT = ("input_ids", "text")
_REST = ("rid", "lora_path", "extra_key", "routing_key", "session_id", "received_time")
_COUNTS = ("prompt_tokens", "completion_tokens", "cached_tokens", "e2e_latency")

_Found = LogRecord | Skip | BadLine


def _recognises(line: Any) -> bool:
    return isinstance(line, str) and _LINE.match(line) is not None


def _reader() -> Callable[[str], Iterator[_Found]]:
    told = Told()
    return lambda line: map(told.once, _read(line))


def _read(line: str) -> Iterator[_Found]:
    start = _LINE.match(line)
    assert start is not None
    if start[2] == "Receive OpenAI":
        yield Skip("told again by its Receive line")
        return
    said = fields(line, start.end() - len("obj="))
    if not said["obj"].startswith("GenerateReqInput("):
        yield Skip(OTHER_ENDPOINT)
        return
    obj, out = _obj(said["obj"]), _out(said.get("out"))
    stamp = _TIME.search(start[1])
    ended = start[2] == "Finish"
    logged = stamp[0].replace(",", ".") if stamp else None
    yield from requests_of(
        obj,
        out,
        time=(started(logged, out) if ended else logged) or obj.get("received_time"),
        tenant=tenant_of(_inner(said.get("headers"))),
        again=ended,
    )


def _obj(said: str) -> dict[str, Any]:
    """Return the fields of a request that count; only what the prompt is has to be readable."""
    found = fields(said, said.index("(") + 1)
    obj = {name: value_or_none(found[name]) for name in _REST if name in found}
    for name in _PROMPT:
        if name in found and not obj.get("input_ids"):
            obj[name] = value(found[name])
    if found.get("input_embeds", "None") != "None":
        obj["input_embeds"] = True
    return obj | {"session_params": _inner(found.get("session_params"))}


def _out(said: str | None) -> dict[str, Any]:
    """Return what a response says of its length and times."""
    if said is None or not said.startswith("{"):
        return {}
    found = fields(said, 1)
    out = {name: value_or_none(found.get(name)) for name in ("text", "output_ids")}
    meta = fields(found["meta_info"], 1) if "meta_info" in found else {}
    counts: dict[str, Any] = {name: value_or_none(meta.get(name)) for name in _COUNTS}
    return out | {"meta_info": counts | {"finish_reason": _inner(meta.get("finish_reason"))}}


def _inner(said: str | None) -> dict[str, Any]:
    """Return the plain values of a dict."""
    if said is None or not said.startswith("{"):
        return {}
    return {name: value_or_none(text) for name, text in fields(said, 1).items()}


FAMILY = LogFamily(
    name="sglang-text",
    written_by="SGLang: --log-requests",
    mark="Receive: obj=GenerateReqInput(…) or Finish: obj=…",
    recognises=_recognises,
    reader=_reader,
    other_lines=SERVER_LINE,
)
