"""LogRecord, what a log line says of one request, and LogFamily, who can read such lines."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any


class BadLine(Exception):  # noqa: N818 - a verdict on a line, not an error of the program
    """A line can't become a request; its text is the reason, without any of the prompt."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A prompt as messages, to be rendered by a chat template."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True)
class Blocks:
    """A prompt as hashes of its blocks, and its length in tokens."""

    ids: list[int]
    prompt_tokens: int


Prompt = Chat | Blocks | str | list[int]
"""Messages, blocks, text, or token ids."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One request of a log, before tokenizing; `time` is as the log wrote it."""

    prompt: Prompt
    time: float | str | None = None
    request_id: str | None = None
    carried: dict[str, str | None] = field(default_factory=dict)
    output_tokens: int | None = None
    observed_cached_tokens: int | None = None
    observed_ttft_ms: float | None = None


@dataclass(frozen=True)
class LogFamily:
    """A kind of log.

    recognises    whether a JSON object is a line of this family
    read          the requests of such a line; BadLine if there is none to be had
    time_unit     unit of its times: s, ms, us or ns; None if it shows in their size
    block_tokens  tokens of a block for a block trace, None for text
    """

    name: str
    recognises: Callable[[dict[str, Any]], bool]
    read: Callable[[dict[str, Any]], Iterator[LogRecord]]
    time_unit: str | None = None
    block_tokens: int | None = None
    partial_block: str | None = None


def whole_number(value: object, name: str, *, at_most: int = 2**32 - 1) -> int | None:
    """Return a count as it is, None for null; BadLine for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= at_most:
        raise BadLine(f"{name} is not a whole number from 0 to {at_most}")
    return value


def text_or_none(value: object) -> str | None:
    """Return an id as text; numbers are ids too, half a surrogate pair is U+FFFD."""
    if value is None or isinstance(value, dict | list | bool):
        return None
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
