"""The records that a replay's state is made of, and new replicas."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import CostModel, ReplicaConfig
from pipeline.kernel import NONE

LOAD, ACTIVE, RECENCY, PREFIX, SESSION = 1, 2, 4, 8, 16
"""What a policy may need beside what is always there."""

REPLICA_SHOWN = (
    ("replica_id", np.int64, "its number"),
    ("queue_ticks", np.int64, "work ahead of the request, in 0.0001 ms"),
    ("matched_tokens", np.int64, "prefix of the request that it would find"),
    ("matched_seq", np.int64, "who used that last there, -1 if nothing matches (RECENCY)"),
    ("exec_ticks", np.int64, "lookup + prefill of the request there, in 0.0001 ms"),
    ("resident_tokens", np.int64, "what it keeps"),
    ("capacity_tokens", np.int64, "how much it can keep"),
    ("requests", np.int64, "served so far"),
    ("queued_requests", np.int64, "in flight: prefill has not begun (LOAD)"),
    ("running_requests", np.int64, "in flight: prefill has begun (LOAD)"),
    ("prefill_tokens", np.int64, "of these, what is still to be computed (LOAD)"),
    ("active_tokens", np.int64, "distinct prompt tokens of requests in flight (ACTIVE)"),
    ("active_matched_tokens", np.int64, "prefix of the request among them (ACTIVE)"),
    ("score", np.float64, "for the policy to write: what it compares"),
)
"""What a policy sees of a replica. A mark in brackets: only if the policy needs it."""

REPLICA = np.dtype(
    [
        *((name, kind) for name, kind, _ in REPLICA_SHOWN),
        ("free_at_ticks", np.int64),  # when its queue will be empty
        ("lost_at_ticks", np.int64),  # when all that it holds and does will be lost next
        ("capacity_blocks", np.int64),
        ("resident_blocks", np.int64),
        ("pinned_blocks", np.int64),
        ("held_blocks", np.int64),  # partial blocks of requests in flight, which are not kept
        ("lookup_ms_per_token", np.float64),
        ("prefill_ms_per_token", np.float64),
        ("decode_ms_per_token", np.float64),
        ("away", np.int32),  # so many absences it is in
        ("match", np.int32),  # deepest node of the request at hand that it holds
        ("missing", np.int32),  # the node below on the request's path
        ("queue", np.int32),  # its eviction queue: a heap of edges
        ("flying", np.int32),  # its requests in flight: a heap of flights
        ("first_waiting", np.int32),  # line of flights whose prefill has not begun
        ("first_unfilled", np.int32),  # the same line, from the first whose prefill has not ended
        ("last_unfilled", np.int32),
        ("first_ahead", np.int32),  # line of flights that completed ahead of the clock
        ("last_ahead", np.int32),
    ],
    align=True,
)
"""One replica: first what a policy sees of it, then what only the replay does."""

NODE = np.dtype([("end", np.int64), ("parent", np.int32)], align=True)
"""A node of a trace tree, see tree.TraceTree."""

_ENDS = ("last", "key", "whole", "last_token", "whole_token")
ENDS = np.dtype([(n, np.int32) for n in _ENDS], align=True)
"""Nodes at which a request ends: three of the trace tree, two of the tree by tokens."""

REQUEST_SHOWN = (
    ("seq", np.int64, "its number in the trace"),
    ("prompt_tokens", np.int64, "length of its prompt"),
    ("first_token_id", np.uint64, "its first token, or block"),
    ("clock_ticks", np.int64, "when it comes, in 0.0001 ms"),
    ("block_tokens", np.int64, "tokens of a block of the engine"),
    ("prefix", np.uint64, "names its first tokens, as many as prefix_tokens asks (PREFIX)"),
    ("session", np.uint64, "names its session, else its tenant; 0 for neither (SESSION)"),
    ("chance", np.uint64, "random, of seed and seq alone; see uniform and below"),
    ("tie", np.int64, "0 lowest, 1 random, 2 rotate"),
    ("turn", np.int64, "replica_id after the one that was chosen last"),
    ("branch", np.int64, "for the policy to write: which of its scores decided"),
)
"""What a policy sees of a request."""

REQUEST = np.dtype([(name, kind) for name, kind, _ in REQUEST_SHOWN], align=True)
"""The request at hand."""

_LINES = (
    "queue",
    "flying",
    "first_waiting",
    "first_unfilled",
    "last_unfilled",
    "first_ahead",
    "last_ahead",
)

NEVER_TICKS = 2**62
"""A time that doesn't come."""

LOWEST, RANDOM, ROTATE = 0, 1, 2
"""Values of REQUEST.tie, in the order of config.TIES."""

EDGE = np.dtype(
    [
        ("head", np.int32),  # first trace node of the run
        ("tail", np.int32),  # last trace node of the run
        ("end", np.int64),  # depth in tokens at which the edge ends, in its tail or at its end
        ("parent", np.int32),  # edge above, NONE below the root
        ("children", np.int32),
        ("pins", np.int32),  # requests in flight that end with it, and children with pins
        ("queued", np.int32),  # whether it is in the eviction queue
        ("recency", np.int64),  # last touch, see eviction.recency
        ("seq", np.int64),  # request of that touch
        ("key", np.int64),  # recency when it was queued for eviction
        ("child", np.int32),
        ("sibling", np.int32),  # also chains free edges
    ],
    align=True,
)
"""One edge of one replica's radix tree: a run of trace nodes."""

SLOT = np.dtype([("key", np.int64), ("value", np.int32)], align=True)
"""An entry of a table, see slots: node * N + replica, NONE for a free slot, and its value."""

POOL = np.dtype([("used", np.int64), ("first_free", np.int64), ("free", np.int64)], align=True)
"""How many records of a pool were used so far, and which of these are free."""

_CLOCK = ("touch", "look_up_touch", "latest_seq", "next_event", "next_change", "away")
CLOCK = np.dtype([(n, np.int64) for n in _CLOCK], align=True)
"""Numbers of the last touch and of the look-up's, the latest request that came, a time in ticks
before which nothing happens between requests, the next of Fleet.changes, and how many replicas are
away."""

CHANGE = np.dtype(
    [("ticks", np.int64), ("replica", np.int32), ("what", np.int32), ("row", np.int64)], align=True
)
"""What happens to a replica, and when, in order: at that tick, but not before a request of that
number comes, as many may come at one tick."""

CLOSE, WIPE, OPEN = 0, 1, 2
"""CHANGE.what: takes no more requests; loses its cache and what it does; takes requests again."""

FLIGHT = np.dtype(
    [
        ("key", np.int64),  # completion, in ticks
        ("seq", np.int64),
        ("start_ticks", np.int64),  # when its prefill begins
        ("filled_ticks", np.int64),  # when its prefill ends
        ("computed_tokens", np.int64),  # what is computed until then
        ("edge", np.int32),  # where what it pins ends, NONE if it pins nothing
        ("held_blocks", np.int32),
        ("child", np.int32),
        ("sibling", np.int32),  # also chains free ones
        ("behind", np.int32),  # next in the queue of its replica
        ("after", np.int32),  # next of those that completed ahead of the clock
    ],
    align=True,
)
"""One request in flight."""


def new_replicas(
    members: tuple[ReplicaConfig, ...], cost: CostModel, block_tokens: int
) -> NDArray[Any]:
    """Return the idle, empty replicas of a fleet."""
    replicas = np.zeros(len(members), REPLICA)
    speed = np.array([member.speed for member in members])
    capacity = np.array([member.capacity_tokens for member in members])
    replicas["replica_id"] = np.arange(len(members))
    replicas["capacity_tokens"] = capacity
    replicas["capacity_blocks"] = capacity // block_tokens
    replicas["lost_at_ticks"] = NEVER_TICKS
    for name in ("lookup_ms_per_token", "prefill_ms_per_token", "decode_ms_per_token"):
        replicas[name] = getattr(cost, name) / speed
    for name in _LINES:
        replicas[name] = NONE
    return replicas
