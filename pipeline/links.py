"""Tokens to prefix links: for each request, an earlier one that shares the longest prefix with it.

Every request is inserted, in order, into one compressed radix tree that never evicts. Only
tokens that no earlier request had are kept; where they outgrow memory they go to disk. Where
outputs are known, a request's output is inserted right behind its prompt: then both prompts and
prompts with their outputs ("wholes") can be shared, and a whole has a link of its own.
"""

from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from pipeline.link_tree import EMPTY, LinkTree, link_batch, rehash
from pipeline.symbols import SymbolStore

Number = TypeVar("Number", bound=np.generic)


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
        self._tree = LinkTree(
            symbols=self._symbols.array,
            start=np.empty(1 << 10, np.int64),
            length=np.empty(1 << 10, np.int64),
            owner=np.empty(1 << 10, np.int64),
            keys=np.full(1 << 11, EMPTY, np.uint64),
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
        link_batch(self._tree, prompts, outputs, roots, self._requests, links)
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
            keys, values = np.full(slots, EMPTY, np.uint64), np.empty(slots, np.int32)
            rehash(tree.keys, tree.values, keys, values)
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


def grown(array: NDArray[Number], used: int, needed: int) -> NDArray[Number]:
    """Return the array, or a copy of its used part in one at least twice as large."""
    if needed <= len(array):
        return array
    larger = np.empty(max(needed, 2 * len(array)), array.dtype)
    larger[:used] = array[:used]
    return larger
