"""Chat messages to the text that an engine would see: ChatML, as a sandboxed jinja2 template."""

import hashlib
import json
from importlib import resources
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pipeline.logs.records import BadLine, Chat


class ChatTemplate:
    """A chat template and the fingerprint that identifies it."""

    def __init__(self, source: str) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, keep_trailing_newline=True)
        environment.filters["tojson"] = _to_json
        environment.globals["text"] = _text
        self._template = environment.from_string(source)
        self.sha256 = hashlib.sha256(source.encode()).hexdigest()

    def render(self, chat: Chat) -> str:
        """Return the prompt up to where the assistant answers; BadLine if it can't be rendered."""
        try:
            return self._template.render(messages=chat.messages, tools=chat.tools)
        except (TemplateError, TypeError, ValueError, RecursionError) as error:
            raise BadLine(f"the chat template failed: {type(error).__name__}") from None


def chatml() -> ChatTemplate:
    """Return the template that turns messages into <|im_start|>role … <|im_end|>."""
    source = resources.files("pipeline.tokenize").joinpath("chatml.jinja")
    return ChatTemplate(source.read_text(encoding="utf-8"))


def _text(message: dict[str, Any]) -> str:
    """Return a message's text; a part that is not text is named by a hash of what it holds.

    Equal images thus share a prefix, different ones don't, and base64 is never tokenized.
    """
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise TypeError
    return "".join(_part(part) for part in content)


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    text = part.get("text") if isinstance(part, dict) else None
    if isinstance(text, str):
        return text
    digest = hashlib.sha256(_to_json(part).encode("utf-8", "surrogatepass")).hexdigest()
    return f"<|vision_start|><|image_pad|>{digest[:16]}<|vision_end|>"


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
