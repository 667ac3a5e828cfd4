"""Pairing heaps over an array of records with the fields key, seq, child and sibling.

The first of a heap is the entry with the least key, then the least seq. A heap is the number of
its first entry, NONE if it is empty.
"""

import numpy as np

from pipeline.kernel import NONE, kernel


@kernel(inner=True)
def push(entries, first, entry):
    """Add an entry; return the heap."""
    entries[entry].child = NONE
    entries[entry].sibling = NONE
    return _meld(entries, np.int64(first), np.int64(entry))


@kernel(inner=True)
def pop(entries, first):
    """Take the first entry off; return the heap.

    Its children are melded in pairs, then the pairs from the right.
    """
    pairs, entry = np.int64(NONE), np.int64(entries[first].child)
    while entry != NONE:
        mate = np.int64(entries[entry].sibling)
        rest = np.int64(NONE if mate == NONE else entries[mate].sibling)
        pair = _meld(entries, entry, mate)
        entries[pair].sibling = pairs
        pairs, entry = pair, rest
    root = np.int64(NONE)
    while pairs != NONE:
        rest = np.int64(entries[pairs].sibling)
        entries[pairs].sibling = NONE
        root = _meld(entries, root, pairs)
        pairs = rest
    return root


@kernel(inner=True)
def comes_before(entries, one, other):
    """Tell whether an entry has the lesser key, or the lesser seq at equal keys."""
    if entries[one].key != entries[other].key:
        return entries[one].key < entries[other].key
    return entries[one].seq < entries[other].seq


@kernel(inner=True)
def _meld(entries, one, other):
    if one == NONE:
        return other
    if other == NONE:
        return one
    if comes_before(entries, other, one):
        one, other = other, one
    entries[other].sibling = entries[one].child
    entries[one].child = other
    return one
