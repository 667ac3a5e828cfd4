"""Anthropic Messages requests, bare, in an envelope or in a batch, and a batch's results."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.logs.bodies import other_path, usage_of
from pipeline.logs.envelopes import (
    Envelope,
    answer_of,
    body_of,
    goes_to,
    opened,
    path_of,
    records_of,
)
from pipeline.logs.fields import mapping, text_or_none
from pipeline.logs.messages import anthropic_chat, is_anthropic
from pipeline.logs.records import LogFamily, LogRecord, Skip

_SESSION = "_session_"


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    if "custom_id" in line:
        params = line.get("params")
        return isinstance(line.get("result") if params is None else params, dict)
    body = body_of(line)
    return is_anthropic(body) or ("messages" in body and goes_to(path_of(line), "messages"))


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    if "custom_id" in line:
        yield from _of_batch(line)
    elif reason := other_path(path_of(line)):
        yield Skip(reason)
    else:
        yield from _requests(opened(line))


def _of_batch(line: dict[str, Any]) -> Iterator[LogRecord]:
    request_id = text_or_none(line["custom_id"])
    if isinstance(line.get("params"), dict):
        yield from _requests(Envelope(line, line["params"], {}, request_id=request_id))
        return
    result = mapping(line.get("result"))
    message = mapping(result.get("message"))
    usage = usage_of(message)
    yield LogRecord(
        prompt=None,
        request_id=request_id,
        output_tokens=usage.output_tokens,
        answer=answer_of(message) if usage.output_tokens is not None else None,
        observed_cached_tokens=usage.cached_tokens,
        again=True,
        failed=result.get("type") != "succeeded",
    )


def _requests(envelope: Envelope) -> Iterator[LogRecord]:
    tenant, session = _user(envelope.body)
    for record in records_of(envelope, [anthropic_chat(envelope.body)]):
        given = record.carried
        named = {
            "tenant": given["tenant"] or tenant,
            "session_id": given["session_id"] or session,
        }
        yield replace(record, carried=given | named)


def _user(body: dict[str, Any]) -> tuple[str | None, str | None]:
    """Return user and session of a request; coding agents write both into the user's id."""
    user = mapping(body.get("metadata")).get("user_id")
    parts = mapping(user)
    if "session_id" in parts:
        account = text_or_none(parts.get("account_uuid")) or text_or_none(parts.get("device_id"))
        return account, text_or_none(parts["session_id"])
    name = text_or_none(user)
    if name is None:
        return None, None
    tenant, found, session = name.partition(_SESSION)
    return tenant or None, session if found and session else None


FAMILY = LogFamily(
    name="anthropic",
    written_by="gateways and batches: Anthropic Messages requests, bare or with time and response",
    mark="messages and max_tokens with system, or parts or tools of Anthropic's form",
    recognises=_recognises,
    reader=lambda: _read,
)
