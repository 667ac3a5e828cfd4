"""Consistent hashing: a ring of points, 256 of each replica, in a policy's memory.

The memory's first half is the points' positions, ascending; its second half tells whose they are.
Replicas that are away keep their points, and a walk skips them: only their keys move.
"""

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import NONE, kernel
from pipeline.replay.policies.choice import chance_of

POINTS = 256
"""Points of each replica."""


@kernel(inner=True)
def _position(word, number):
    """Return where on the ring two numbers lie: int64, 0 or more."""
    return np.int64(chance_of(word, number) >> np.uint64(1))


@kernel
def _lay_points(positions):
    """Write the positions of all points, replica by replica."""
    for p in range(len(positions)):
        positions[p] = _position(p // POINTS, p % POINTS)


def ring_memory(replicas: int) -> NDArray[np.int64]:
    """Return the memory of a policy that hashes onto a ring of so many replicas."""
    positions = np.empty(replicas * POINTS, np.int64)
    _lay_points(positions)
    order = np.argsort(positions, kind="stable")
    return np.concatenate((positions[order], order // POINTS))


@kernel(inner=True)
def point_of(memory, word):
    """Return the first point at or after the hash of a word; after the last one comes the first."""
    # POINTS is no point's number, so that no word falls onto a point by its mere value.
    position, points = _position(word, POINTS), len(memory) // 2
    low, high = 0, points
    while low < high:
        middle = (low + high) // 2
        if memory[middle] < position:
            low = middle + 1
        else:
            high = middle
    return low if low < points else 0


@kernel(inner=True)
def _place_of(replicas, replica_id):
    """Return the place of a replica, NONE if it is away."""
    if replica_id < len(replicas) and replicas[replica_id].replica_id == replica_id:
        return replica_id
    low, high = 0, len(replicas)
    while low < high:
        middle = (low + high) // 2
        if replicas[middle].replica_id < replica_id:
            low = middle + 1
        else:
            high = middle
    if low < len(replicas) and replicas[low].replica_id == replica_id:
        return low
    return NONE


@kernel(inner=True)
def walk(memory, replicas, point):
    """Return the first point, from one on, of a replica that takes requests, and its place."""
    points = len(memory) // 2
    point %= points
    place = _place_of(replicas, memory[points + point])
    while place == NONE:
        point = (point + 1) % points
        place = _place_of(replicas, memory[points + point])
    return point, place
