"""Each replica's eviction queue: a pairing heap of leaves, least recent first.

Touches don't reorder it. An entry is mended when it comes up: recency only grows, so a leaf that
was touched since goes back, and the first whose recency stands is the least recent of all.
"""

from pipeline.kernel import NONE, kernel


@kernel
def look_up_touch(seq):
    """Return the number of the touch that a request's look-up makes."""
    return 2 * seq


@kernel
def insertion_touch(seq):
    """Return the number of the touch that a request's insertion makes, just after its look-up."""
    return 2 * seq + 1


@kernel
def touched_by(touch):
    """Return the request that made a touch."""
    return touch // 2


@kernel
def recency(fleet, edge):
    """Return the number of the edge's last touch: its own, or of its head on all replicas.

    Whatever touches an edge goes through its head node.
    """
    return max(fleet.edges[edge].recency, fleet.touched[fleet.edges[edge].head])


@kernel
def enqueue(fleet, replica, edge):
    """Queue an edge at its present recency."""
    entry = fleet.edges[edge]
    entry.queue_recency = recency(fleet, edge)
    entry.queue_child = NONE
    entry.queue_next = NONE
    entry.queued = 1
    fleet.queue_root[replica] = _meld(fleet.edges, fleet.queue_root[replica], edge)


@kernel
def next_victim(fleet, replica):
    """Take the least recently touched leaf off the queue.

    An edge that got children is dropped; it is queued again when it has lost them.
    """
    while True:
        edge = _dequeue(fleet, replica)
        if fleet.edges[edge].children > 0:
            continue
        if recency(fleet, edge) == fleet.edges[edge].queue_recency:
            return edge
        enqueue(fleet, replica, edge)


@kernel
def _meld(edges, one, other):
    if one == NONE:
        return other
    if other == NONE:
        return one
    if edges[other].queue_recency < edges[one].queue_recency:
        one, other = other, one
    edges[other].queue_next = edges[one].queue_child
    edges[one].queue_child = other
    return one


@kernel
def _dequeue(fleet, replica):
    """Take the first entry; its children are melded in pairs, then the pairs from the right."""
    edges = fleet.edges
    first = fleet.queue_root[replica]
    pairs, entry = NONE, edges[first].queue_child
    while entry != NONE:
        mate = edges[entry].queue_next
        rest = NONE if mate == NONE else edges[mate].queue_next
        pair = _meld(edges, entry, mate)
        edges[pair].queue_next = pairs
        pairs, entry = pair, rest
    root = NONE
    while pairs != NONE:
        rest = edges[pairs].queue_next
        edges[pairs].queue_next = NONE
        root = _meld(edges, root, pairs)
        pairs = rest
    fleet.queue_root[replica] = root
    edges[first].queued = 0
    return first
