"""Requests in a story: rows of the plan first, then what people call them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.explain.locate import rows_with
from pipeline.plan import Plan


@dataclass(frozen=True)
class Named:
    """Stands for a request until its name is known."""

    row: int


def with_names(story: dict[str, Any], plan: Plan) -> dict[str, Any]:
    """Return the story with ids and seqs of the requests that are named in it."""
    rows = set(_rows(story))
    ids = {row: found["request_id"] for row, found in rows_with(plan, ["request_id"], rows).items()}
    named: dict[str, Any] = _replaced(story, ids, plan.first)
    return named


def said(request: dict[str, Any]) -> str:
    """Return a named request as text."""
    of = " of the warm-up trace" if request["is_of_warmup_trace"] else ""
    return f"{request['request_id']} (seq {request['seq']}{of})"


def _rows(item: Any) -> Iterator[int]:
    if isinstance(item, Named):
        yield item.row
    for part in _parts(item):
        yield from _rows(part)


def _parts(item: Any) -> list[Any]:
    if isinstance(item, dict):
        return list(item.values())
    return item if isinstance(item, list) else []


def _replaced(item: Any, ids: dict[int, str], first: int) -> Any:
    if isinstance(item, dict):
        return {key: _replaced(value, ids, first) for key, value in item.items()}
    if isinstance(item, list):
        return [_replaced(value, ids, first) for value in item]
    if not isinstance(item, Named):
        return item
    warmup = item.row < first
    return {
        "request_id": ids[item.row],
        "seq": item.row if warmup else item.row - first,
        "is_of_warmup_trace": warmup,
    }
