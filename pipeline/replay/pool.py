"""Pools of records with a field sibling, by which the free ones are chained; see fleet.POOL."""

from pipeline.kernel import NONE, kernel


@kernel(inner=True)
def take(pool, entries):
    """Take a record from the pool, which `Replayer` keeps large enough."""
    if pool.first_free == NONE:
        pool.used += 1
        return pool.used - 1
    entry = pool.first_free
    pool.first_free = entries[entry].sibling
    pool.free -= 1
    return entry


@kernel(inner=True)
def give_back(pool, entries, entry):
    """Give a record back to the pool."""
    entries[entry].sibling = pool.first_free
    pool.first_free = entry
    pool.free += 1


@kernel(inner=True)
def in_use(pool):
    """Return how many records are in use."""
    return pool.used - pool.free
