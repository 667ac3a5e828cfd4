"""Tokens to prefix links: for each request, an earlier one that shares the longest prefix with it.

Every request is inserted, in order, into one compressed radix tree that never evicts. Only
tokens that no earlier request had are kept; where they outgrow memory they go to disk.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import kernel
from pipeline.symbols import SymbolStore

_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_CHUNK = 16


class _Tree(NamedTuple):
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


class LinkFinder:
    """Finds prefix links for batches of requests that come in arrival order."""

    def __init__(self, spill_folder: Path | None = None) -> None:
        """Keep what doesn't fit into memory on the disk of `spill_folder`."""
        self._symbols = SymbolStore(spill_folder)
        self._tree = _Tree(
            symbols=self._symbols.array,
            start=np.empty(1 << 10, np.int64),
            length=np.empty(1 << 10, np.int64),
            owner=np.empty(1 << 10, np.int64),
            keys=np.full(1 << 11, _EMPTY, np.uint64),
            values=np.empty(1 << 11, np.int32),
            used=np.zeros(2, np.int64),
        )
        self._roots: dict[str | None, int] = {}
        self._requests = 0

    def link(
        self,
        symbols: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        namespaces: list[str | None] | None = None,
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return prefix_seq (-1 for none) and the shared prefix in symbols, for each request.

        Request i of the batch is `symbols[offsets[i]:offsets[i + 1]]`. A symbol is a token id,
        or one half of a 64-bit block id: the common prefix of ids is half that of their halves.
        """
        requests = len(offsets) - 1
        self._reserve(requests, int(offsets[-1] - offsets[0]), namespaces or [None])
        names = namespaces or [None] * requests
        roots = np.fromiter((self._roots[n] for n in names), np.int64, requests)
        prefix_seq = np.empty(requests, np.int64)
        prefix = np.empty(requests, np.int64)
        _link_batch(self._tree, symbols, offsets, roots, self._requests, prefix_seq, prefix)
        self._requests += requests
        self._symbols.release(int(self._tree.used[1]))
        return prefix_seq, prefix

    def _reserve(self, requests: int, symbols: int, namespaces: list[str | None]) -> None:
        """Make room for the worst case of a batch, and give new namespaces their roots."""
        nodes, kept = (int(n) for n in self._tree.used)
        fresh = [n for n in dict.fromkeys(namespaces) if n not in self._roots]
        most_nodes = nodes + len(fresh) + 2 * requests
        tree = self._tree
        slots = len(tree.keys)
        if 2 * most_nodes > slots:
            slots = 1 << (2 * most_nodes - 1).bit_length()
            keys, values = np.full(slots, _EMPTY, np.uint64), np.empty(slots, np.int32)
            _rehash(tree.keys, tree.values, keys, values)
            tree = tree._replace(keys=keys, values=values)
        self._symbols.reserve(kept, kept + symbols)
        self._tree = tree._replace(
            symbols=self._symbols.array,
            start=grown(tree.start, nodes, most_nodes),
            length=grown(tree.length, nodes, most_nodes),
            owner=grown(tree.owner, nodes, most_nodes),
        )
        for name in fresh:
            self._roots[name] = nodes
            self._tree.length[nodes] = 0
            nodes += 1
        self._tree.used[0] = nodes


def grown(array: NDArray, used: int, needed: int) -> NDArray:
    """Return the array, or a copy of its used part in one at least twice as large."""
    if needed <= len(array):
        return array
    larger = np.empty(max(needed, 2 * len(array)), array.dtype)
    larger[:used] = array[:used]
    return larger


@kernel
def _slot(keys, key):
    """Return the slot that holds `key`, or the free one where it belongs."""
    mask = np.uint64(len(keys) - 1)
    mixed = (key ^ (key >> np.uint64(32))) * _MIX  # both halves of the key reach the slot
    slot = (mixed >> np.uint64(20)) & mask
    while keys[slot] != key and keys[slot] != _EMPTY:
        slot = (slot + np.uint64(1)) & mask
    return slot


@kernel
def _key(node, symbol):
    return (np.uint64(node) << np.uint64(32)) | np.uint64(symbol)


@kernel
def _rehash(keys, values, new_keys, new_values):
    for i in range(len(keys)):
        if keys[i] != _EMPTY:
            slot = _slot(new_keys, keys[i])
            new_keys[slot] = keys[i]
            new_values[slot] = values[i]


@kernel
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


@kernel
def _put_child(tree, parent, symbol, child):
    key = _key(parent, symbol)
    slot = _slot(tree.keys, key)
    tree.keys[slot] = key
    tree.values[slot] = child


@kernel
def _new_node(tree, start, length, owner):
    node = tree.used[0]
    tree.used[0] += 1
    tree.start[node] = start
    tree.length[node] = length
    tree.owner[node] = owner
    return node


@kernel
def _split(tree, parent, child, at, owner):
    """Cut an edge after `at` symbols; the lower part keeps its number, so its children stand."""
    start = tree.start[child]
    upper = _new_node(tree, start, at, owner)
    _put_child(tree, parent, tree.symbols[start], upper)
    tree.start[child] = start + at
    tree.length[child] -= at
    _put_child(tree, upper, tree.symbols[start + at], child)
    return upper


@kernel
def _insert(tree, request, begin, end, root, seq):
    """Insert one request; return the request that shares most with it (-1), and how much.

    A node's owner becomes the request that branched off it last. The owner of the node where
    the match ends thus ends close below it, which keeps rebuilding the tree from links short.
    """
    node, at, owner = root, begin, -1
    while at < end:
        slot = _slot(tree.keys, _key(node, request[at]))
        if tree.keys[slot] == _EMPTY:
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
        _put_child(tree, node, request[at], _new_node(tree, start, end - at, seq))
    return owner, at - begin


@kernel
def _link_batch(tree, symbols, offsets, roots, first_seq, prefix_seq, prefix):
    for i in range(len(prefix)):
        begin, end = offsets[i], offsets[i + 1]
        owner, shared = _insert(tree, symbols, begin, end, roots[i], first_seq + i)
        prefix_seq[i] = owner
        prefix[i] = shared
