"""Room for the rows of evictions that one step of the loop may need."""

import numpy as np

from pipeline.kernel import kernel
from pipeline.replay.fleet import EDGES
from pipeline.replay.pool import in_use
from pipeline.replay.room import blocks_of


@kernel(inner=True)
def _rows_at_most(fleet, tokens):
    """Return how many evictions the insertion of so many tokens may need at most."""
    return min(blocks_of(fleet, tokens), in_use(fleet.pools[EDGES])) + 1


@kernel(inner=True)
def rows_of_all(fleet):
    """Return how many evictions can empty any cache at most."""
    return in_use(fleet.pools[EDGES]) + 1


@kernel(inner=True)
def rows_to_land(fleet, replica, settings):
    """Return how many evictions the next completion of a replica may need at most."""
    if not settings.keeps_output:
        return 0
    seq = fleet.flights[fleet.replicas[replica].flying].seq
    return _rows_at_most(fleet, fleet.tokens[fleet.ends[seq].whole_token].end)


@kernel(inner=True)
def rows_to_serve(fleet, request, settings):
    """Return how many evictions serving a request may need at most."""
    most = _rows_at_most(fleet, request.prompt_tokens)
    if settings.cache_output and not settings.pins:
        most += _rows_at_most(fleet, fleet.tokens[fleet.ends[request.seq].whole_token].end)
    return most


@kernel(inner=True, allocates=True)
def with_rows(rows, used, most):
    """Return the rows of evictions with at least `most` of them free."""
    while len(rows) - used < most:
        rows = np.concatenate((rows, np.empty_like(rows)))
    return rows
