"""Prefix links to the trace's radix tree: no token is read.

Every end of a request and every branch is a node boundary, so what a replica holds is always a
set of whole nodes, the tail of an edge at times cut within one.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import NONE, kernel


class TraceTree(NamedTuple):
    """The compressed radix tree of a whole trace; node 0 is the root.

    parent  int32[nodes]     node above; -1 for the root
    end     int64[nodes]     depth in tokens at which the node ends; it begins at its parent's end
    last    int32[requests]  node at which ends what is kept of a prompt, 0 if that is nothing
    key     int32[requests]  node at which ends what a look-up may find of it
    whole   int32[requests]  node at which ends what is kept of prompt + output; empty if the
                             trace has no outputs
    """

    parent: NDArray[np.int32]
    end: NDArray[np.int64]
    last: NDArray[np.int32]
    key: NDArray[np.int32]
    whole: NDArray[np.int32]


class Wholes(NamedTuple):
    """Links of prompt + output, one item a request; empty arrays for a trace without outputs."""

    tokens: NDArray[np.uint32]
    prefix_seq: NDArray[np.int64]
    prefix_tokens: NDArray[np.uint32]


class BlockRules(NamedTuple):
    """How a cache cuts sequences; the default keeps every token.

    block_tokens          only whole blocks of so many tokens are shared
    keep_partial          a last block that is not full is kept too, for the same sequence alone
    recompute_last_token  a look-up leaves a prompt's last token; an output's last is never kept
    """

    block_tokens: int = 1
    keep_partial: bool = False
    recompute_last_token: bool = False


_NONE = np.zeros(0, np.int32)
_NO_TREE = TraceTree(_NONE, np.zeros(0, np.int64), _NONE, _NONE, _NONE)
EVERY_TOKEN = BlockRules()
NO_WHOLES = Wholes(np.zeros(0, np.uint32), np.zeros(0, np.int64), np.zeros(0, np.uint32))


def build_tree(
    prompt_tokens: NDArray[np.uint32],
    prefix_seq: NDArray[np.int64],
    prefix_tokens: NDArray[np.uint32],
    wholes: Wholes = NO_WHOLES,
    rules: BlockRules = EVERY_TOKEN,
    tokens: TraceTree | None = None,
) -> TraceTree:
    """Build the trace's radix tree from its links, each an array of one item a request.

    prefix_seq is -1 for none. Links must be lawful, as `trace.check_links` ensures. `tokens` is
    the tree by tokens of the same links, which tells equal sequences: needed to keep partial
    blocks.
    """
    requests, outputs = len(prompt_tokens), len(wholes.tokens)
    room = (2 + rules.recompute_last_token + rules.keep_partial) * (requests + outputs) + 1
    parent, end = np.empty(room, np.int32), np.empty(room, np.int64)
    parent[0], end[0] = NONE, 0
    last, key = np.empty(requests, np.int32), np.empty(requests, np.int32)
    whole, spine = np.empty(outputs, np.int32), np.empty(outputs, np.int32)
    nodes = np.ones(1, np.int64)
    growing = _Growing(parent, end, nodes)
    tree = TraceTree(parent, end, last, key, whole)
    partial = tokens if tokens and rules.keep_partial else _NO_TREE
    twins = np.full(len(partial.parent), NONE, np.int32)
    links = _Links(prompt_tokens, prefix_seq, prefix_tokens, wholes)
    _build(growing, links, rules, tree, spine, partial, twins)
    used = int(nodes[0])
    return tree._replace(parent=parent[:used].copy(), end=end[:used].copy())


class _Growing(NamedTuple):
    parent: NDArray[np.int32]
    end: NDArray[np.int64]
    nodes: NDArray[np.int64]


class _Links(NamedTuple):
    prompt_tokens: NDArray[np.uint32]
    prefix_seq: NDArray[np.int64]
    prefix_tokens: NDArray[np.uint32]
    wholes: Wholes


@kernel
def _build(growing, links, rules, tree, spine, tokens, twins):
    """Hang each sequence below the node that spans its prefix.

    `spine` is the node at which an uncut prompt + output ends, in whole blocks.
    """
    block, last = rules.block_tokens, tree.last
    for i in range(len(last)):
        total, shared = np.int64(links.prompt_tokens[i]), np.int64(links.prefix_tokens[i])
        above = 0
        if shared > 0:
            earlier = links.prefix_seq[i]
            inside = shared <= np.int64(links.prompt_tokens[earlier])
            above = last[earlier] if inside else spine[earlier]
        node = _hang(growing, above, shared // block * block, total // block * block)
        last[i] = node
        tree.key[i] = node
        if rules.keep_partial and total % block > 0:
            last[i] = _partial(growing, node, total, tokens.last[i], twins)
            tree.key[i] = last[i]
        if rules.recompute_last_token and total > 0:
            tree.key[i] = _at(growing, node, (total - 1) // block * block)
        if len(spine) == 0:
            continue
        total, shared = np.int64(links.wholes.tokens[i]), np.int64(links.wholes.prefix_tokens[i])
        earlier = links.wholes.prefix_seq[i]
        above = last[i] if earlier == i else spine[earlier]
        spine[i] = _hang(growing, above, shared // block * block, total // block * block)
        tree.whole[i] = spine[i]
        if rules.recompute_last_token and total > links.prompt_tokens[i]:
            total -= 1
            tree.whole[i] = _at(growing, spine[i], total // block * block)
        if rules.keep_partial and total % block > 0:
            tree.whole[i] = _partial(growing, tree.whole[i], total, tokens.whole[i], twins)


@kernel(inner=True)
def _hang(growing, above, shared, total):
    """Return the node where a sequence of `total` tokens ends, `shared` of them above."""
    node = _at(growing, above, shared)
    return node if total <= shared else _new_node(growing, node, total)


@kernel(inner=True)
def _at(growing, node, depth):
    """Return the node on the way up from `node` that ends at `depth`, cutting the one across it.

    The lower part keeps its number, so that what ends there stands.
    """
    parent, end = growing.parent, growing.end
    if depth == 0:
        return np.int64(0)
    while end[parent[node]] >= depth:
        node = parent[node]
    if end[node] > depth:
        upper = _new_node(growing, parent[node], depth)
        parent[node] = upper
        node = upper
    return np.int64(node)


@kernel(inner=True)
def _new_node(growing, above, end):
    node = growing.nodes[0]
    growing.nodes[0] += 1
    growing.parent[node], growing.end[node] = above, end
    return node


@kernel(inner=True)
def _partial(growing, above, total, sequence, twins):
    """Return the node of a partial block, the same for all that are the same `sequence`."""
    if twins[sequence] == NONE:
        twins[sequence] = _new_node(growing, above, total)
    return np.int64(twins[sequence])
