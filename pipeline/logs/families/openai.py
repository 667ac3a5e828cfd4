"""OpenAI requests as JSON lines: the body bare, or in an envelope with time, ids and response."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import other_path, prompts_of
from pipeline.logs.envelopes import body_of, has_envelope, opened, path_of, records_of
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    body = body_of(line)
    if "messages" in body or "prompt" in body:
        return True
    return has_envelope(line) and isinstance(path_of(line), str)


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    """Yield a line's requests; a completion's suffix is no part of its prompt, as in SGLang."""
    if reason := other_path(path_of(line)):
        yield Skip(reason)
        return
    envelope = opened(line)
    if envelope.body is line and has_envelope(line) and not {"messages", "prompt"} & line.keys():
        raise BadLine("the request body is not in the log")
    yield from records_of(envelope, prompts_of(envelope.body))


FAMILY = LogFamily(
    name="openai",
    written_by="gateways: OpenAI chat and completions requests, bare or with time and response",
    mark="messages or prompt, at the top or in body, request or request_body",
    recognises=_recognises,
    reader=lambda: _read,
    generic=True,
)
