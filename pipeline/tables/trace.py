"""The trace: one row a request, in order of arrival."""

import pyarrow as pa

from pipeline.tables.column import ARRIVAL_TYPE, Column, nullable, schema

SCHEMA_VERSION = "1"
TOKEN_COLUMN = "prompt_token_ids"  # noqa: S105 - tokens of text, not a secret
BLOCK_COLUMN = "block_ids"
"""A trace has one of the two, or none of them once its links are there."""

OUTPUT_COLUMN = "output_token_ids"
WHOLE_COLUMNS = ("whole_tokens", "whole_prefix_seq", "whole_prefix_tokens")
"""A trace that knows its outputs has these, and, until tokens are dropped, their ids."""

EARLIEST_US, LATEST_US = -62_135_596_800_000_000, 253_402_300_799_000_000
"""The years 1 to 9999: other dates can't be printed, and come from a wrong unit."""

SEQUENCE_COLUMNS = (
    Column(
        TOKEN_COLUMN,
        pa.large_list(pa.uint32()),
        "token ids of the prompt; may be absent once links are there",
    ),
    Column(
        BLOCK_COLUMN,
        pa.large_list(pa.uint64()),
        "instead of token ids in a block trace: ids of its blocks, in order",
    ),
)
CARRIED_COLUMNS = (
    nullable(
        "namespace", pa.string(), "requests in different namespaces share no KV: model, LoRA, salt"
    ),
    nullable("model", pa.string(), "model that was asked for"),
    nullable("tenant", pa.string(), "who sent the request"),
    nullable("session_id", pa.string(), "conversation that the request belongs to"),
)

TRACE = (
    Column("seq", pa.uint64(), "row number from 0: links refer to it, ties are settled by it"),
    Column("request_id", pa.string(), "the log's id, else the row number"),
    Column(
        "arrival",
        ARRIVAL_TYPE,
        "when the router saw the request; relative times start at 1970-01-01",
    ),
    *CARRIED_COLUMNS,
    *SEQUENCE_COLUMNS,
    Column("prompt_tokens", pa.uint32(), "prompt length in tokens"),
    Column(
        "first_token_id",
        pa.uint64(),
        "first token (or block) id, 0 for an empty prompt: pure_affinity's choice without a match",
    ),
    nullable(
        "prefix_seq",
        pa.uint64(),
        "seq of an earlier request of the same namespace with the longest common prefix: of its"
        " prompt, or of its prompt + output where output ids are there",
    ),
    Column("prefix_tokens", pa.uint32(), "length of that prefix in tokens, 0 if none"),
    nullable("output_tokens", pa.uint32(), "generated tokens"),
    Column(
        OUTPUT_COLUMN,
        pa.large_list(pa.uint32()),
        "token ids of the output, if they were asked for; may be absent once links are there",
    ),
    Column(
        "whole_tokens",
        pa.uint32(),
        "length of prompt + output; this and the next two only where output ids were asked for",
    ),
    Column(
        "whole_prefix_seq",
        pa.uint64(),
        "seq of the request, at times its own, with the longest prefix of prompt + output",
    ),
    Column("whole_prefix_tokens", pa.uint32(), "length of that prefix, at least prompt_tokens"),
    nullable("observed_cached_tokens", pa.uint32(), "cached tokens that production reported"),
    nullable("observed_ttft_ms", pa.float64(), "time to first token that production reported"),
)


def trace_schema(sequence: str | None, *, outputs: str | None = None) -> pa.Schema:
    """Return the trace's schema with `sequence` as its only token or block column, or none.

    `outputs`: `ids` for a trace with output ids and their links, `links` without the ids.
    """
    absent = {c.name for c in SEQUENCE_COLUMNS if c.name != sequence}
    if outputs != "ids":
        absent.add(OUTPUT_COLUMN)
    if outputs is None:
        absent.update(WHOLE_COLUMNS)
    return schema(TRACE, without=tuple(absent))
