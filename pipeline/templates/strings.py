"""map_strings: a change made to every text in a JSON value."""

from collections.abc import Callable
from typing import Any

from pipeline.logs.records import BadLine


def map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """Return a copy whose texts, keys among them, are changed; BadLine if it is nested too deep."""
    try:
        return _mapped(value, change)
    except RecursionError:
        raise BadLine("its messages or tools are nested too deep") from None


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {
            change(key) if isinstance(key, str) else key: change(inner)
            if isinstance(inner, str)
            else _mapped(inner, change)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_mapped(inner, change) for inner in value]
    return change(value) if isinstance(value, str) else value
