"""LogRecord, what a log line says of one request, and LogFamily, who can read such lines."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


class BadLine(Exception):  # noqa: N818 - a verdict on a line, not an error of the program
    """A line can't become a request; its text is the reason, without any of the prompt."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BadLine) and self.args == other.args

    def __hash__(self) -> int:
        return hash(self.args)


@dataclass(frozen=True, slots=True)
class Skip:
    """A line that holds no request, and isn't meant to: counted by its reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Chat:
    """A prompt as messages in the OpenAI form, to be rendered by a chat template.

    messages  role and content (text, parts or None); tool_calls, reasoning_content, name …
    tools     in the OpenAI form: {"type": "function", "function": {name, description, parameters}}
    settings  the request's chat_template_kwargs, reasoning_effort among them
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Blocks:
    """A prompt as hashes of its blocks, in order.

    ids            below 2**64; the last one may stand for a block that isn't full
    prompt_tokens  length of the prompt; what no id covers is shared with nobody
    block_tokens   tokens of a full block
    """

    ids: list[int]
    prompt_tokens: int
    block_tokens: int


Prompt = Chat | Blocks | str | list[int]
"""Messages, blocks, text with the special tokens written out, or token ids."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One request of a log, before tokenizing.

    prompt    None for a line that only adds to another line of the same request_id
    time      when the request came, as the log wrote it: number, numeric text or ISO 8601
    carried   namespace, model, tenant, session_id
    answer    text of the answer, whose tokens are counted where output_tokens is None
    output_ids  token ids of the answer, which may be there in place of its text
    again     another line may tell of the same request_id: together they are one row
    fallback  counts only in a file where no other line holds a request
    failed    it failed before any of its prompt was computed
    cut       the logger cut the prompt: only its head is here
    length    prompt tokens as the engine counted them, for a prompt that was cut
    """

    prompt: Prompt | None
    time: float | str | None = None
    request_id: str | None = None
    carried: dict[str, str | None] = field(default_factory=dict)
    output_tokens: int | None = None
    answer: str | None = None
    output_ids: list[int] | None = None
    observed_cached_tokens: int | None = None
    observed_ttft_ms: float | None = None
    again: bool = False
    fallback: bool = False
    failed: bool = False
    cut: bool = False
    length: int | None = None


Reader = Callable[[Any], Iterable[LogRecord | Skip | BadLine]]
"""Takes a line's object, or its text if it is no JSON; BadLine if no request is to be had.

Of a line that holds many, one that isn't to be had is yielded as a BadLine, not raised.
"""


@dataclass(frozen=True)
class LogFamily:
    """A kind of log: one module of `families` each.

    name          as `--log-format` takes it
    written_by    who writes such logs
    mark          how such a line is known, in words
    recognises    whether an object (a dict, or the text of a line that is no JSON) is of this kind
    fields        an object of this kind has one of these fields; (): it is always asked
    reader        makes a reader, which may keep what earlier lines of one file said
    generic       asked after all families that aren't: its mark is part of others' marks
    relative_unit unit of times that are no dates: s, ms, us or ns
    own_clock     times count from the start of each session, not of the log
    own_blocks    block ids of two files have nothing to do with each other
    other_lines   what a text line is called that isn't recognised: it is skipped
    refused       why such logs can't be used at all
    """

    name: str
    written_by: str
    mark: str
    recognises: Callable[[Any], bool]
    reader: Callable[[], Reader]
    fields: tuple[str, ...] = ()
    generic: bool = False
    relative_unit: str = "s"
    own_clock: bool = False
    own_blocks: bool = False
    other_lines: str | None = None
    refused: str | None = None
