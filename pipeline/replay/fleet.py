"""The state of a replayed fleet: replicas, their edges, and what each trace node is to them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import NONE
from pipeline.replay.records import (
    CHANGE,
    CLOCK,
    EDGE,
    ENDS,
    FLIGHT,
    NEVER_TICKS,
    NODE,
    POOL,
    SLOT,
    WIPE,
)
from pipeline.tree import TraceTree
from pipeline.upcoming import UpcomingRequests


class CacheRules(NamedTuple):
    """How each replica's cache works."""

    block_tokens: int
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
    active      uint64[token nodes, W]  bit r: on the path of a request in flight on replica r; one
                                  row if nobody needs it
    shared      SLOT[slots]       active nodes at which more than one path ends or comes together:
                                  how many
    changes     CHANGE[changes]   when replicas go away and return
    flights     FLIGHT[pool]
    pools       POOL[2]           of edges and of flights
    clock       CLOCK[1]
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
    active: NDArray[np.uint64]
    shared: NDArray
    changes: NDArray
    flights: NDArray
    pools: NDArray
    clock: NDArray


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


NO_CHANGES = np.zeros(0, CHANGE)


def new_fleet(
    paths: TracePaths,
    replicas: NDArray,
    rules: CacheRules,
    changes: NDArray = NO_CHANGES,
    *,
    active: bool = False,
) -> Fleet:
    """Return a fleet with empty caches; what changes of `paths` is copied.

    `active`: it knows which tokens requests in flight use.
    """
    upcoming = paths.upcoming
    nodes, words = len(paths.nodes), -(-len(replicas) // 64)
    slots = np.zeros(32, SLOT)
    slots["key"] = NONE
    for change in changes[changes["what"] == WIPE][::-1]:
        replicas["lost_at_ticks"][change["replica"]] = change["ticks"]
    next_event = changes["ticks"][0] if len(changes) else NEVER_TICKS
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
        replicas=replicas,
        words=np.zeros((2, words), np.uint64),
        edges=np.zeros(16, EDGE),
        slots=slots,
        active=np.zeros((len(paths.token_nodes) if active else 1, words), np.uint64),
        shared=slots.copy(),
        changes=changes,
        flights=np.zeros(16, FLIGHT),
        pools=np.array([(0, NONE, 0)] * 2, POOL),
        clock=np.array([(0, 0, NONE, next_event, 0, 0)], CLOCK),
    )
