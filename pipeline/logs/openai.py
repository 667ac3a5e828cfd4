"""OpenAI requests as JSON lines: the body bare, or in an envelope with time, ids and response."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.records import (
    BadLine,
    Chat,
    LogFamily,
    LogRecord,
    Prompt,
    text_or_none,
    whole_number,
)

_TOKEN_MAX = 2**32 - 1


def _recognises(line: dict[str, Any]) -> bool:
    body = line.get("body", line)
    return isinstance(body, dict) and ("messages" in body or "prompt" in body)


def _read(line: dict[str, Any]) -> Iterator[LogRecord]:
    body, response = line.get("body", line), line.get("response")
    usage = response.get("usage") if isinstance(response, dict) else None
    usage = usage if isinstance(usage, dict) else {}
    details = usage.get("prompt_tokens_details")
    prompts = [_chat(body)] if "messages" in body else _completions(body["prompt"])
    request_id = text_or_none(line.get("request_id"))
    for number, prompt in enumerate(prompts):
        several = len(prompts) > 1 and request_id is not None
        yield LogRecord(
            prompt=prompt,
            time=line.get("timestamp"),
            request_id=f"{request_id}-{number}" if several else request_id,
            carried={
                "namespace": _namespace(line, body),
                "model": _model(line, body),
                "tenant": text_or_none(line.get("tenant") or body.get("user")),
                "session_id": text_or_none(line.get("session_id")),
            },
            output_tokens=whole_number(usage.get("completion_tokens"), "completion_tokens"),
            observed_cached_tokens=whole_number(
                details.get("cached_tokens") if isinstance(details, dict) else None,
                "cached_tokens",
            ),
        )


def _model(line: dict[str, Any], body: dict[str, Any]) -> str | None:
    return text_or_none(line.get("model") or body.get("model"))


def _namespace(line: dict[str, Any], body: dict[str, Any]) -> str | None:
    """Return the namespace that is named, else model and cache salt: neither shares KV."""
    named = text_or_none(line.get("namespace"))
    parts = (_model(line, body), text_or_none(body.get("cache_salt")))
    return named or "/".join(part for part in parts if part) or None


def _chat(body: dict[str, Any]) -> Chat:
    messages, tools = body["messages"], body.get("tools")
    if not isinstance(messages, list) or not messages:
        raise BadLine("messages is empty")
    if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        raise BadLine("a message has no role")
    if tools is not None and not isinstance(tools, list):
        raise BadLine("tools is not a list")
    return Chat(messages, tools or None)


def _completions(prompt: object) -> list[Prompt]:
    """Return the prompts of a completions request: one text or list of ids, or several."""
    if isinstance(prompt, str):
        return [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise BadLine("prompt is empty")
    if all(isinstance(p, int) for p in prompt):
        return [_token_ids(prompt)]
    return [p if isinstance(p, str) else _token_ids(p) for p in prompt]


def _token_ids(prompt: object) -> list[int]:
    if not isinstance(prompt, list):
        raise BadLine("a prompt is neither text nor token ids")
    for token in prompt:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= _TOKEN_MAX:
            raise BadLine("a token id is not a whole number below 2**32")
    return prompt


FAMILY = LogFamily(name="openai", recognises=_recognises, read=_read)
