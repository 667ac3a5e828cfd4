"""ChatTemplate: messages to the text that an engine would see, and what identifies it."""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes

from pipeline.errors import UsageError
from pipeline.logs.records import BadLine, Chat
from pipeline.templates.budget import LARGEST, ExhaustedError
from pipeline.templates.content_form import content_form
from pipeline.templates.environment import TemplateEnvironment
from pipeline.templates.media import MediaTokens, without_marks
from pipeline.templates.messages import are_clean, clean_messages, with_objects
from pipeline.templates.protect import ProtectedChat
from pipeline.templates.strings import map_strings

NO_MOMENT = datetime(2024, 7, 26, tzinfo=UTC)
"""The date that templates get for a request without one, as Llama 3.1's own falls back to."""
_FAILURES = (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
_LONGEST_SOURCE = 1 << 20
_LONGEST_DATE_FORMAT = 1000


class ChatTemplate:
    """A chat template and the fingerprint that identifies it.

    name        as it is to be told
    sha256      of its source, and of how it is used if that is not the usual way
    uses_clock  it writes the date
    """

    def __init__(
        self,
        source: str,
        name: str,
        tokens: Mapping[str, str] | None = None,
        *,
        source_with_tools: str | None = None,
        media: MediaTokens | None = None,
        parse_arguments: bool = True,
    ) -> None:
        """Compile; UsageError if the source is no template.

        tokens             bos_token, eos_token … of the vocabulary
        source_with_tools  takes the source's place for chats with tools
        media              how many tokens stand for an image or a sound
        parse_arguments    tool calls get their arguments as objects, as text only if that fails
        """
        self.name = name
        sources = [source] if source_with_tools is None else [source, source_with_tools]
        key = [*sources, *([] if parse_arguments else ["arguments as text"])]
        self.sha256 = hashlib.sha256("\0".join(key).encode("utf-8", "replace")).hexdigest()
        self._tokens = dict(tokens or {})
        self._media = media or MediaTokens()
        self._parse_arguments = parse_arguments
        compiled = [_Compiled(text, name) for text in sources]
        self._without_tools, self._with_tools = compiled[0], compiled[-1]
        self.uses_clock = any(one.uses_clock for one in compiled)

    def render(self, chat: Chat, moment: datetime | None = None) -> str:
        """Return the prompt up to where the assistant answers; BadLine if it can't be rendered.

        `moment` is when the request came: templates that write the date write that one.
        """
        change = chat.broken if isinstance(chat, ProtectedChat) else without_marks
        tools = map_strings(chat.tools or None, change)
        settings = {**self._tokens, **map_strings(chat.settings, change)}
        compiled = self._with_tools if tools else self._without_tools
        clock = _Clock(moment or NO_MOMENT)
        failure: BaseException | None = None
        for parse in (True, False) if self._parse_arguments else (False,):
            messages = with_objects(chat.messages) if parse else chat.messages
            if isinstance(chat, ProtectedChat) or not are_clean(messages, compiled.form):
                messages = map_strings(messages, change)  # only now: JSON may spell "<" as \u003c
                messages = clean_messages(messages, compiled.form, self._media)
            try:
                return compiled.render(messages, tools, settings, clock)
            except RecursionError as error:
                failure = failure or error
                break
            except _FAILURES as error:
                failure = failure or error
                if isinstance(error, ExhaustedError):
                    break
        if isinstance(failure, ExhaustedError):
            raise BadLine("the chat template did too much or wrote too much")
        raise BadLine(f"the chat template failed: {type(failure).__name__}")


class _Compiled:
    """One source, ready to render."""

    def __init__(self, source: str, name: str) -> None:
        if len(source) > _LONGEST_SOURCE:
            raise UsageError(f"chat template {name}: longer than {_LONGEST_SOURCE} characters")
        self._environment = TemplateEnvironment()
        try:
            tree = self._environment.parse(source)
            self.form = content_form(tree)
            names = {node.name for node in tree.find_all(nodes.Name)}
            self.uses_clock = "strftime_now" in names
            self._template: Template = self._environment.compile_bounded(tree)
            self._globals = dict(self._template.globals)
        except TemplateSyntaxError as error:
            raise UsageError(
                f"chat template {name}: line {error.lineno}: {error.message}: give a jinja2"
                " template, or leave it to the tokenizer's own"
            ) from None
        except (*_FAILURES, RecursionError, SyntaxError, MemoryError) as error:
            raise UsageError(
                f"chat template {name}: jinja2 can't compile it ({type(error).__name__})"
            ) from None

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[Any] | None,
        settings: Mapping[str, Any],
        clock: "_Clock",
    ) -> str:
        self._environment.budget.renew()
        variables = {
            **self._globals,
            "documents": None,
            "add_generation_prompt": True,
            "strftime_now": clock.strftime_now,
            **settings,
            "messages": messages,
            "tools": tools,
        }
        pieces, length = [], 0
        context = self._template.new_context(variables, shared=True)
        for piece in self._template.root_render_func(context):
            length += len(piece)
            if length > LARGEST:
                raise ExhaustedError
            pieces.append(piece)
        return "".join(pieces)


class _Clock:
    """Tells templates when the request came."""

    def __init__(self, moment: datetime) -> None:
        self._moment = moment

    def strftime_now(self, form: str) -> str:
        """Return the request's date in a form that strftime knows."""
        if len(form) > _LONGEST_DATE_FORMAT:
            raise ExhaustedError
        return self._moment.strftime(form)
