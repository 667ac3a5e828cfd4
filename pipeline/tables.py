"""The tables that stages share: every column's name, type, null rule and meaning, once.

A stage may change inside as it likes; what it reads and writes is only what stands here.
README's tables are made from this file.
"""

from typing import NamedTuple

import pyarrow as pa

SCHEMA_VERSION = "1"
TOKEN_COLUMN = "prompt_token_ids"  # noqa: S105 - tokens of text, not a secret
BLOCK_COLUMN = "block_ids"
"""A trace has one of the two, or none of them once its links are there."""

OUTPUT_COLUMN = "output_token_ids"
WHOLE_COLUMNS = ("whole_tokens", "whole_prefix_seq", "whole_prefix_tokens")
"""A trace that knows its outputs has these, and, until tokens are dropped, their ids."""

SERVED = "served"
REJECTED_EMPTY = "rejected_empty"
REJECTED_TOO_LONG = "rejected_too_long"
REJECTED_PINNED = "rejected_pinned"
REJECTED_NO_REPLICA = "rejected_no_replica"
FAILED = "failed"
OUTCOMES = (
    SERVED,
    REJECTED_EMPTY,
    REJECTED_TOO_LONG,
    REJECTED_PINNED,
    REJECTED_NO_REPLICA,
    FAILED,
)
"""Index = the code that the replay kernels write."""


class Column(NamedTuple):
    """One column of a contract."""

    name: str
    type: pa.DataType
    meaning: str
    nullable: bool = False


def _nullable(name: str, kind: pa.DataType, meaning: str) -> Column:
    return Column(name, kind, meaning, nullable=True)


EARLIEST_US, LATEST_US = -62_135_596_800_000_000, 253_402_300_799_000_000
"""The years 1 to 9999: other dates can't be printed, and come from a wrong unit."""

ARRIVAL_TYPE = pa.timestamp("us", tz="UTC")
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
    _nullable(
        "namespace", pa.string(), "requests in different namespaces share no KV: model, LoRA, salt"
    ),
    _nullable("model", pa.string(), "model that was asked for"),
    _nullable("tenant", pa.string(), "who sent the request"),
    _nullable("session_id", pa.string(), "conversation that the request belongs to"),
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
    _nullable(
        "prefix_seq",
        pa.uint64(),
        "seq of an earlier request of the same namespace with the longest common prefix: of its"
        " prompt, or of its prompt + output where output ids are there",
    ),
    Column("prefix_tokens", pa.uint32(), "length of that prefix in tokens, 0 if none"),
    _nullable("output_tokens", pa.uint32(), "generated tokens"),
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
    _nullable("observed_cached_tokens", pa.uint32(), "cached tokens that production reported"),
    _nullable("observed_ttft_ms", pa.float64(), "time to first token that production reported"),
)

DECISIONS = (
    Column("request_id", pa.string(), "the trace's request_id"),
    Column("seq", pa.uint64(), "the trace's row number"),
    Column("arrival", ARRIVAL_TYPE, "when the router saw the request"),
    *CARRIED_COLUMNS,
    _nullable("replica_id", pa.int32(), "replica that served it; null if none did"),
    Column(
        "outcome",
        pa.string(),
        ", ".join(OUTCOMES[:-1]) + f" or {OUTCOMES[-1]}: its replica was lost before it completed",
    ),
    Column("prompt_tokens", pa.uint32(), "prompt length; = matched + computed if served"),
    _nullable("matched_tokens", pa.uint32(), "prefix found in the replica's cache"),
    _nullable(
        "computed_tokens", pa.uint32(), "the rest; = cold + evicted_missed + elsewhere + recomputed"
    ),
    _nullable("cold_tokens", pa.uint32(), "computed because no replica ever had them"),
    _nullable(
        "evicted_tokens_missed",
        pa.uint32(),
        "computed although some replica once had them: now evicted everywhere",
    ),
    _nullable("elsewhere_tokens", pa.uint32(), "computed although another replica has them now"),
    _nullable(
        "recomputed_tokens",
        pa.uint32(),
        "computed although the replica has them: less than a block, or the prompt's last",
    ),
    _nullable("best_matched_tokens", pa.uint32(), "longest match that any replica held"),
    _nullable(
        "believed_matched_tokens",
        pa.uint32(),
        "match that the router expected on the replica; null for a policy that doesn't look up",
    ),
    _nullable(
        "decided_by", pa.string(), "which of its scores the policy went by, see replay policies"
    ),
    _nullable(
        "queue_wait_ms",
        pa.float64(),
        "how long it waited: for the queue of the replica, and for room",
    ),
    _nullable("exec_ms", pa.float64(), "matched x lookup + computed x prefill, to 0.0001 ms"),
    _nullable("ttft_ms", pa.float64(), "queue_wait_ms + exec_ms, to 0.01 ms"),
    _nullable(
        "best_replica_id",
        pa.int32(),
        "replica with the least queue + lookup + prefill for it when it came, the lowest of equals",
    ),
    _nullable(
        "regret_ms",
        pa.float64(),
        "how much more that sum was on the replica that served it, to 0.0001 ms",
    ),
    _nullable("evicted_tokens", pa.uint64(), "tokens evicted to make room for it"),
    _nullable(
        "evicted_nodes",
        pa.uint32(),
        "leaves, or blocks in the cache unit block, evicted to make room for it",
    ),
    _nullable("resident_tokens", pa.uint64(), "tokens on the replica afterwards"),
    _nullable(
        "queued_requests",
        pa.uint32(),
        "requests that wait on the replica when it comes; null unless requests are in flight,"
        " or the policy counts them",
    ),
    _nullable(
        "running_requests",
        pa.uint32(),
        "requests that are computed on the replica when it comes; null likewise",
    ),
    Column("is_warmup", pa.bool_(), "replayed, but not counted in reports"),
)

EVICTIONS = (
    Column(
        "seq",
        pa.uint64(),
        "latest request when it happened: the one that needed the room,"
        " or the last before an output did, or before the replica restarted",
    ),
    Column("arrival", ARRIVAL_TYPE, "when that request came"),
    _nullable(
        "for_seq",
        pa.uint64(),
        "request whose prompt, or output, needed the room; null for one of the warm-up trace, and"
        " for a restart",
    ),
    Column("cause", pa.string(), "room, or restart: the replica crashed, or was drained"),
    Column("replica_id", pa.int32(), "replica that lost the tokens"),
    Column("evicted_tokens", pa.uint32(), "tokens that left together"),
    Column("evicted_nodes", pa.uint32(), "1 leaf, or so many blocks in the cache unit block"),
    Column("start_tokens", pa.uint32(), "depth in the prompt at which they began"),
    _nullable(
        "last_used_seq",
        pa.uint64(),
        "request that used them last on this replica; null for one of the warm-up trace",
    ),
    Column("age_requests", pa.uint64(), "requests that were replayed since then"),
    Column("age_ms", pa.float64(), "time from the arrival of that request to that of seq"),
    _nullable(
        "asked_again_seq",
        pa.uint64(),
        "next request that is replayed, on any replica, that wanted these tokens; null if none",
    ),
    _nullable(
        "asked_again_ms", pa.float64(), "time from the arrival of seq to that of this request"
    ),
    Column("asked_again_tokens", pa.uint32(), "how many of them it wanted, 0 if none did"),
    Column("is_warmup", pa.bool_(), "happened during the warm-up"),
)

REPLICAS = (
    Column("replica_id", pa.int32(), "every replica of the fleet, idle ones too"),
    Column("window_start", ARRIVAL_TYPE, "first moment of the time window"),
    Column("window_ms", pa.float64(), "length of the window"),
    Column("requests", pa.uint64(), "requests served"),
    Column("prompt_tokens", pa.uint64(), "their prompt tokens"),
    Column("matched_tokens", pa.uint64(), "of these, found in the cache"),
    Column("computed_tokens", pa.uint64(), "of these, computed"),
    Column("evicted_tokens", pa.uint64(), "tokens evicted"),
    Column("max_queue_wait_ms", pa.float64(), "longest queue that a request met"),
    Column(
        "resident_tokens",
        pa.uint64(),
        "tokens held after its last request of the window, in the last window at the end",
    ),
)


def schema(columns: tuple[Column, ...], *, without: tuple[str, ...] = ()) -> pa.Schema:
    """Return the Arrow schema of a contract, leaving out the columns named in `without`."""
    return pa.schema(
        [pa.field(c.name, c.type, c.nullable) for c in columns if c.name not in without]
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
