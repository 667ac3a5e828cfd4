"""The state of a replayed fleet: replicas, their edges, and what each trace node is to them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import NONE
from pipeline.tree import TraceTree, UpcomingRequests, upcoming_requests

REPLICA = np.dtype(
    [
        ("queue_ticks", np.int64),  # work ahead of the request at hand, in 0.0001 ms
        ("matched_tokens", np.int64),  # prefix of the request at hand that it holds
        ("exec_ticks", np.int64),  # lookup + prefill of the request at hand here
        ("resident_tokens", np.int64),
        ("requests", np.int64),  # served so far
        ("free_at_ticks", np.int64),  # when its queue will be empty
    ]
)
"""One replica as a policy sees it."""

REQUEST = np.dtype([("seq", np.int64), ("prompt_tokens", np.int64), ("first_token_id", np.uint64)])
"""The request at hand as a policy sees it."""

EDGE = np.dtype(
    [
        ("head", np.int32),  # first trace node of the run
        ("tail", np.int32),  # last trace node of the run
        ("parent", np.int32),  # edge above, NONE below the root
        ("children", np.int32),
        ("recency", np.int64),  # last touch, see Fleet.touched
        ("queue_recency", np.int64),  # recency when it was queued for eviction
        ("queue_child", np.int32),
        ("queue_next", np.int32),  # also chains free edges
        ("queued", np.int64),
    ]
)
"""One edge of one replica's radix tree: a run of trace nodes that leaves as a whole."""


class Fleet(NamedTuple):
    """All that changes during a replay. N replicas, W = ceil(N / 64) words.

    tree        the trace's radix tree
    upcoming    the requests still to come
    resident    uint64[nodes, W]  bit r: the node is on replica r
    ever        bool[nodes]       the node was on some replica once
    touched     int64[nodes]      last look-up that touched the node wherever it was resident.
                                  Touches are numbered in order, see eviction.look_up_touch
    replicas    REPLICA[N]
    match       int32[N]          deepest node of the request at hand that replica r holds
    missing     int32[N]          the node below it on the request's path
    seen        uint64[W]         scratch of the look-up
    edges       EDGE[pool]
    slot_keys   int64[slots]      head node * N + replica, NONE for a free slot
    slot_edges  int32[slots]
    queue_root  int32[N]          each replica's eviction queue
    pool        int64[3]          edges used so far, first free edge, number of free edges
    memory      int64[8]          what the policy remembers
    """

    tree: TraceTree
    upcoming: UpcomingRequests
    resident: NDArray[np.uint64]
    ever: NDArray[np.bool_]
    touched: NDArray[np.int64]
    replicas: NDArray
    match: NDArray[np.int32]
    missing: NDArray[np.int32]
    seen: NDArray[np.uint64]
    edges: NDArray
    slot_keys: NDArray[np.int64]
    slot_edges: NDArray[np.int32]
    queue_root: NDArray[np.int32]
    pool: NDArray[np.int64]
    memory: NDArray[np.int64]


def new_fleet(tree: TraceTree, replicas: int, upcoming: UpcomingRequests | None = None) -> Fleet:
    """Return an idle fleet with empty caches.

    `upcoming` is copied: it is the same for all fleets that replay one trace.
    """
    upcoming = upcoming or upcoming_requests(tree)
    nodes, words = len(tree.parent), -(-replicas // 64)
    return Fleet(
        tree=tree,
        upcoming=upcoming._replace(earliest=upcoming.earliest.copy()),
        resident=np.zeros((nodes, words), np.uint64),
        ever=np.zeros(nodes, np.bool_),
        touched=np.full(nodes, NONE, np.int64),
        replicas=np.zeros(replicas, REPLICA),
        match=np.zeros(replicas, np.int32),
        missing=np.zeros(replicas, np.int32),
        seen=np.zeros(words, np.uint64),
        edges=np.zeros(16, EDGE),
        slot_keys=np.full(32, NONE, np.int64),
        slot_edges=np.zeros(32, np.int32),
        queue_root=np.full(replicas, NONE, np.int32),
        pool=np.array([0, NONE, 0], np.int64),
        memory=np.zeros(8, np.int64),
    )
