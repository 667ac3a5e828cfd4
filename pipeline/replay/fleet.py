"""The state of a replayed fleet: replicas, their edges, and what each trace node is to them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import NONE
from pipeline.tree import TraceTree
from pipeline.upcoming import UpcomingRequests

REPLICA = np.dtype(
    [
        ("queue_ticks", np.int64),  # work ahead of the request at hand, in 0.0001 ms
        ("matched_tokens", np.int64),  # prefix of the request at hand that it would find
        ("exec_ticks", np.int64),  # lookup + prefill of the request at hand here
        ("resident_tokens", np.int64),
        ("requests", np.int64),  # served so far
        ("queued_requests", np.int64),  # in flight: prefill has not begun
        ("running_requests", np.int64),  # in flight: prefill has begun
        ("score", np.float64),  # what the policy compared, for people to read
        ("free_at_ticks", np.int64),  # when its queue will be empty
        ("resident_blocks", np.int64),
        ("pinned_blocks", np.int64),
        ("held_blocks", np.int64),  # partial blocks of requests in flight, which are not kept
        ("match", np.int32),  # deepest node of the request at hand that it holds
        ("missing", np.int32),  # the node below on the request's path
        ("queue", np.int32),  # its eviction queue: a heap of edges
        ("flying", np.int32),  # its requests in flight: a heap of flights
        ("first_waiting", np.int32),  # line of flights whose prefill has not begun
        ("last_waiting", np.int32),
        ("first_ahead", np.int32),  # line of flights that completed ahead of the clock
        ("last_ahead", np.int32),
    ],
    align=True,
)
"""One replica as a policy sees it; a policy reads the fields down to running_requests."""

NODE = np.dtype([("end", np.int64), ("parent", np.int32)], align=True)
"""A node of a trace tree, see tree.TraceTree."""

_ENDS = ("last", "key", "whole", "last_token", "whole_token")
ENDS = np.dtype([(n, np.int32) for n in _ENDS], align=True)
"""Nodes at which a request ends: three of the trace tree, two of the tree by tokens."""

_REQUEST = [("seq", np.int64), ("prompt_tokens", np.int64), ("first_token_id", np.uint64)]
REQUEST = np.dtype(_REQUEST, align=True)
"""The request at hand as a policy sees it."""

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

SLOT = np.dtype([("key", np.int64), ("edge", np.int32)], align=True)
"""head node * N + replica, NONE for a free slot, and the edge with that head."""

POOL = np.dtype([("used", np.int64), ("first_free", np.int64), ("free", np.int64)], align=True)
"""How many records of a pool were used so far, and which of these are free."""

_CLOCK = ("touch", "look_up_touch", "latest_seq", "next_event")
CLOCK = np.dtype([(n, np.int64) for n in _CLOCK], align=True)
"""Numbers of the last touch and of the look-up's, the latest request that came, and a time in ticks
before which nothing happens to requests in flight."""

FLIGHT = np.dtype(
    [
        ("key", np.int64),  # completion, in ticks
        ("seq", np.int64),
        ("start_ticks", np.int64),  # when its prefill begins
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


class CacheRules(NamedTuple):
    """How each replica's cache works."""

    block_tokens: int
    capacity_blocks: int
    keep_partial: bool  # a prompt's last block is kept where it is not full, too
    whole_leaves: bool  # evict whole leaves, else as many blocks as it takes
    probes_touch: bool  # a look-up touches what it finds on every replica
    match_touches: bool  # it touches what it finds on the chosen one


class Fleet(NamedTuple):
    """All that changes during a replay. N replicas, W = ceil(N / 64) words.

    nodes       NODE[nodes]       the trace's radix tree, in what the caches keep
    tokens      NODE[token nodes] the same in single tokens
    ends        ENDS[requests]
    upcoming    the requests still to come
    rules       how the caches work
    resident    uint64[nodes, W]  bit r: the node, or its first blocks, is on replica r
    cut         uint64[nodes, W]  bit r: only its first blocks are; one row if leaves stay whole
    ever        bool[token nodes] the node was computed on some replica once
    kept        bool[nodes]       what ends here was kept once; one item without partial blocks
    brought     int64[requests]   what was resident when a request's output was inserted, NONE if it
                                  was not; one item if outputs are not kept
    touched     int64[nodes]      last look-up that touched the node wherever it was resident; one
                                  item if look-ups don't
    replicas    REPLICA[N]
    words       uint64[2, W]      of the look-up: replicas that were seen, and bit r: replica r
                                  holds what the look-up may not find, too
    edges       EDGE[pool]
    slots       SLOT[slots]       finds edges by their head
    flights     FLIGHT[pool]
    pools       POOL[2]           of edges and of flights
    clock       CLOCK[1]
    memory      int64[8]          what the policy remembers
    """

    nodes: NDArray
    tokens: NDArray
    ends: NDArray
    upcoming: UpcomingRequests
    rules: CacheRules
    resident: NDArray[np.uint64]
    cut: NDArray[np.uint64]
    ever: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    brought: NDArray[np.int64]
    touched: NDArray[np.int64]
    replicas: NDArray
    words: NDArray[np.uint64]
    edges: NDArray
    slots: NDArray
    flights: NDArray
    pools: NDArray
    clock: NDArray
    memory: NDArray[np.int64]


EDGES, FLIGHTS = 0, 1
"""Items of Fleet.pools."""

SEEN, BEYOND = 0, 1
"""Rows of Fleet.words."""


class TracePaths(NamedTuple):
    """What all replays of one trace under one set of block rules share, as trees and records."""

    tree: TraceTree
    tokens: TraceTree
    upcoming: UpcomingRequests
    nodes: NDArray
    token_nodes: NDArray
    ends: NDArray


def paths_of(tree: TraceTree, tokens: TraceTree, upcoming: UpcomingRequests) -> TracePaths:
    """Return trees with their records."""
    nodes = _records(tree)
    ends = np.zeros(len(tree.last), ENDS)
    for name in ("last", "key", "whole"):
        if len(getattr(tree, name)):
            ends[name] = getattr(tree, name)
    ends["last_token"] = tokens.last
    if len(tokens.whole):
        ends["whole_token"] = tokens.whole
    token_nodes = nodes if tokens is tree else _records(tokens)
    return TracePaths(tree, tokens, upcoming, nodes, token_nodes, ends)


def _records(tree: TraceTree) -> NDArray:
    records = np.empty(len(tree.parent), NODE)
    records["end"], records["parent"] = tree.end, tree.parent
    return records


def new_fleet(paths: TracePaths, replicas: int, rules: CacheRules) -> Fleet:
    """Return an idle fleet with empty caches; what changes of `paths` is copied."""
    upcoming = paths.upcoming
    nodes, words = len(paths.nodes), -(-replicas // 64)
    state, slots = np.zeros(replicas, REPLICA), np.zeros(32, SLOT)
    for name in ("queue", "flying", "first_waiting", "last_waiting", "first_ahead", "last_ahead"):
        state[name] = NONE
    slots["key"] = NONE
    return Fleet(
        nodes=paths.nodes,
        tokens=paths.token_nodes,
        ends=paths.ends,
        upcoming=upcoming._replace(earliest=upcoming.earliest.copy()),
        rules=rules,
        resident=np.zeros((nodes, words), np.uint64),
        cut=np.zeros((1 if rules.whole_leaves else nodes, words), np.uint64),
        ever=np.zeros(len(paths.token_nodes), np.bool_),
        kept=np.zeros(nodes if rules.keep_partial else 1, np.bool_),
        brought=np.full(max(len(paths.tree.whole), 1), NONE, np.int64),
        touched=np.full(nodes if rules.probes_touch else 1, NONE, np.int64),
        replicas=state,
        words=np.zeros((2, words), np.uint64),
        edges=np.zeros(16, EDGE),
        slots=slots,
        flights=np.zeros(16, FLIGHT),
        pools=np.array([(0, NONE, 0)] * 2, POOL),
        clock=np.array([(0, 0, NONE, 0)], CLOCK),
        memory=np.zeros(8, np.int64),
    )
