"""The radix tree in which prefix links are found: its arrays, and the kernels that grow it."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import kernel

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_CHUNK = 16


class LinkTree(NamedTuple):
    """The never-evicting radix tree as arrays.

    symbols  uint32[distinct]  every edge is a window of it
    start    int64[nodes]      where a node's edge begins in `symbols`
    length   int64[nodes]      its length; 0 for the root of a namespace
    owner    int64[nodes]      the last request that ended at or branched off the node's end
    keys     uint64[slots]     parent node << 32 | first symbol, or all ones for a free slot
    values   int32[slots]      the child node
    used     int64[2]          nodes, symbols in use
    """

    symbols: NDArray[np.uint32]
    start: NDArray[np.int64]
    length: NDArray[np.int64]
    owner: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.int32]
    used: NDArray[np.int64]


@kernel
def find_slot(keys, key):
    """Return the slot that holds `key`, or the free one where it belongs."""
    mask = np.uint64(len(keys) - 1)
    mixed = (key ^ (key >> np.uint64(32))) * _MIX  # both halves of the key reach the slot
    slot = (mixed >> np.uint64(20)) & mask
    while keys[slot] != key and keys[slot] != EMPTY:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel(inner=True)
def _key(node, symbol):
    return (np.uint64(node) << np.uint64(32)) | np.uint64(symbol)


@kernel
def rehash(keys, values, new_keys, new_values):
    """Put all children into a table with other slots."""
    for i in range(len(keys)):
        if keys[i] != EMPTY:
            slot = find_slot(new_keys, keys[i])
            new_keys[slot] = keys[i]
            new_values[slot] = values[i]


@kernel(inner=True, inline=False)
def _common_length(a, a_start, b, b_start, most):
    """Count equal symbols from two places on: n such that a[:n] == b[:n], at most `most`.

    Sixteen at a time without a branch between them, which compiles to vector code.
    """
    n = 0
    while n + _CHUNK <= most:
        different = np.uint32(0)
        for j in range(_CHUNK):
            different |= a[a_start + n + j] ^ b[b_start + n + j]
        if different != 0:
            break
        n += _CHUNK
    while n < most and a[a_start + n] == b[b_start + n]:
        n += 1
    return n


@kernel(inner=True)
def _put_child(tree, parent, symbol, child):
    key = _key(parent, symbol)
    slot = find_slot(tree.keys, key)
    tree.keys[slot] = key
    tree.values[slot] = child


@kernel(inner=True)
def _new_node(tree, start, length, owner):
    node = tree.used[0]
    tree.used[0] += 1
    tree.start[node] = start
    tree.length[node] = length
    tree.owner[node] = owner
    return node


@kernel(inner=True)
def _split(tree, parent, child, at, owner):
    """Cut an edge after `at` symbols; the lower part keeps its number, so its children stand."""
    start = tree.start[child]
    upper = _new_node(tree, start, at, owner)
    _put_child(tree, parent, tree.symbols[start], upper)
    tree.start[child] = start + at
    tree.length[child] -= at
    _put_child(tree, upper, tree.symbols[start + at], child)
    return upper


@kernel(inner=True)
def _insert(tree, request, begin, end, root, seq):
    """Insert one request; return who shares most with it (-1), how much, and its last node.

    A node's owner becomes the request that branched off it last. The owner of the node where
    the match ends thus ends close below it, which keeps rebuilding the tree from links short.
    """
    node, at, owner = root, begin, -1
    while at < end:
        slot = find_slot(tree.keys, _key(node, request[at]))
        if tree.keys[slot] == EMPTY:
            break
        child = np.int64(tree.values[slot])
        length = tree.length[child]
        most = min(length, end - at)
        common = _common_length(tree.symbols, tree.start[child], request, at, most)
        owner = tree.owner[child]
        at += common
        node = _split(tree, node, child, common, seq) if common < length else child
        if common < length:
            break
    if at > begin:
        tree.owner[node] = seq
    if at < end:
        start = tree.used[1]
        for j in range(end - at):
            tree.symbols[start + j] = request[at + j]
        tree.used[1] += end - at
        last = _new_node(tree, start, end - at, seq)
        _put_child(tree, node, request[at], last)
        node = last
    return owner, at - begin, node


@kernel
def link_batch(tree, prompts, outputs, roots, first_seq, links):
    """Insert each prompt, and from its last node on its output, if there are outputs."""
    symbols, offsets = prompts
    output_symbols, output_offsets = outputs
    for i in range(len(roots)):
        seq, begin, end = first_seq + i, offsets[i], offsets[i + 1]
        owner, shared, last = _insert(tree, symbols, begin, end, roots[i], seq)
        links.prefix_seq[i] = owner
        links.prefix[i] = shared
        if len(links.whole_prefix) > 0:
            first, stop = output_offsets[i], output_offsets[i + 1]
            owner, shared, _ = _insert(tree, output_symbols, first, stop, last, seq)
            links.whole_prefix_seq[i] = seq if owner < 0 else owner
            links.whole_prefix[i] = end - begin + shared
