"""What stands in a log's fields, checked: counts, ids, inner JSON, block ids."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson

from pipeline.logs.records import BadLine, Blocks, LogRecord

_ID_MAX = 2**64 - 1
TOKEN_MAX = 2**31 - 1
"""Larger ids stand for images, sound and text that a log left out."""


def whole_number(value: object, name: str, *, at_most: int = 2**32 - 1) -> int | None:
    """Return a count as it is, None for null; BadLine for anything else."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= at_most:
        raise BadLine(f"{name} is not a whole number from 0 to {at_most}")
    return value


def count_or_none(value: object) -> int | None:
    """Return a count that is only reported, None if it is none: no reason to lose a request."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        return None
    return value


def text_or_none(value: object) -> str | None:
    """Return an id as text; numbers are ids too, half a surrogate pair is U+FFFD."""
    if type(value) is str and value.isascii():
        return value or None
    if value is None or isinstance(value, dict | list | bool):
        return None
    return str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def first_of(fields: dict[str, Any], *names: str) -> Any:
    """Return the first of the fields of these names that isn't null, None if there is none."""
    for name in names:
        value = fields.get(name)
        if value is not None:
            return value
    return None


def mapping(value: object) -> dict[str, Any]:
    """Return an object, or an empty one in place of anything else; text may hold its JSON."""
    value = inner_json(value)
    return value if isinstance(value, dict) else {}


def inner_json(value: object) -> Any:
    """Return what a text that holds a JSON object or array says, anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return orjson.loads(value.encode("utf-8", "replace"))
        except orjson.JSONDecodeError:
            return value
    return value


def token_ids(value: object) -> list[int]:
    """Return a prompt's token ids; BadLine if one is none."""
    if not isinstance(value, list):
        raise BadLine("a prompt is neither text nor token ids")
    if not _whole_numbers(value, TOKEN_MAX):
        raise BadLine("a token id is not a whole number below 2**31")
    return value


def ids_or_none(value: object) -> list[int] | None:
    """Return an output's token ids, None if they are none: no reason to lose a request."""
    if not isinstance(value, list) or not _whole_numbers(value, TOKEN_MAX):
        return None
    return value


def block_ids(ids: object, length: object, block_tokens: int) -> Blocks:
    """Return a prompt as blocks, with or without one for the last, partial block.

    Fewer ids than full blocks are what a logger left of them: what they don't cover is unknown.
    """
    tokens = whole_number(length, "the prompt's length")
    if tokens is None or not isinstance(ids, list):
        raise BadLine("the prompt's length or its block ids are missing")
    if not _whole_numbers(ids, _ID_MAX):
        raise BadLine("a block id is not a whole number below 2**64")
    blocks = -(-tokens // block_tokens)
    if len(ids) > blocks:
        raise BadLine(
            f"{tokens} tokens are {blocks} blocks of {block_tokens}, but there are {len(ids)} ids"
        )
    return Blocks(ids, tokens, block_tokens)


def _whole_numbers(values: list[Any], at_most: int) -> bool:
    """Tell whether all values are whole numbers from 0 on; as fast as that goes for many."""
    if not values:
        return True
    return set(map(type, values)) == {int} and min(values) >= 0 and max(values) <= at_most


def covers_all(blocks: Blocks) -> bool:
    """Tell whether all full blocks of a prompt have an id."""
    return len(blocks.ids) >= blocks.prompt_tokens // blocks.block_tokens


def block_record(ids: object, length: object, block_tokens: int) -> LogRecord:
    """Return the request of a prompt in blocks, so far: only prompt and whether it was cut.

    BadLine for a prompt without tokens or ids, and for one that was cut to nothing.
    """
    if ids is None:
        raise BadLine("lengths only: no content, so no prefix")
    blocks = block_ids(ids, length, block_tokens)
    if not blocks.prompt_tokens:
        raise BadLine("the prompt is empty")
    if covers_all(blocks):
        return LogRecord(blocks)
    if not blocks.ids:
        raise BadLine("cut by the logger")
    return LogRecord(blocks, cut=True, length=blocks.prompt_tokens)


def moment(value: object) -> float | str | None:
    """Return a time as it was logged, as text if it is a date of Parquet's (without zone: UTC)."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, date | Decimal):
        return str(value)
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124 - NaN
        return None
    return value


def number_or_none(value: object) -> float | None:
    """Return a number that can be calculated with, None in place of anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) < 2**63 else None


def remember(kept: dict[str, Any], key: str, value: object, *, at_most: int) -> None:
    """Keep a value by its key, and of too many the ones that were set last."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > at_most:
        del kept[next(iter(kept))]
