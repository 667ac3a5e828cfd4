"""A replica's edges: the pool they come from, and the table that finds them by head node."""

from pipeline.kernel import NONE, kernel


@kernel
def new_edge(fleet):
    """Take an edge from the pool, which `Replayer` keeps large enough."""
    pool = fleet.pool
    if pool[1] == NONE:
        pool[0] += 1
        return pool[0] - 1
    edge = pool[1]
    pool[1] = fleet.edges[edge].queue_next
    pool[2] -= 1
    return edge


@kernel
def free_edge(fleet, edge):
    """Give an edge back to the pool."""
    fleet.edges[edge].queue_next = fleet.pool[1]
    fleet.pool[1] = edge
    fleet.pool[2] += 1


@kernel
def _home(keys, key):
    return ((key * 0x9E3779B97F4A7C1) >> 20) & (len(keys) - 1)


@kernel
def _slot(keys, key):
    """Return the slot that holds `key`, or the free one where it belongs."""
    slot = _home(keys, key)
    while keys[slot] not in (key, NONE):
        slot = (slot + 1) & (len(keys) - 1)
    return slot


@kernel
def _key(fleet, replica, node):
    return node * len(fleet.replicas) + replica


@kernel
def _put(keys, edges, key, edge):
    slot = _slot(keys, key)
    keys[slot] = key
    edges[slot] = edge


@kernel
def register(fleet, replica, head, edge):
    """Let the edge of a replica be found by its head node."""
    _put(fleet.slot_keys, fleet.slot_edges, _key(fleet, replica, head), edge)


@kernel
def unregister(fleet, replica, head):
    """Forget the edge with that head node, moving up the entries that had to step over it."""
    keys, edges = fleet.slot_keys, fleet.slot_edges
    mask = len(keys) - 1
    gap = _slot(keys, _key(fleet, replica, head))
    slot = (gap + 1) & mask
    while keys[slot] != NONE:
        if (slot - _home(keys, keys[slot])) & mask >= (slot - gap) & mask:
            keys[gap], edges[gap] = keys[slot], edges[slot]
            gap = slot
        slot = (slot + 1) & mask
    keys[gap] = NONE


@kernel
def edge_over(fleet, replica, node):
    """Return the edge of a replica that covers a resident node."""
    while True:
        slot = _slot(fleet.slot_keys, _key(fleet, replica, node))
        if fleet.slot_keys[slot] != NONE:
            return fleet.slot_edges[slot]
        node = fleet.tree.parent[node]


@kernel
def reregister(keys, edges, new_keys, new_edges):
    """Copy all entries of a table into a larger one."""
    for slot in range(len(keys)):
        if keys[slot] != NONE:
            _put(new_keys, new_edges, keys[slot], edges[slot])
