"""AIBrix workloads: the prompts that come at one moment, with their lengths."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import EMPTY, carried_of, prompts_of
from pipeline.logs.fields import count_or_none, moment, text_or_none
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Prompt

_LENGTHS = ("Prompt Length", "Output Length", "prompt_length", "output_length")


def _recognises(line: Any) -> bool:
    requests = line.get("requests") if isinstance(line, dict) else None
    return (
        isinstance(requests, list)
        and "block_size" not in line
        and bool(requests)
        and isinstance(requests[0], dict)
        and "prompt" in requests[0]
        and any(name in requests[0] for name in _LENGTHS)
    )


def _read(line: dict[str, Any]) -> Iterator[LogRecord | BadLine]:
    return (_request(request, line) for request in line["requests"])


def _request(request: Any, line: dict[str, Any]) -> LogRecord | BadLine:
    """Return a request, or why there is none: the others of its row are still good."""
    if not isinstance(request, dict):
        return BadLine("a request is not an object")
    try:
        prompt = _prompt(request.get("prompt"))
    except BadLine as reason:
        return reason
    output = request.get("Output Length", request.get("output_length"))
    session = text_or_none(request.get("session_id"))
    return LogRecord(
        prompt=prompt,
        time=moment(line.get("timestamp")),
        request_id=text_or_none(request.get("request_id")),
        carried=carried_of(request, {"model": request.get("model")}) | {"session_id": session},
        output_tokens=count_or_none(output),
    )


def _prompt(prompt: Any) -> Prompt:
    """Return the prompt of a request, which is text, or messages."""
    if not prompt:
        raise BadLine(EMPTY)
    is_chat = isinstance(prompt, list) and isinstance(prompt[0], dict)
    [read, *others] = prompts_of({"messages" if is_chat else "prompt": prompt})
    if others:
        raise BadLine("a prompt is neither text nor token ids")
    return read


FAMILY = LogFamily(
    name="aibrix",
    written_by="AIBrix: workload files",
    mark="requests, each prompt and Output Length",
    recognises=_recognises,
    fields=("requests",),
    reader=lambda: _read,
    relative_unit="ms",
)
