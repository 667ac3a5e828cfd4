"""Each replica's eviction queue: a heap of leaves, least recent first.

Touches don't reorder it. An entry is mended when it comes up: recency only grows, so a leaf that
was touched since goes back, and the first whose recency stands is the least recent of all. An
edge that has children or pins by then is dropped; it is queued again when it has lost them.
"""

from pipeline.kernel import NONE, kernel
from pipeline.replay.heap import pop, push

TOUCH_BITS = 24  # touches on behalf of one arrival; seq has the 31 bits above


@kernel(inner=True)
def begin_touches(fleet, seq):
    """Begin the numbers of the touches since request `seq` arrived."""
    fleet.clock[0].touch = max(fleet.clock[0].touch, seq << TOUCH_BITS)


@kernel(inner=True)
def next_touch(fleet):
    """Return the number of the next touch."""
    fleet.clock[0].touch += 1
    return fleet.clock[0].touch


@kernel(inner=True)
def recency(fleet, edge):
    """Return the number of the edge's last touch: its own, or of its head on all replicas.

    Whatever touches an edge goes through its head node.
    """
    own = fleet.edges[edge].recency
    if fleet.rules.probes_touch:
        return max(own, fleet.touched[fleet.edges[edge].head])
    return own


@kernel(inner=True)
def last_user(fleet, edge):
    """Return the request that touched an edge last."""
    last = recency(fleet, edge)
    if last > fleet.edges[edge].recency:
        return last >> TOUCH_BITS
    return fleet.edges[edge].seq


@kernel(inner=True)
def touch_up(fleet, edge, touch, seq):
    """Touch an edge and all above it on behalf of request `seq`."""
    while edge != NONE:
        entry = fleet.edges[edge]
        entry.recency, entry.seq = touch, seq
        edge = entry.parent


@kernel(inner=True)
def enqueue(fleet, replica, edge):
    """Queue an edge at its present recency, unless it is queued."""
    entry = fleet.edges[edge]
    if entry.queued == 0:
        entry.key = recency(fleet, edge)
        entry.queued = 1
        fleet.replicas[replica].queue = push(fleet.edges, fleet.replicas[replica].queue, edge)


@kernel(inner=True)
def next_victim(fleet, replica):
    """Take the least recently touched leaf without pins off the queue; there must be one."""
    while True:
        edge = fleet.replicas[replica].queue
        fleet.replicas[replica].queue = pop(fleet.edges, edge)
        entry = fleet.edges[edge]
        entry.queued = 0
        if entry.children > 0 or entry.pins > 0:
            continue
        if recency(fleet, edge) == entry.key:
            return edge
        enqueue(fleet, replica, edge)
