"""How much room a replica has, and what in it can't be evicted: pins."""

from pipeline.kernel import NONE, kernel
from pipeline.replay.edges import edge_over
from pipeline.replay.eviction import enqueue


@kernel(inner=True)
def blocks_of(fleet, tokens):
    """Return how many blocks so many tokens take, the last at times not full."""
    block = fleet.rules.block_tokens
    return tokens if block == 1 else (tokens + block - 1) // block


@kernel(inner=True)
def start_of(fleet, edge):
    """Return the depth in tokens at which an edge begins."""
    return fleet.nodes[fleet.nodes[fleet.edges[edge].head].parent].end


@kernel(inner=True)
def blocks_in(fleet, edge):
    """Return how many blocks an edge has."""
    return blocks_of(fleet, fleet.edges[edge].end) - blocks_of(fleet, start_of(fleet, edge))


@kernel(inner=True)
def has_room(fleet, replica, match, matched, need):
    """Tell whether `need` blocks are free or can be: not pinned, and not on the matched path."""
    state = fleet.replicas[replica]
    others = state.resident_blocks - state.pinned_blocks
    edge, end = NONE, blocks_of(fleet, matched)
    if need <= free_blocks(fleet, replica) + others - end:
        return True  # whatever of the matched path is pinned
    if match > 0:
        edge = edge_over(fleet, replica, match)
    while edge != NONE and fleet.edges[edge].pins == 0:
        start = blocks_of(fleet, start_of(fleet, edge))
        others -= end - start
        end, edge = start, fleet.edges[edge].parent
    return need <= free_blocks(fleet, replica) + others


@kernel(inner=True)
def free_blocks(fleet, replica):
    """Return how many blocks of a replica nothing lies in."""
    state = fleet.replicas[replica]
    return state.capacity_blocks - state.resident_blocks - state.held_blocks


@kernel(inner=True)
def pin(fleet, replica, edge):
    """Pin the path down to an edge: each edge counts the requests and the children that pin it."""
    while edge != NONE:
        entry = fleet.edges[edge]
        entry.pins += 1
        if entry.pins > 1:
            break
        fleet.replicas[replica].pinned_blocks += blocks_in(fleet, edge)
        edge = entry.parent


@kernel(inner=True)
def unpin(fleet, replica, edge):
    """Take one pin of the path down to an edge away."""
    while edge != NONE:
        entry = fleet.edges[edge]
        entry.pins -= 1
        if entry.pins > 0:
            break
        fleet.replicas[replica].pinned_blocks -= blocks_in(fleet, edge)
        if entry.children == 0:
            enqueue(fleet, replica, edge)
        edge = entry.parent
