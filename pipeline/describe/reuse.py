"""Reuse distances: how long ago the prefix that a request finds was last used."""

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.describe.prefixes import by_wholes
from pipeline.kernel import NONE, kernel
from pipeline.trace import TraceColumns
from pipeline.tree import TraceTree
from pipeline.upcoming import NEVER, came, next_below, upcoming_requests

_PERCENTILES = (0, 10, 50, 90, 99, 100)


def last_uses(tree: TraceTree, shared_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the last earlier request with the whole prefix that each request shares, or -1.

    `shared_tokens` is the length of that prefix in tokens, 0 for none. The earlier request has it
    in its prompt, or in prompt + output where outputs are known.
    """
    # Backwards in time the last request before this one is the next to come.
    backwards = tree._replace(last=tree.last[::-1].copy(), whole=tree.whole[::-1].copy())
    used = np.full(len(shared_tokens), NEVER, np.int64)
    upcoming = upcoming_requests(by_wholes(backwards))
    _next_uses(backwards, upcoming, shared_tokens[::-1].copy(), used)
    return np.where(used == NEVER, NONE, len(used) - 1 - used)[::-1]


def reuse_distances(
    columns: TraceColumns, last_use: NDArray[np.int64]
) -> dict[str, NDArray[np.int64]]:
    """Return the age of the prefix found, for each request that finds one, in request order.

    age_us        time since its last use
    age_requests  requests since then, the last user among them
    age_tokens    their tokens, with those of outputs where these are known: a cache of so many
                  that lets the least recently used tokens go, one by one, still holds it
    """
    request = np.flatnonzero(last_use != NONE)
    before = last_use[request]
    length = columns.whole_tokens if columns.has_outputs else columns.prompt_tokens
    tokens = np.cumsum(length, dtype=np.int64) - length
    return {
        "age_us": columns.arrival_us[request] - columns.arrival_us[before],
        "age_requests": request - before,
        "age_tokens": tokens[request] - tokens[before],
    }


def reuse_table(columns: TraceColumns, last_use: NDArray[np.int64]) -> pa.Table:
    """Return the percentiles of reuse distances, one row a quantity; times are in ms."""
    distances = reuse_distances(columns, last_use)
    rows = [
        _percentiles("age_ms", distances["age_us"], 1000),
        _percentiles("age_requests", distances["age_requests"], 1),
        _percentiles("age_tokens", distances["age_tokens"], 1),
    ]
    fields = [(f"p{p}", pa.float64()) for p in _PERCENTILES]
    schema = [("quantity", pa.string()), ("counted", pa.int64()), ("mean", pa.float64()), *fields]
    return pa.Table.from_pylist(rows, schema=pa.schema(schema))


def _percentiles(
    quantity: str, values: NDArray[np.int64], unit: int
) -> dict[str, str | int | float]:
    """Return one row; without values only their number."""
    row: dict[str, str | int | float] = {"quantity": quantity, "counted": len(values)}
    if len(values):
        points = np.percentile(values, _PERCENTILES) / unit
        row["mean"] = round(int(values.sum()) / len(values) / unit, 2)
        row |= {
            f"p{p}": round(float(point), 2) for p, point in zip(_PERCENTILES, points, strict=True)
        }
    return row


@kernel
def _next_uses(tree, upcoming, shared_tokens, used):
    """Find the next request through the node at the end of each request's shared prefix."""
    for request in range(len(shared_tokens)):
        came(upcoming, request)
        if shared_tokens[request] > 0:
            node = tree.last[request]
            while tree.end[tree.parent[node]] >= shared_tokens[request]:
                node = tree.parent[node]
            used[request] = next_below(upcoming, node)
