"""Prefixes that many requests share: the nodes of the trace's tree at which requests part."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import kernel
from pipeline.tree import TraceTree
from pipeline.upcoming import next_below, upcoming_requests


class SharedPrefixes(NamedTuple):
    """Every longest prefix that one set of two or more requests shares, one item a prefix.

    requests       int64       requests that begin with it
    prefix_tokens  int64       its length
    edge_tokens    int64       of these, the tokens beyond the next shorter shared prefix
    first_seq      int64       the first of the requests
    by_node        int32[all]  the trace's requests in an order in which any prefix's are adjacent
    low, high      int32       place of a prefix's requests in `by_node`: low <= place < high
    """

    requests: NDArray[np.int64]
    prefix_tokens: NDArray[np.int64]
    edge_tokens: NDArray[np.int64]
    first_seq: NDArray[np.int64]
    by_node: NDArray[np.int32]
    low: NDArray[np.int32]
    high: NDArray[np.int32]

    @property
    def saved_tokens(self) -> NDArray[np.int64]:
        """Tokens of its edge that all requests but the first find: over all, the cache's hits."""
        return self.edge_tokens * (self.requests - 1)

    def members(self, prefix: int) -> NDArray[np.int32]:
        """Return the requests that begin with a prefix, in no order."""
        return self.by_node[self.low[prefix] : self.high[prefix]]

    def top(self, most: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Return the prefixes with the most of something; ties: longer, then earlier first."""
        return np.lexsort((self.first_seq, -self.prefix_tokens, -most))[:count]


def full_blocks(tokens: NDArray[np.integer], block_tokens: int) -> NDArray[np.int64]:
    """Return the full blocks in each of these lengths, in tokens."""
    whole = tokens.astype(np.int64)
    return whole - whole % block_tokens


def shared_prefixes(tree: TraceTree, block_tokens: int) -> SharedPrefixes:
    """Find the shared prefixes of a trace, in full blocks of `block_tokens`.

    Every node of the tree has its own set of requests: at each, one ends or one parts.
    """
    upcoming = upcoming_requests(tree)
    requests = upcoming.high - upcoming.low
    whole = full_blocks(tree.end, block_tokens)
    edge = whole - whole[tree.parent]
    edge[0] = 0  # the root has no parent, and is no prefix
    node = np.flatnonzero((requests > 1) & (edge > 0))
    first_seq = np.empty_like(node)
    _first_requests(upcoming, node, first_seq)
    by_node = np.empty(len(tree.last), np.int32)
    by_node[upcoming.place] = np.arange(len(tree.last), dtype=np.int32)
    return SharedPrefixes(
        requests=requests[node].astype(np.int64),
        prefix_tokens=whole[node],
        edge_tokens=edge[node],
        first_seq=first_seq,
        by_node=by_node,
        low=upcoming.low[node],
        high=upcoming.high[node],
    )


@kernel
def _first_requests(upcoming, nodes, first_seq):
    """Tell the first request of the trace through each node."""
    for i in range(len(nodes)):
        first_seq[i] = next_below(upcoming, nodes[i])
