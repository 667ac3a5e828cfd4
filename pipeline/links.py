"""Tokens to prefix links: for each request, an earlier one that shares the longest prefix with it.

Every request is inserted, in order, into one compressed radix tree that never evicts. Only
tokens that no earlier request had are kept; where they outgrow memory they go to disk. Where
outputs are known, a request's output is inserted right behind its prompt: then both prompts and
prompts with their outputs ("wholes") can be shared, and a whole has a link of its own.
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


class Links(NamedTuple):
    """What requests share with earlier ones, int64, one item a request.

    prefix_seq        the earlier request that shares most with the prompt, -1 for none
    prefix            how many symbols they share
    whole_prefix_seq  the same for prompt + output; the request itself where nobody shares
    whole_prefix      more than its prompt. Both are empty if no outputs were given
    """

    prefix_seq: NDArray[np.int64]
    prefix: NDArray[np.int64]
    whole_prefix_seq: NDArray[np.int64]
    whole_prefix: NDArray[np.int64]


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
        links = self.link_wholes(symbols, offsets, symbols[:0], offsets[:0], namespaces)
        return links.prefix_seq, links.prefix

    def link_wholes(
        self,
        symbols: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        output_symbols: NDArray[np.uint32],
        output_offsets: NDArray[np.int64],
        namespaces: list[str | None] | None = None,
    ) -> Links:
        """Return the links of prompts and of prompts + outputs; prompts can reach into both.

        Outputs are told as prompts are; without any offsets there are none.
        """
        requests, wholes = len(offsets) - 1, max(len(output_offsets) - 1, 0)
        most = int(offsets[-1] - offsets[0])
        most += int(output_offsets[-1] - output_offsets[0]) if wholes else 0
        self._reserve(requests + wholes, most, namespaces or [None])
        names = namespaces or [None] * requests
        roots = np.fromiter((self._roots[n] for n in names), np.int64, requests)
        links = Links(*(np.empty(n, np.int64) for n in (requests, requests, wholes, wholes)))
        prompts, outputs = (symbols, offsets), (output_symbols, output_offsets)
        _link_batch(self._tree, prompts, outputs, roots, self._requests, links)
        self._requests += requests
        self._symbols.release(int(self._tree.used[1]))
        return links

    def _reserve(self, insertions: int, symbols: int, namespaces: list[str | None]) -> None:
        """Make room for the worst case of a batch, and give new namespaces their roots."""
        nodes, kept = (int(n) for n in self._tree.used)
        fresh = [n for n in dict.fromkeys(namespaces) if n not in self._roots]
        most_nodes = nodes + len(fresh) + 2 * insertions
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
    """Insert one request; return who shares most with it (-1), how much, and its last node.

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
        last = _new_node(tree, start, end - at, seq)
        _put_child(tree, node, request[at], last)
        node = last
    return owner, at - begin, node


@kernel
def _link_batch(tree, prompts, outputs, roots, first_seq, links):
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
