"""The replica with the best score, ties broken in the open, and seeded chance: for all policies."""

import numpy as np

from pipeline.kernel import kernel
from pipeline.replay.records import LOWEST, RANDOM

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@kernel(inner=True)
def mixed(word):
    """Return a uint64 that looks random for each uint64 (the finalizer of SplitMix64)."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@kernel(inner=True)
def chance_of(seed, seq):
    """Return what is random about a request: of the seed and its number alone."""
    return mixed(mixed(np.uint64(seed) + _GOLDEN) + np.uint64(seq) * _GOLDEN)


@kernel(inner=True)
def uniform(request, draw):
    """Return the request's random number of that number, 0 <= x < 1."""
    word = mixed(request.chance + np.uint64(draw) * _GOLDEN)
    return np.float64(word >> np.uint64(11)) / 9007199254740992.0


@kernel(inner=True)
def below(request, draw, count):
    """Return the request's random integer of that number, 0 <= n < count."""
    return np.int64(uniform(request, draw) * count)


@kernel(inner=True)
def least(request, replicas):
    """Return the place of the replica with the least score; request.tie says which of equals.

    ROTATE takes the first of them from request.turn on. Ties draw the random number 0.
    """
    return _first(request, replicas, 1.0)


@kernel(inner=True)
def most(request, replicas):
    """Return the place of the replica with the highest score, with ties as for `least`."""
    return _first(request, replicas, -1.0)


@kernel(inner=True)
def _first(request, replicas, sign):
    """Return the place of the replica whose score x `sign` is least."""
    first, tied, best = 0, 1, sign * replicas[0].score
    for r in range(1, len(replicas)):
        score = sign * replicas[r].score
        if score < best:
            first, tied, best = r, 1, score
        elif score == best:
            tied += 1
    if tied == 1 or request.tie == LOWEST:
        return first
    skipped = below(request, 0, tied) if request.tie == RANDOM else 0
    for r in range(first, len(replicas)):
        if sign * replicas[r].score != best:
            continue
        if request.tie == RANDOM and skipped == 0:
            return r
        if request.tie != RANDOM and replicas[r].replica_id >= request.turn:
            return r
        skipped -= 1
    return first
