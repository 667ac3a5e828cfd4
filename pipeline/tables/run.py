"""The tables of a run: decisions, evictions, replicas."""

import pyarrow as pa

from pipeline.tables.column import ARRIVAL_TYPE, Column, nullable
from pipeline.tables.trace import CARRIED_COLUMNS

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

DECISIONS = (
    Column("request_id", pa.string(), "the trace's request_id"),
    Column("seq", pa.uint64(), "the trace's row number"),
    Column("arrival", ARRIVAL_TYPE, "when the router saw the request"),
    *CARRIED_COLUMNS,
    nullable("replica_id", pa.int32(), "replica that served it; null if none did"),
    Column(
        "outcome",
        pa.string(),
        ", ".join(OUTCOMES[:-1]) + f" or {OUTCOMES[-1]}: its replica was lost before it completed",
    ),
    Column("prompt_tokens", pa.uint32(), "prompt length; = matched + computed if served"),
    nullable("matched_tokens", pa.uint32(), "prefix found in the replica's cache"),
    nullable(
        "computed_tokens", pa.uint32(), "the rest; = cold + evicted_missed + elsewhere + recomputed"
    ),
    nullable("cold_tokens", pa.uint32(), "computed because no replica ever had them"),
    nullable(
        "evicted_tokens_missed",
        pa.uint32(),
        "computed although some replica once had them: now evicted everywhere",
    ),
    nullable("elsewhere_tokens", pa.uint32(), "computed although another replica has them now"),
    nullable(
        "recomputed_tokens",
        pa.uint32(),
        "computed although the replica has them: less than a block, or the prompt's last",
    ),
    nullable("best_matched_tokens", pa.uint32(), "longest match that any replica held"),
    nullable(
        "believed_matched_tokens",
        pa.uint32(),
        "match that the router expected on the replica; null for a policy that doesn't look up",
    ),
    nullable(
        "decided_by", pa.string(), "which of its scores the policy went by, see replay policies"
    ),
    nullable(
        "queue_wait_ms",
        pa.float64(),
        "how long it waited: for the queue of the replica, and for room",
    ),
    nullable("exec_ms", pa.float64(), "matched x lookup + computed x prefill, to 0.0001 ms"),
    nullable("ttft_ms", pa.float64(), "queue_wait_ms + exec_ms, to 0.01 ms"),
    nullable(
        "best_replica_id",
        pa.int32(),
        "replica with the least queue + lookup + prefill for it when it came, the lowest of equals",
    ),
    nullable(
        "regret_ms",
        pa.float64(),
        "how much more that sum was on the replica that served it, to 0.0001 ms",
    ),
    nullable("evicted_tokens", pa.uint64(), "tokens evicted to make room for it"),
    nullable(
        "evicted_nodes",
        pa.uint32(),
        "leaves, or blocks in the cache unit block, evicted to make room for it",
    ),
    nullable("resident_tokens", pa.uint64(), "tokens on the replica afterwards"),
    nullable(
        "queued_requests",
        pa.uint32(),
        "requests that wait on the replica when it comes; null unless requests are in flight,"
        " or the policy counts them",
    ),
    nullable(
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
    nullable(
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
    nullable(
        "last_used_seq",
        pa.uint64(),
        "request that used them last on this replica; null for one of the warm-up trace",
    ),
    Column("age_requests", pa.uint64(), "requests that were replayed since then"),
    Column("age_ms", pa.float64(), "time from the arrival of that request to that of seq"),
    nullable(
        "asked_again_seq",
        pa.uint64(),
        "next request that is replayed, on any replica, that wanted these tokens; null if none",
    ),
    nullable(
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
