"""Items of OpenAI's Responses API to messages of a chat."""

from typing import Any

from pipeline.logs.bodies import EMPTY, chat_of
from pipeline.logs.fields import mapping
from pipeline.logs.messages import Turn, content_of, text_part, tool_call, tool_result, tools_of
from pipeline.logs.records import BadLine, Chat

NOT_IN_LOG = "its previous response is not in the log"
_MARKS = (
    "instructions",
    "max_output_tokens",
    "previous_response_id",
    "conversation",
    "truncation",
    "max_tool_calls",
    "store",
    "include",
)
_FOREIGN = ("messages", "type", "trace_id", "traceId", "output", "call_type")
_TEXTS = ("input_text", "output_text", "text", "summary_text", "reasoning_text", "refusal")
_CALLS = ("function_call", "custom_tool_call")
_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def is_responses(body: dict[str, Any]) -> bool:
    """Tell whether a body is one of the Responses API, and no embeddings request."""
    given = body.get("input")
    if not isinstance(given, str | list) or any(name in body for name in _FOREIGN):
        return False
    if any(body.get(name) is not None for name in _MARKS):
        return True
    if any(isinstance(body.get(name), dict) for name in ("reasoning", "text", "prompt")):
        return True
    first = given[0] if isinstance(given, list) and given else None
    return isinstance(first, dict) and "model" in body and ("role" in first or "type" in first)


def responses_chat(body: dict[str, Any], earlier: list[Any] | None = None) -> Chat:
    """Return the chat of a Responses body; `earlier` are the items that it goes on from.

    Without them, a body that goes on from something is a BadLine. Instructions and tools of
    earlier requests don't carry over.
    """
    if earlier is None and body.get("previous_response_id") is not None:
        raise BadLine(NOT_IN_LOG)
    if body.get("conversation") is not None:
        raise BadLine("its conversation is not in the log")
    if body.get("prompt") is not None:
        raise BadLine("its prompt template is not in the log")
    messages: list[dict[str, Any]] = []
    if isinstance(body.get("instructions"), str):
        messages.append({"role": "system", "content": body["instructions"]})
    messages += messages_of([*(earlier or []), *items_of(body.get("input"))])
    effort = mapping(body.get("reasoning")).get("effort")
    settings = body.get("chat_template_kwargs")
    return chat_of(
        {
            "messages": messages,
            "tools": tools_of(body.get("tools")),
            "chat_template_kwargs": settings,
            "reasoning_effort": effort,
        }
    )


def items_of(given: object) -> list[Any]:
    """Return the items of an input, which may be a text; BadLine if there are none."""
    if not given:
        raise BadLine(EMPTY)
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise BadLine("its input is neither text nor items")
    return given


def messages_of(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return items as messages: what a model said in one go is one message."""
    messages: list[dict[str, Any]] = []
    turn = Turn("assistant")
    for item in items:
        if _is_answer(item):
            if _begins_anew(turn, item):
                messages += turn.messages()
                turn = Turn("assistant")
            _add(turn, item)
        else:
            messages += turn.messages()
            turn = Turn("assistant")
            messages.append(_message(item))
    messages += turn.messages()
    return messages


def _is_answer(item: dict[str, Any]) -> bool:
    """Tell whether a model said an item; what nobody said stands for its tools' work."""
    kind = _kind(item)
    if kind == "message":
        return item.get("role") == "assistant" and "tool_calls" not in item
    return kind not in _OUTPUTS


def _kind(item: dict[str, Any]) -> Any:
    return item.get("type") or "message"


def _begins_anew(turn: Turn, item: dict[str, Any]) -> bool:
    """Tell whether an item can't be of the same message: thoughts, text and calls come in order."""
    return _kind(item) in ("reasoning", "message") and bool(turn.parts or turn.calls)


def _add(turn: Turn, item: dict[str, Any]) -> None:
    """Add an item to a model's turn; thoughts that only their author can read are left out."""
    kind = _kind(item)
    if kind == "message":
        turn.parts += _parts(item.get("content"))
    elif kind == "reasoning":
        parts = _parts(item.get("content")) or _parts(item.get("summary"))
        turn.thought += [p["text"] for p in parts if isinstance(p.get("text"), str)]
    elif kind in _CALLS:
        arguments = item.get("arguments" if kind == "function_call" else "input")
        turn.calls.append(tool_call(item.get("call_id"), item.get("name"), arguments))
    elif kind == "item_reference":
        raise BadLine("an item that it refers to is not in the log")
    else:
        turn.parts.append(item)


def _message(item: dict[str, Any]) -> dict[str, Any]:
    if _kind(item) in _OUTPUTS:
        output = item.get("output")
        content = content_of(_parts(output)) if isinstance(output, list) else output
        return tool_result(item.get("call_id"), content)
    message = {"role": item.get("role"), "content": content_of(_parts(item.get("content")))}
    kept = ("tool_calls", "tool_call_id", "reasoning_content")
    return message | {name: item[name] for name in kept if name in item}


def _parts(content: object) -> list[Any]:
    """Return a content's parts in the OpenAI form."""
    if content is None:
        return []
    if isinstance(content, str):
        return [text_part(content)]
    if not isinstance(content, list):
        raise BadLine("a content is neither text nor parts")
    return [_part(part) for part in content]


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return text_part(part)
    if not isinstance(part, dict):
        raise BadLine("a content is neither text nor parts")
    kind = part.get("type")
    text = part.get("refusal" if kind == "refusal" else "text")
    if kind in _TEXTS and isinstance(text, str):
        return text_part(text)
    if kind == "input_image":
        return {
            "type": "image_url",
            "image_url": {"url": part.get("image_url", part.get("file_id"))},
        }
    if kind == "input_file":
        return {"type": "file", "file": {k: v for k, v in part.items() if k != "type"}}
    return part
