"""Which prompt tokens requests in flight use, each counted once, on each replica.

Nodes of the tree by tokens, a bit a replica. Fleet.shared counts only where more than one path ends
or comes together, so it has no more entries than there are requests in flight.
"""

import numpy as np

from pipeline.kernel import NONE, kernel, trailing_zeros
from pipeline.replay.lookup import bit_of
from pipeline.replay.slots import key_of, put, remove, slot_of


@kernel(inner=True)
def activate(fleet, replica, node):
    """Add a path that ends at a node; it may be there more than once."""
    word, bit = bit_of(replica)
    while node > 0:
        if fleet.active[node, word] & bit != 0:
            key = key_of(fleet, replica, node)
            slot = fleet.shared[slot_of(fleet.shared, key)]
            put(fleet.shared, key, 2 if slot.key == NONE else slot.value + 1)
            break
        fleet.active[node, word] |= bit
        fleet.replicas[replica].active_tokens += _tokens_in(fleet, node)
        node = fleet.tokens[node].parent


@kernel(inner=True)
def deactivate(fleet, replica, node):
    """Take one path that ends at a node away."""
    word, bit = bit_of(replica)
    while node > 0:
        key = key_of(fleet, replica, node)
        slot = fleet.shared[slot_of(fleet.shared, key)]
        if slot.key != NONE:
            if slot.value > 2:
                slot.value -= 1
            else:
                remove(fleet.shared, key)
            break
        fleet.active[node, word] &= ~bit
        fleet.replicas[replica].active_tokens -= _tokens_in(fleet, node)
        node = fleet.tokens[node].parent


@kernel(inner=True)
def look_up_active(fleet, seq):
    """Fill in how much of request `seq` requests in flight on each replica use."""
    for r in range(len(fleet.replicas)):
        fleet.replicas[r].active_matched_tokens = 0
    for word in range(fleet.active.shape[1]):
        node, seen = np.int64(fleet.ends[seq].last_token), np.uint64(0)
        while node > 0:
            fresh = fleet.active[node, word] & ~seen
            seen |= fresh
            while fresh != 0:
                replica = 64 * word + trailing_zeros(fresh)
                fleet.replicas[replica].active_matched_tokens = fleet.tokens[node].end
                fresh &= fresh - np.uint64(1)
            node = fleet.tokens[node].parent


@kernel(inner=True)
def _tokens_in(fleet, node):
    return fleet.tokens[node].end - fleet.tokens[fleet.tokens[node].parent].end
