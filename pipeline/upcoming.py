"""Which requests of a trace are still to come, so that any node can ask for its next."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import kernel
from pipeline.tree import TraceTree


class UpcomingRequests(NamedTuple):
    """Requests in tree order.

    earliest  int32[2 * leaves]  segment tree of minima: at leaf `place`, the request's number,
                                 or its maximum once it came
    place     int32[requests]    a request's leaf; the requests below a node have adjacent leaves
    low, high int32[nodes]       a node's leaves: low <= place < high
    """

    earliest: NDArray[np.int32]
    place: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]


NEVER = np.int32(2**31 - 1)


def upcoming_requests(tree: TraceTree, chosen: NDArray[np.bool_] | None = None) -> UpcomingRequests:
    """Return the requests of the trace, or those `chosen` of them, as still to come."""
    nodes, requests = len(tree.parent), len(tree.last)
    leaves = 1 << max(requests - 1, 1).bit_length()
    place = np.empty(requests, np.int32)
    low, high = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    _number_leaves(tree, place, low, high)
    earliest = np.full(2 * leaves, NEVER, np.int32)
    numbers = np.arange(requests, dtype=np.int32)
    earliest[leaves + place] = numbers if chosen is None else np.where(chosen, numbers, NEVER)
    for level in range(leaves.bit_length() - 2, -1, -1):
        first = 1 << level
        below = earliest[2 * first : 4 * first]
        earliest[first : 2 * first] = np.minimum(below[::2], below[1::2])
    return UpcomingRequests(earliest, place, low, high)


@kernel(allocates=True)
def _number_leaves(tree, place, low, high):
    """Give the requests below each node adjacent numbers, walking the tree from the root."""
    nodes = len(tree.parent)
    first_child, next_sibling = np.zeros(nodes, np.int32), np.zeros(nodes, np.int32)
    for node in range(1, nodes):
        next_sibling[node] = first_child[tree.parent[node]]
        first_child[tree.parent[node]] = node
    ending = np.zeros(nodes, np.int32)
    for i in range(len(tree.last)):
        ending[tree.last[i]] += 1
    node, number = 0, 0
    while node >= 0:
        low[node] = number
        number += ending[node]
        if first_child[node] > 0:
            node = first_child[node]
            continue
        while node >= 0:
            high[node] = number
            if next_sibling[node] > 0:
                node = next_sibling[node]
                break
            node = tree.parent[node]
    for i in range(len(tree.last) - 1, -1, -1):
        ending[tree.last[i]] -= 1
        place[i] = low[tree.last[i]] + ending[tree.last[i]]


@kernel
def came(upcoming, request):
    """Take a request, the earliest that was still to come, off the upcoming ones."""
    slot = len(upcoming.earliest) // 2 + upcoming.place[request]
    upcoming.earliest[slot] = NEVER
    slot //= 2
    while slot > 0:
        upcoming.earliest[slot] = min(upcoming.earliest[2 * slot], upcoming.earliest[2 * slot + 1])
        slot //= 2


@kernel
def next_below(upcoming, node):
    """Return the next request to come whose prompt goes through `node`, or NEVER."""
    leaves = len(upcoming.earliest) // 2
    low, high = leaves + upcoming.low[node], leaves + upcoming.high[node]
    earliest = NEVER
    while low < high:
        if low & 1:
            earliest = min(earliest, upcoming.earliest[low])
            low += 1
        if high & 1:
            high -= 1
            earliest = min(earliest, upcoming.earliest[high])
        low //= 2
        high //= 2
    return earliest
