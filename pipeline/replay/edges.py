"""A replica's edges, found by their head node."""

from pipeline.kernel import NONE, kernel
from pipeline.replay.slots import key_of, put, remove, slot_of


@kernel(inner=True)
def register(fleet, replica, head, edge):
    """Let the edge of a replica be found by its head node."""
    put(fleet.slots, key_of(fleet, replica, head), edge)


@kernel(inner=True)
def unregister(fleet, replica, head):
    """Forget the edge with that head node."""
    remove(fleet.slots, key_of(fleet, replica, head))


@kernel(inner=True)
def edge_over(fleet, replica, node):
    """Return the edge of a replica that covers a resident node."""
    while True:
        slot = fleet.slots[slot_of(fleet.slots, key_of(fleet, replica, node))]
        if slot.key != NONE:
            return slot.value
        node = fleet.nodes[node].parent
