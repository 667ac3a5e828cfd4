"""Messages of other APIs in the OpenAI form: pieces of a turn, and Anthropic's."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipeline.logs.bodies import EMPTY, chat_of
from pipeline.logs.fields import mapping
from pipeline.logs.records import BadLine, Chat

_ANTHROPIC_BLOCKS = ("tool_use", "tool_result", "redacted_thinking", "document")
_TOOL_FIELDS = ("name", "description", "parameters", "strict")


@dataclass
class Turn:
    """One message of another API in the making: it may be several in the OpenAI form.

    parts    of the content, in the OpenAI form
    calls    tool calls
    thought  reasoning
    results  messages of tools, which come before the rest
    """

    role: str
    parts: list[Any] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the messages; none if nothing was said."""
        yield from self.results
        if not (self.parts or self.calls or self.thought):
            return
        message = {"role": self.role, "content": content_of(self.parts)}
        if self.thought:
            message["reasoning_content"] = "".join(self.thought)
        if self.calls:
            message["tool_calls"] = self.calls
        yield message


def content_of(parts: list[Any]) -> Any:
    """Return parts as a message's content: a single text as it is, None if there are none.

    Clients write the same message now as a text, now as its only part.
    """
    if len(parts) == 1 and is_text(parts[0]):
        return parts[0]["text"]
    return parts or None


def text_part(text: str) -> dict[str, Any]:
    """Return a text as a part of a content."""
    return {"type": "text", "text": text}


def is_text(part: object) -> bool:
    """Tell whether a part of a content is text."""
    return (
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )


def tool_call(call_id: object, name: object, arguments: object) -> dict[str, Any]:
    """Return a tool call; arguments become JSON text if they are none."""
    if not isinstance(arguments, str):
        arguments = json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_result(call_id: object, content: object) -> dict[str, Any]:
    """Return the message in which a tool answers."""
    if content is not None and not isinstance(content, str | list):
        content = json.dumps(content, ensure_ascii=False)
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def tools_of(tools: object) -> list[dict[str, Any]] | None:
    """Return tools of any API in the OpenAI form; what an API does by itself has no text here."""
    if tools is None:
        return None
    if not isinstance(tools, list):
        raise BadLine("tools is not a list")
    nested = [_nested(tool) for tool in tools if isinstance(tool, dict)]
    return [tool for tool in nested if tool] or None


def _nested(tool: dict[str, Any]) -> dict[str, Any] | None:
    if isinstance(tool.get("function"), dict):
        return tool
    if not isinstance(tool.get("name"), str):
        return None
    function = {name: tool[name] for name in _TOOL_FIELDS if tool.get(name) is not None}
    if tool.get("input_schema") is not None:
        function["parameters"] = tool["input_schema"]
    return {"type": "function", "function": function}


def is_anthropic(body: dict[str, Any]) -> bool:
    """Tell whether a body is one of Anthropic's Messages: no other API takes what is in it."""
    messages, tools = body.get("messages"), body.get("tools")
    if not isinstance(messages, list) or "max_tokens" not in body:
        return False
    if isinstance(body.get("system"), str | list):
        return True
    if isinstance(tools, list) and any("input_schema" in t for t in tools if isinstance(t, dict)):
        return True
    contents = (message.get("content") for message in messages if isinstance(message, dict))
    return any(_is_block(part) for parts in contents if isinstance(parts, list) for part in parts)


def _is_block(part: object) -> bool:
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    thinks = kind == "thinking" and isinstance(part.get("thinking"), str)
    return kind in _ANTHROPIC_BLOCKS or thinks or (kind == "image" and "source" in part)


def anthropic_chat(body: dict[str, Any]) -> Chat:
    """Return the chat of a Messages body."""
    messages: list[dict[str, Any]] = []
    if body.get("system"):
        messages += anthropic_messages("system", body["system"])
    said = body.get("messages")
    if not isinstance(said, list) or not said:
        raise BadLine(EMPTY)
    for message in said:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadLine("a message has no role")
        messages += anthropic_messages(message["role"], message.get("content"))
    tools, settings = tools_of(body.get("tools")), body.get("chat_template_kwargs")
    return chat_of({"messages": messages, "tools": tools, "chat_template_kwargs": settings})


def anthropic_messages(role: str, content: object) -> Iterator[dict[str, Any]]:
    """Yield the messages that one of Anthropic's is: each tool result is one of its own."""
    turn = Turn(role)
    for block in _blocks(content):
        _add_block(turn, block)
    yield from turn.messages()


def _blocks(content: object) -> list[Any]:
    if isinstance(content, str):
        return [text_part(content)]
    if content is None:
        return []
    if not isinstance(content, list):
        raise BadLine("a content is neither text nor parts")
    return [text_part(block) if isinstance(block, str) else block for block in content]


def _add_block(turn: Turn, block: Any) -> None:
    """Add a block to a turn; thoughts that only their author can read are left out."""
    if not isinstance(block, dict):
        raise BadLine("a content is neither text nor parts")
    kind = block.get("type")
    if kind == "tool_use":
        turn.calls.append(tool_call(block.get("id"), block.get("name"), block.get("input")))
    elif kind == "tool_result":
        inner = Turn("tool")
        for part in _blocks(block.get("content")):
            _add_block(inner, part)
        turn.results.append(tool_result(block.get("tool_use_id"), content_of(inner.parts)))
    elif kind == "thinking":
        turn.thought.append(_text(block.get("thinking")))
    elif kind != "redacted_thinking":
        turn.parts.append(_part(block))


def _part(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block as a part in the OpenAI form, or as it is if that has none."""
    if is_text(block):
        return text_part(block["text"])
    source = mapping(block.get("source"))
    if block.get("type") == "image":
        data = f"data:{source.get('media_type')};base64,{source.get('data')}"
        url = data if source.get("type") == "base64" else source.get("url", source.get("file_id"))
        return {"type": "image_url", "image_url": {"url": url}}
    if block.get("type") == "document" and source.get("type") == "text":
        return text_part(_text(source.get("data")))
    return block


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise BadLine("a content is neither text nor parts")
    return value
