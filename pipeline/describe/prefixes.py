"""Prefixes that many requests share: the nodes of the trace's tree at which requests part."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import kernel
from pipeline.tree import TraceTree
from pipeline.upcoming import next_below, upcoming_requests


class SharedPrefixes(NamedTuple):
    """Every longest prefix that one set of two or more requests shares, one item a prefix.

    A request shares a prefix if its prompt begins with it. The first that had it may also have
    it in its output, where outputs are known: all others find it.

    requests       int64       requests that share it
    prefix_tokens  int64       its length
    edge_tokens    int64       of these, the tokens beyond the next shorter shared prefix
    first_seq      int64       the first of the requests
    by_node        int32[all]  the trace's requests in an order in which any prefix's are adjacent
    low, high      int32       place in `by_node` of those whose prompt it is: low <= place < high
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
        """Return the requests that share a prefix, in no order."""
        first, found = self.first_seq[prefix], self.by_node[self.low[prefix] : self.high[prefix]]
        return found if (found == first).any() else np.append(found, np.int32(first))

    def top(self, most: NDArray[np.int64], count: int) -> NDArray[np.int64]:
        """Return the prefixes with the most of something; ties: longer, then earlier first."""
        return np.lexsort((self.first_seq, -self.prefix_tokens, -most))[:count]


def full_blocks(tokens: NDArray[np.integer], block_tokens: int) -> NDArray[np.int64]:
    """Return the full blocks in each of these lengths, in tokens."""
    whole = tokens.astype(np.int64)
    return whole - whole % block_tokens


def by_wholes(tree: TraceTree) -> TraceTree:
    """Return the tree of requests that end with their output, where outputs are known."""
    return tree._replace(last=tree.whole) if len(tree.whole) else tree


def shared_prefixes(tree: TraceTree, block_tokens: int) -> SharedPrefixes:
    """Find the shared prefixes of a trace, in full blocks of `block_tokens`."""
    prompts = upcoming_requests(tree)
    first = np.empty(len(tree.parent), np.int64)
    _first_requests(upcoming_requests(by_wholes(tree)), first)
    place = prompts.place[first] if len(tree.last) else first
    is_prompt = (prompts.low <= place) & (place < prompts.high)
    requests = prompts.high - prompts.low + ~is_prompt
    # In a tree of prompts every node has its own set of requests. With outputs, one may be that
    # of the node above: the longer prefix is the one that they share.
    same = (tree.parent > 0) & (requests == requests[tree.parent]) & (first == first[tree.parent])
    is_longest = np.ones(len(tree.parent), np.bool_)
    is_longest[tree.parent[same]] = False
    top = np.where(same, tree.parent, np.arange(len(tree.parent)))
    while (top != top[top]).any():
        top = top[top]
    whole = full_blocks(tree.end, block_tokens)
    edge = whole - whole[tree.parent[top]]
    edge[0] = 0  # the root has no parent, and is no prefix
    node = np.flatnonzero((requests > 1) & (edge > 0) & is_longest)
    by_node = np.empty(len(tree.last), np.int32)
    by_node[prompts.place] = np.arange(len(tree.last), dtype=np.int32)
    return SharedPrefixes(
        requests=requests[node].astype(np.int64),
        prefix_tokens=whole[node],
        edge_tokens=edge[node],
        first_seq=first[node],
        by_node=by_node,
        low=prompts.low[node],
        high=prompts.high[node],
    )


@kernel
def _first_requests(upcoming, first):
    """Tell the first request of the trace through each node."""
    for node in range(len(first)):
        first[node] = next_below(upcoming, node)
