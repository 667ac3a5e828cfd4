"""Request and response bodies of the OpenAI-compatible API, which many kinds of log hold."""

from typing import Any, NamedTuple

from pipeline.logs.fields import count_or_none, mapping, text_or_none, token_ids
from pipeline.logs.records import BadLine, Chat, Prompt

EMPTY = "the prompt is empty"
_OTHER_PATHS = (
    "embeddings", "rerank", "score", "moderations", "images", "audio", "tokenize", "detokenize",
    "count_tokens", "input_tokens", "batches",
)  # fmt: skip
_SESSIONS = ("session_id", "conversation_id", "thread_id")
_REQUEST_PATHS = ("completions", "responses", "messages", "generate")


class Usage(NamedTuple):
    """What a response reports."""

    output_tokens: int | None
    cached_tokens: int | None
    prompt_tokens: int | None


def prompts_of(body: dict[str, Any]) -> list[Prompt]:
    """Return the prompts of a chat or completions body; an engine takes several as requests."""
    if body.get("messages") is not None or ("messages" in body and body.get("prompt") is None):
        return [chat_of(body)]
    if "prompt" in body:
        return _completions(body["prompt"])
    raise BadLine("no prompt in a known form")


def chat_of(body: dict[str, Any]) -> Chat:
    """Return the chat of a chat completions body."""
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        raise BadLine(EMPTY)
    if not all(isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages):
        raise BadLine("a message has no role")
    if not any(m.get("content") or m.get("tool_calls") or m.get("function_call") for m in messages):
        raise BadLine(EMPTY)
    tools = body.get("tools")
    if tools is None and body.get("functions") is not None:
        tools = [{"type": "function", "function": f} for f in body["functions"]]
    if tools is not None and not isinstance(tools, list):
        raise BadLine("tools is not a list")
    settings = dict(mapping(body.get("chat_template_kwargs")))
    if isinstance(body.get("reasoning_effort"), str):
        settings.setdefault("reasoning_effort", body["reasoning_effort"])
    return Chat(messages, tools or None, settings)


def _completions(prompt: object) -> list[Prompt]:
    """Return the prompts of a completions body: one text or list of ids, or several."""
    if isinstance(prompt, str):
        return [filled(prompt)]
    if not isinstance(prompt, list):
        raise BadLine(EMPTY if prompt is None else "a prompt is neither text nor token ids")
    if all(isinstance(p, int) for p in prompt):
        return [filled(token_ids(prompt))]
    return [filled(p if isinstance(p, str) else token_ids(p)) for p in prompt]


def filled(prompt: Any) -> Any:
    """Return a prompt that isn't empty; BadLine for one that is: no engine takes it."""
    if not prompt:
        raise BadLine(EMPTY)
    return prompt


def usage_of(response: object) -> Usage:
    """Return what a response's usage says, in the words of any of the APIs."""
    usage = mapping(mapping(response).get("usage"))
    details = mapping(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    cached = details.get("cached_tokens", usage.get("cache_read_input_tokens"))
    return Usage(
        count_or_none(usage.get("completion_tokens", usage.get("output_tokens"))),
        count_or_none(cached),
        count_or_none(usage.get("prompt_tokens", usage.get("input_tokens"))),
    )


def carried_of(body: dict[str, Any], line: dict[str, Any] | None = None) -> dict[str, str | None]:
    """Return namespace, model, tenant and session of a request; `line` is what is around it.

    The namespace is the one that is named, else model, LoRA and cache salt: neither shares KV.
    """
    around, metadata = line or {}, mapping(body.get("metadata"))
    model = text_or_none(around.get("model")) or text_or_none(body.get("model"))
    parts = (model, text_or_none(body.get("lora_path")), text_or_none(body.get("cache_salt")))
    return {
        "namespace": text_or_none(around.get("namespace"))
        or "/".join(p for p in parts if p)
        or None,
        "model": model,
        "tenant": text_or_none(around.get("tenant"))
        or text_or_none(body.get("user"))
        or text_or_none(body.get("safety_identifier")),
        "session_id": _session(around)
        or text_or_none(body.get("prompt_cache_key"))
        or _session(body)
        or _session(metadata),
    }


def _session(fields: dict[str, Any]) -> str | None:
    for field in _SESSIONS:
        name = text_or_none(fields.get(field))
        if name:
            return name
    return None


def failed(status: object, usage: Usage) -> bool:
    """Tell whether a request came to nothing before any of its prompt was computed."""
    code = int(status) if isinstance(status, str) and status.isdecimal() else status
    refused = isinstance(code, int) and not isinstance(code, bool) and code >= 400
    return refused and not usage.prompt_tokens and not usage.output_tokens


def other_path(path: object) -> str | None:
    """Return why a request to this path has no prompt, None if it has one, or may have."""
    if not isinstance(path, str):
        return None
    words = path.split("?")[0].lower().strip("/").split("/")
    if any(word in _OTHER_PATHS for word in words):
        return "another endpoint than chat and completions"
    return None if any(word in _REQUEST_PATHS for word in words) else "health check or other path"


def numbered(request_id: str | None, number: int, of: int) -> str | None:
    """Return the id of one of several requests that came as one."""
    return f"{request_id}-{number}" if of > 1 and request_id is not None else request_id
