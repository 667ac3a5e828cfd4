"""What a replica's radix tree does, on trace nodes: split, insert, evict."""

import numpy as np

from pipeline.kernel import NONE, kernel
from pipeline.replay.edges import edge_over, register, unregister
from pipeline.replay.eviction import (
    enqueue,
    last_user,
    next_victim,
    recency,
    touch_up,
)
from pipeline.replay.fleet import EDGES
from pipeline.replay.lookup import bit_of, holds
from pipeline.replay.pool import give_back, take
from pipeline.replay.room import blocks_in, blocks_of, free_blocks, start_of
from pipeline.upcoming import NEVER, next_below

EVICTION = np.dtype(
    [
        ("seq", np.int64),
        ("for_seq", np.int64),
        ("replica_id", np.int32),
        ("evicted_tokens", np.int64),
        ("evicted_nodes", np.int64),
        ("start_tokens", np.int64),
        ("last_used_seq", np.int64),
        ("asked_again_seq", np.int64),  # upcoming.NEVER for not at all
        ("asked_again_tokens", np.int64),
    ],
    align=True,
)


@kernel(inner=True, inline=False)
def insert(fleet, replica, path, seq, touch, need, evictions):
    """Make a path resident: `path` is its deepest node that is, the one below, its last.

    Evicts until `need` blocks are free; each eviction takes a row of `evictions`. The path that
    is resident is touched before, so it is the last that could leave. Returns the number of
    evictions and the edge in which the path ends, NONE if nothing is kept of it.
    """
    match, missing, last = path
    if fleet.rules.keep_partial:
        fleet.kept[last] = True
    edge = NONE
    if match > 0:
        edge = edge_over(fleet, replica, match)
        if fleet.edges[edge].tail != match:
            edge = _split(fleet, replica, edge, match)
        if recency(fleet, edge) < fleet.clock[0].look_up_touch:
            touch_up(fleet, edge, touch, seq)
    evicted = 0
    while free_blocks(fleet, replica) < need:
        lacking = need - free_blocks(fleet, replica)
        evict(fleet, replica, lacking, seq, evictions[evicted])
        evicted += 1
    if edge != NONE and fleet.edges[edge].end < fleet.nodes[match].end:
        _lengthen(fleet, replica, edge, last)
    elif last != match and holds(fleet, replica, last):
        edge = edge_over(fleet, replica, last)
        if fleet.edges[edge].tail != last:
            edge = _split(fleet, replica, edge, last)
        touch_up(fleet, edge, touch, seq)
    elif last != match:
        edge = _attach(fleet, replica, edge, missing, last)
        fleet.edges[edge].recency, fleet.edges[edge].seq = touch, seq
        enqueue(fleet, replica, edge)
    return evicted, edge


@kernel(inner=True)
def _split(fleet, replica, edge, at):
    """Cut an edge after node `at`; the lower part keeps its number, so its children stand.

    Both parts keep the recency that the edge has, and its pins: they end below.
    """
    nodes, edges = fleet.nodes, fleet.edges
    last_touch, user = recency(fleet, edge), last_user(fleet, edge)
    lower = edges[edge]
    below = lower.tail
    while nodes[below].parent != at:
        below = nodes[below].parent
    number = take(fleet.pools[EDGES], edges)
    upper = edges[number]
    upper.head, upper.tail, upper.parent = lower.head, at, lower.parent
    upper.end, upper.children, upper.queued = nodes[at].end, 1, 0
    upper.pins = min(lower.pins, 1)
    upper.recency, upper.seq = last_touch, user
    lower.head, lower.parent, lower.recency, lower.seq = below, number, last_touch, user
    register(fleet, replica, upper.head, number)
    register(fleet, replica, below, edge)
    return number


@kernel(inner=True)
def _attach(fleet, replica, above, head, last):
    """Add the leaf that runs from the first missing node down to `last`."""
    number = take(fleet.pools[EDGES], fleet.edges)
    leaf = fleet.edges[number]
    leaf.head, leaf.tail, leaf.parent = head, head, above
    leaf.children, leaf.pins, leaf.queued = 0, 0, 0
    leaf.end = fleet.nodes[fleet.nodes[head].parent].end
    if above != NONE:
        fleet.edges[above].children += 1
    register(fleet, replica, head, number)
    _lengthen(fleet, replica, number, last)
    return number


@kernel(inner=True)
def _lengthen(fleet, replica, edge, last):
    """Let a leaf, at times cut within its tail, run down to the end of node `last`."""
    leaf, state = fleet.edges[edge], fleet.replicas[replica]
    word, bit = bit_of(replica)
    if not fleet.rules.whole_leaves:
        fleet.cut[leaf.tail, word] &= ~bit
    node = last
    while True:
        fleet.resident[node, word] |= bit
        if node == leaf.tail:
            break
        node = fleet.nodes[node].parent
    end = fleet.nodes[last].end
    state.resident_tokens += end - leaf.end
    state.resident_blocks += blocks_of(fleet, end) - blocks_of(fleet, leaf.end)
    leaf.tail, leaf.end = last, end


@kernel(inner=True)
def evict(fleet, replica, lacking, for_seq, row):
    """Evict the least recent leaf, or just its last blocks that are `lacking`; note it in `row`.

    `for_seq` is NONE if no request needs the room.
    """
    number = next_victim(fleet, replica)
    victim, state = fleet.edges[number], fleet.replicas[replica]
    top, blocks = start_of(fleet, number), blocks_in(fleet, number)
    if not fleet.rules.whole_leaves and blocks > lacking:
        top = (blocks_of(fleet, victim.end) - lacking) * fleet.rules.block_tokens
        blocks = lacking
    row.seq, row.for_seq, row.replica_id = fleet.clock[0].latest_seq, for_seq, replica
    row.evicted_tokens, row.evicted_nodes = victim.end - top, blocks
    row.start_tokens, row.last_used_seq = top, last_user(fleet, number)
    if fleet.rules.whole_leaves:
        row.evicted_nodes = 1
    state.resident_tokens -= victim.end - top
    state.resident_blocks -= blocks
    tail, end = victim.tail, victim.end
    first = _remove(fleet, replica, number, top)
    _note_again(fleet, first, tail, end, row)


@kernel(inner=True, inline=False)
def evict_leaf(fleet, replica, row):
    """Evict the least recent leaf, for no request; note it in `row`."""
    evict(fleet, replica, fleet.replicas[replica].resident_blocks, np.int64(NONE), row)


@kernel(inner=True)
def _remove(fleet, replica, number, top):
    """Take what is deeper than `top` out of a leaf; return the topmost node that lost a token."""
    edge, nodes = fleet.edges[number], fleet.nodes
    word, bit = bit_of(replica)
    node, first = edge.tail, edge.tail
    while True:
        if nodes[nodes[node].parent].end < top:
            break
        first = node
        fleet.resident[node, word] &= ~bit
        if not fleet.rules.whole_leaves:
            fleet.cut[node, word] &= ~bit
        if node == edge.head:
            _unlink(fleet, replica, number)
            return first
        node = nodes[node].parent
    if nodes[node].end > top:
        fleet.cut[node, word] |= bit
        first = node
    edge.tail, edge.end = node, top
    enqueue(fleet, replica, number)
    return first


@kernel(inner=True)
def _unlink(fleet, replica, number):
    """Forget an edge of which nothing is left; its parent may have become a leaf."""
    edge = fleet.edges[number]
    unregister(fleet, replica, edge.head)
    if edge.parent != NONE:
        above = fleet.edges[edge.parent]
        above.children -= 1
        if above.children == 0:
            enqueue(fleet, replica, edge.parent)
    give_back(fleet.pools[EDGES], fleet.edges, number)


@kernel(inner=True)
def _note_again(fleet, first, tail, end, row):
    """Note which request to come asks again for what left, and for how much of it."""
    again = next_below(fleet.upcoming, first)
    row.asked_again_seq, row.asked_again_tokens = again, 0
    if again != NEVER:
        place, node = fleet.upcoming.place[again], tail
        while not fleet.upcoming.low[node] <= place < fleet.upcoming.high[node]:
            node = fleet.nodes[node].parent
        row.asked_again_tokens = min(fleet.nodes[node].end, end) - row.start_tokens
