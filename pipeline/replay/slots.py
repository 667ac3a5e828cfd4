"""Tables from a replica's node to a number: open addressing over an array of records.SLOT."""

from pipeline.kernel import NONE, kernel


@kernel(inner=True)
def key_of(fleet, replica, node):
    """Return the key of a node of a replica."""
    return node * len(fleet.replicas) + replica


@kernel(inner=True)
def _home(slots, key):
    return ((key * 0x9E3779B97F4A7C1) >> 20) & (len(slots) - 1)


@kernel(inner=True)
def slot_of(slots, key):
    """Return the slot that holds `key`, or the free one where it belongs."""
    slot = _home(slots, key)
    while slots[slot].key not in (key, NONE):
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@kernel(inner=True)
def put(slots, key, value):
    """Enter a key, or change its value."""
    slot = slots[slot_of(slots, key)]
    slot.key, slot.value = key, value


@kernel(inner=True)
def remove(slots, key):
    """Take a key out, moving up the entries that had to step over it."""
    mask = len(slots) - 1
    gap = slot_of(slots, key)
    slot = (gap + 1) & mask
    while slots[slot].key != NONE:
        if (slot - _home(slots, slots[slot].key)) & mask >= (slot - gap) & mask:
            slots[gap].key, slots[gap].value = slots[slot].key, slots[slot].value
            gap = slot
        slot = (slot + 1) & mask
    slots[gap].key = NONE


@kernel
def refill(slots, larger):
    """Copy all entries of a table into a larger one."""
    for slot in range(len(slots)):
        if slots[slot].key != NONE:
            put(larger, slots[slot].key, slots[slot].value)
