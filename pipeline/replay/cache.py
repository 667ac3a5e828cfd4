"""What a replica's radix tree does, on trace nodes: look up, touch, split, evict, insert."""

import numpy as np

from pipeline.kernel import NONE, kernel, trailing_zeros
from pipeline.replay.edges import edge_over, free_edge, new_edge, register, unregister
from pipeline.replay.eviction import (
    enqueue,
    insertion_touch,
    look_up_touch,
    next_victim,
    recency,
    touched_by,
)
from pipeline.tree import next_below

EVICTION = np.dtype(
    [
        ("seq", np.int64),
        ("replica_id", np.int32),
        ("evicted_tokens", np.int64),
        ("start_tokens", np.int64),
        ("last_used_seq", np.int64),
        ("asked_again_seq", np.int64),  # tree.NEVER for not at all
    ]
)


@kernel
def look_up(fleet, last, seq, refreshes):
    """Find what every replica holds of request `seq`, whose path ends at `last`, in one walk up.

    A node's ancestors are resident wherever it is: the first node on the way up that a replica
    holds is its match. Returns the tokens of the path that any replica ever held.
    `refreshes` touches the path on every replica at once.
    """
    fleet.match[:] = 0
    fleet.missing[:] = NONE
    fleet.seen[:] = 0
    node, below, ever_tokens = last, NONE, 0
    while node > 0:
        if ever_tokens == 0 and fleet.ever[node]:
            ever_tokens = fleet.tree.end[node]
        for word in range(len(fleet.seen)):
            fresh = fleet.resident[node, word] & ~fleet.seen[word]
            fleet.seen[word] |= fresh
            while fresh != 0:
                replica = 64 * word + trailing_zeros(fresh)
                fleet.match[replica] = node
                fleet.missing[replica] = below
                fresh &= fresh - np.uint64(1)
        if refreshes:
            fleet.touched[node] = look_up_touch(seq)
        below = node
        node = fleet.tree.parent[node]
    for replica in range(len(fleet.match)):
        if fleet.match[replica] == 0:
            fleet.missing[replica] = below
    return ever_tokens


@kernel
def touch_match(fleet, replica, seq):
    """Touch what the look-up reached on one replica, the edge that is matched in part whole."""
    if fleet.match[replica] > 0:
        edge = edge_over(fleet, replica, fleet.match[replica])
        _touch_up(fleet, edge, look_up_touch(seq))


@kernel
def _touch_up(fleet, edge, touch):
    while edge != NONE:
        fleet.edges[edge].recency = touch
        edge = fleet.edges[edge].parent


@kernel
def insert(fleet, replica, last, seq, overflow, evictions):
    """Insert request `seq`, whose path ends at `last`, evicting at least `overflow` tokens.

    Returns how many leaves were evicted; each takes a row of `evictions`. The matched path is
    touched before anything is evicted, so it is the last that could be, and a prompt that fits
    into the replica never needs that.
    """
    match = fleet.match[replica]
    edge = NONE
    if match > 0:
        edge = edge_over(fleet, replica, match)
        if fleet.edges[edge].tail != match:
            edge = _split(fleet, replica, edge, match)
        if recency(fleet, edge) < look_up_touch(seq):
            _touch_up(fleet, edge, insertion_touch(seq))
    freed, evicted = 0, 0
    if match != last:
        while freed < overflow:
            freed += _evict(fleet, replica, seq, evictions[evicted])
            evicted += 1
        _attach(fleet, replica, edge, last, insertion_touch(seq))
    return evicted


@kernel
def _split(fleet, replica, edge, at):
    """Cut an edge after node `at`; the lower part keeps its number, so its children stand.

    Both parts keep the recency that the edge has.
    """
    parent, edges = fleet.tree.parent, fleet.edges
    last_touch = recency(fleet, edge)
    lower = edges[edge]
    below = lower.tail
    while parent[below] != at:
        below = parent[below]
    number = new_edge(fleet)
    upper = edges[number]
    upper.head, upper.tail, upper.parent = lower.head, at, lower.parent
    upper.children, upper.recency, upper.queued = 1, last_touch, 0
    lower.head, lower.parent, lower.recency = below, number, last_touch
    register(fleet, replica, upper.head, number)
    register(fleet, replica, below, edge)
    return number


@kernel
def _attach(fleet, replica, above, last, touch):
    """Add the leaf that runs from the first missing node down to `last`."""
    number = new_edge(fleet)
    head = fleet.missing[replica]
    leaf = fleet.edges[number]
    leaf.head, leaf.tail, leaf.parent = head, last, above
    leaf.children, leaf.recency = 0, touch
    if above != NONE:
        fleet.edges[above].children += 1
    register(fleet, replica, head, number)
    enqueue(fleet, replica, number)
    word, bit = replica // 64, np.uint64(1) << np.uint64(replica % 64)
    node = last
    while True:
        fleet.resident[node, word] |= bit
        fleet.ever[node] = True
        if node == head:
            break
        node = fleet.tree.parent[node]
    start = fleet.tree.end[fleet.tree.parent[head]]
    fleet.replicas[replica].resident_tokens += fleet.tree.end[last] - start


@kernel
def _evict(fleet, replica, seq, row):
    """Evict the least recent leaf of a replica, note it in `row`, return its tokens."""
    number = next_victim(fleet, replica)
    victim = fleet.edges[number]
    start = fleet.tree.end[fleet.tree.parent[victim.head]]
    tokens = fleet.tree.end[victim.tail] - start
    row.seq, row.replica_id = seq, replica
    row.evicted_tokens, row.start_tokens = tokens, start
    row.last_used_seq = touched_by(recency(fleet, number))
    row.asked_again_seq = next_below(fleet.upcoming, victim.head)
    word, bit = replica // 64, np.uint64(1) << np.uint64(replica % 64)
    node = victim.tail
    while True:
        fleet.resident[node, word] &= ~bit
        if node == victim.head:
            break
        node = fleet.tree.parent[node]
    unregister(fleet, replica, victim.head)
    if victim.parent != NONE:
        above = fleet.edges[victim.parent]
        above.children -= 1
        if above.children == 0 and above.queued == 0:
            enqueue(fleet, replica, victim.parent)
    fleet.replicas[replica].resident_tokens -= tokens
    free_edge(fleet, number)
    return tokens
