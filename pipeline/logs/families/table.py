"""Tables, as CSV, Parquet or flat JSON: a request a row, its prompt in a column of known name."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.logs.bodies import EMPTY, filled, other_path, prompts_of
from pipeline.logs.envelopes import (
    body_of,
    is_access_log,
    opened,
    path_of,
    prompts_in,
    records_of,
)
from pipeline.logs.fields import count_or_none, first_of, ids_or_none, inner_json, moment, token_ids
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Prompt, Skip

_TIMES = ("timestamp", "arrival", "time", "timestamp_start_unix_ms")
_TTFTS = ("observed_ttft_ms", "duration_ttft_ms")
_NAMES = {
    "session_id": ("session_id", "provided_session_id"),
    "model": ("model", "model_name"),
    "tenant": ("tenant", "org_id"),
}
_INNER = ("messages", "tools", "functions", "chat_template_kwargs")
_PROMPTS = ("prompt_token_ids", "messages", "prompt")
_OURS = frozenset(
    {
        "arrival",
        "observed_cached_tokens",
        "output_tokens",
        "provided_session_id",
        "timestamp_start_unix_ms",
        *_TTFTS,
    }
)
_OTHERS = frozenset({"call_type", "custom_id"})


def _recognises(row: Any) -> bool:
    """Leave to other families what they read as well: bodies beside columns that they know."""
    if not isinstance(row, dict) or not _OTHERS.isdisjoint(row) or is_access_log(row):
        return False
    if "prompt_token_ids" in row or any(_is_messages(row.get(name)) for name in _PROMPTS):
        return True
    return not _OURS.isdisjoint(row) and not body_of(row).keys().isdisjoint(_PROMPTS)


def _is_messages(text: object) -> bool:
    """Tell whether a text holds messages as JSON."""
    return isinstance(text, str) and text.lstrip().startswith("[") and '"role"' in text


def _read(row: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    """Yield what a gateway's line would give, and what the columns say beyond it."""
    if reason := other_path(path_of(row)):
        yield Skip(reason)
        return
    row = _tidied(row)
    envelope = opened(row)
    if first_of(row, *_PROMPTS) is not None:
        envelope = envelope._replace(body=row)
        prompts = _prompts(row)
    elif envelope.body is row:
        raise BadLine(EMPTY)
    else:
        prompts = prompts_in(envelope.body, envelope.path)
    output, cached = (_count(row.get(n)) for n in ("output_tokens", "observed_cached_tokens"))
    ttft, time = _number(first_of(row, *_TTFTS)), moment(first_of(row, *_TIMES))
    for record in records_of(envelope, prompts):
        yield replace(
            record,
            time=record.time if time is None else time,
            output_tokens=record.output_tokens if output is None else output,
            output_ids=ids_or_none(inner_json(row.get("output_token_ids"))),
            observed_cached_tokens=record.observed_cached_tokens if cached is None else cached,
            observed_ttft_ms=record.observed_ttft_ms if ttft is None else ttft,
        )


def _tidied(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without its empty cells, with whole numbers as such and JSON read."""
    tidy = {name: _whole(value) for name, value in row.items() if not _is_empty(value)}
    tidy |= {name: inner_json(tidy[name]) for name in _INNER if name in tidy}
    for name, columns in _NAMES.items():
        tidy[name] = first_of(tidy, *columns)
    return tidy


def _is_empty(cell: object) -> bool:
    """Tell null, blank text and NaN, which is what a table has where it has nothing."""
    if isinstance(cell, float):
        return cell != cell  # noqa: PLR0124 - only NaN is unlike itself
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _whole(cell: Any) -> Any:
    """Return 17.0 as 17: columns of counts and ids are floats where one is missing."""
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def _prompts(row: dict[str, Any]) -> list[Prompt]:
    """Return the prompt of the first column that has one."""
    ids, messages, prompt = (row.get(name) for name in _PROMPTS)
    if ids is not None:
        return [filled(token_ids(inner_json(ids)))]
    if messages is None and _is_messages(prompt):
        messages = inner_json(prompt)
    if isinstance(messages, list) or prompt is None:
        return prompts_of(row | {"messages": messages})
    return prompts_of({"prompt": prompt})


def _number(cell: object) -> float | None:
    """Return a number, which may be text; None for anything else."""
    if isinstance(cell, str):
        try:
            cell = float(cell)
        except ValueError:
            return None
    if isinstance(cell, bool) or not isinstance(cell, int | float):
        return None
    return cell if abs(cell) < 2**63 else None


def _count(cell: object) -> int | None:
    return count_or_none(_whole(_number(cell)))


FAMILY = LogFamily(
    name="table",
    written_by="tables in CSV, Parquet or flat JSON, Baseten's among them",
    mark="prompt_token_ids; messages as text; or a prompt beside arrival, output_tokens …",
    recognises=_recognises,
    reader=lambda: _read,
)
