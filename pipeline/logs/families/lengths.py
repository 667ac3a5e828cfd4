"""Traces of lengths alone: Azure LLM inference, BurstGPT, guidellm, TraceLab. Refused."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.records import BadLine, LogFamily, LogRecord

_REASON = "only counts of tokens, no content: there is no prefix to find"
_COLUMNS = (
    {"ContextTokens", "GeneratedTokens"},
    {"Request tokens", "Response tokens"},
    {"round_index", "prefix_tokens", "newly_append_tokens"},
)
_GUIDELLM = {"timestamp", "input_length", "output_length"}
_GUIDELLM_MORE = {"duration"}


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    names = line.keys()
    return any(names >= columns for columns in _COLUMNS) or (
        _GUIDELLM <= names <= _GUIDELLM | _GUIDELLM_MORE
    )


def _read(_: Any) -> Iterator[LogRecord]:
    raise BadLine(_REASON)


FAMILY = LogFamily(
    name="lengths",
    written_by="Azure LLM inference, BurstGPT, guidellm trace_synthetic, TraceLab",
    mark="columns of token counts, and no prompt",
    recognises=_recognises,
    fields=("ContextTokens", "Request tokens", "round_index", "input_length"),
    reader=lambda: _read,
    refused=_REASON,
)
