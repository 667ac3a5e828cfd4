"""What the replicas hold of a request: one walk up its path in the trace tree."""

import numpy as np

from pipeline.kernel import NONE, kernel, trailing_zeros
from pipeline.replay.edges import edge_over
from pipeline.replay.eviction import touch_up
from pipeline.replay.fleet import BEYOND, SEEN


@kernel(inner=True)
def bit_of(replica):
    """Return a replica's word and bit in the rows of Fleet.resident and Fleet.cut."""
    return replica // 64, np.uint64(1) << np.uint64(replica % 64)


@kernel(inner=True)
def holds(fleet, replica, node):
    """Tell whether a replica holds a node, or its first blocks."""
    word, bit = bit_of(replica)
    return fleet.resident[node, word] & bit != 0


@kernel(inner=True)
def look_up(fleet, seq, touch):
    """Find what the replicas hold of request `seq`: Fleet.words, match and missing of those seen.

    A node's ancestors are resident wherever it is: the first node on the way up that a replica
    holds is its match. Unless `touch` is NONE, this touches the path on every replica at once.
    Returns the topmost node of the path, which is missing where nothing is held.
    """
    words, replicas = fleet.words, fleet.replicas
    words[:] = 0
    node, below = fleet.ends[seq].key, NONE
    if fleet.ends[seq].last != node:
        below = fleet.ends[seq].last
        for word in range(words.shape[1]):
            words[BEYOND, word] = fleet.resident[below, word]
    while node > 0:
        for word in range(words.shape[1]):
            fresh = fleet.resident[node, word] & ~words[SEEN, word]
            words[SEEN, word] |= fresh
            while fresh != 0:
                replica = 64 * word + trailing_zeros(fresh)
                replicas[replica].match = node
                replicas[replica].missing = below
                fresh &= fresh - np.uint64(1)
        if touch != NONE:
            fleet.touched[node] = touch
        below = node
        node = fleet.nodes[node].parent
    return below


@kernel(inner=True)
def touch_path(fleet, seq, touch):
    """Touch what the look-up of request `seq` reaches, on every replica at once."""
    node = fleet.ends[seq].key
    while node > 0:
        fleet.touched[node] = touch
        node = fleet.nodes[node].parent


@kernel(inner=True)
def prefix_node(fleet, seq, depth):
    """Return the node of Fleet.tokens in which the first `depth` tokens of a request end."""
    node = fleet.ends[seq].last_token
    while node > 0 and fleet.tokens[fleet.tokens[node].parent].end >= depth:
        node = fleet.tokens[node].parent
    return node


@kernel(inner=True)
def matched_until(fleet, replica, node):
    """Return how many tokens of a path a replica holds, whose deepest resident node is `node`."""
    if not fleet.rules.whole_leaves and node > 0:
        word, bit = bit_of(replica)
        if fleet.cut[node, word] & bit != 0:
            return fleet.edges[edge_over(fleet, replica, node)].end
    return fleet.nodes[node].end


@kernel(inner=True)
def touch_match(fleet, replica, seq):
    """Touch what the look-up reached on one replica, if that counts as use.

    The edge that is matched in part is touched whole.
    """
    match = fleet.replicas[replica].match
    if fleet.rules.match_touches and match > 0:
        edge = edge_over(fleet, replica, match)
        touch_up(fleet, edge, fleet.clock[0].look_up_touch, seq)


@kernel(inner=True)
def ever_tokens(fleet, node):
    """Return how many tokens of the path that ends at a node of Fleet.tokens were computed once."""
    while node > 0 and not fleet.ever[node]:
        node = fleet.tokens[node].parent
    return fleet.tokens[node].end


@kernel(inner=True)
def mark_computed(fleet, node):
    """Mark the path that ends at a node of Fleet.tokens as computed."""
    while node > 0 and not fleet.ever[node]:
        fleet.ever[node] = True
        node = fleet.tokens[node].parent
