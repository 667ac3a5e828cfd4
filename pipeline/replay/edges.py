"""The table that finds a replica's edges by their head node."""

from pipeline.kernel import NONE, kernel


@kernel(inner=True)
def _home(slots, key):
    return ((key * 0x9E3779B97F4A7C1) >> 20) & (len(slots) - 1)


@kernel(inner=True)
def _slot(slots, key):
    """Return the slot that holds `key`, or the free one where it belongs."""
    slot = _home(slots, key)
    while slots[slot].key not in (key, NONE):
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@kernel(inner=True)
def _key(fleet, replica, node):
    return node * len(fleet.replicas) + replica


@kernel(inner=True)
def _put(slots, key, edge):
    slot = slots[_slot(slots, key)]
    slot.key, slot.edge = key, edge


@kernel(inner=True)
def register(fleet, replica, head, edge):
    """Let the edge of a replica be found by its head node."""
    _put(fleet.slots, _key(fleet, replica, head), edge)


@kernel(inner=True)
def unregister(fleet, replica, head):
    """Forget the edge with that head node, moving up the entries that had to step over it."""
    slots = fleet.slots
    mask = len(slots) - 1
    gap = _slot(slots, _key(fleet, replica, head))
    slot = (gap + 1) & mask
    while slots[slot].key != NONE:
        if (slot - _home(slots, slots[slot].key)) & mask >= (slot - gap) & mask:
            slots[gap].key, slots[gap].edge = slots[slot].key, slots[slot].edge
            gap = slot
        slot = (slot + 1) & mask
    slots[gap].key = NONE


@kernel(inner=True)
def edge_over(fleet, replica, node):
    """Return the edge of a replica that covers a resident node."""
    while True:
        slot = fleet.slots[_slot(fleet.slots, _key(fleet, replica, node))]
        if slot.key != NONE:
            return slot.edge
        node = fleet.nodes[node].parent


@kernel
def reregister(slots, larger):
    """Copy all entries of a table into a larger one."""
    for slot in range(len(slots)):
        if slots[slot].key != NONE:
            _put(larger, slots[slot].key, slots[slot].edge)
