"""The readable radix tree of one replica's KV cache: online API and executable specification.

The replay kernels do the same on integers; property tests hold the two equal.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

Tokens = tuple[int, ...]


@dataclass(eq=False, slots=True)
class RadixNode:
    """One edge of the tree and what hangs below it.

    `last_access_step` is the tree's clock at the last touch; `pin_count` counts the pinned
    sequences that pass through; `queued` says that the tree's eviction queue knows the node.
    """

    tokens: Tokens = ()
    parent: "RadixNode | None" = field(default=None, repr=False)
    children: dict[int, "RadixNode"] = field(default_factory=dict, repr=False)
    last_access_step: int = 0
    pin_count: int = 0
    queued: bool = field(default=False, repr=False)

    @property
    def is_leaf(self) -> bool:
        """Tell whether nothing hangs below the node."""
        return not self.children


class _Match(NamedTuple):
    """How far a sequence is cached: whole nodes down to `node`, then `common` of `partial`."""

    node: RadixNode
    partial: RadixNode | None
    common: int
    tokens: int


class RadixKvTree:
    """Compressed radix tree of cached prompts that evicts whole leaves, least recent first.

    A sequence that is inserted with `pin=True` stays, path and all, until `release_pin`.
    An insertion that fails changes nothing.
    """

    def __init__(self, max_cached_tokens: int = 16384) -> None:
        if max_cached_tokens <= 0:
            raise ValueError("max_cached_tokens must be positive")
        self.max_cached_tokens = max_cached_tokens
        self.root = RadixNode()
        self.step_clock = 0
        self.cached_tokens = 0
        self.total_evicted_tokens = 0
        self.pinned_sequences: dict[Tokens, int] = {}
        self._pinned_tokens = 0
        self._queue: list[tuple[int, int, RadixNode]] = []
        self._queue_order = count()

    def match_prefix(self, tokens: Tokens) -> tuple[int, RadixNode]:
        """Return how many tokens are cached and the deepest node reached, and touch its path.

        A node that is matched in part counts as reached, and is touched whole.
        """
        match = self._walk(tokens)
        deepest = match.partial or match.node
        if deepest is not self.root:
            self._touch(deepest)
        return match.tokens, deepest

    def insert(self, tokens: Tokens, pin: bool = False) -> dict[str, int]:
        """Cache a sequence, evicting what is least recent, and touch its path.

        Returns matched_tokens, new_tokens and cached_tokens. Raises ValueError if the sequence
        is longer than the cache and RuntimeError if pins leave too little to evict; either way
        tree, counters and clock stay as they were.
        """
        if len(tokens) > self.max_cached_tokens:
            raise ValueError("Request length exceeds replica KV cache capacity")
        match = self._walk(tokens)
        new_tokens = len(tokens) - match.tokens
        overflow = self.cached_tokens + new_tokens - self.max_cached_tokens if new_tokens else 0
        if overflow > 0 and overflow > self._evictable_beside(match):
            raise RuntimeError(_all_pinned(overflow))
        node = match.node
        if match.partial is not None:
            node = self._split(match.partial, match.common)
        if overflow > 0:
            self._evict_beside(node, overflow)
        if new_tokens:
            node = self._attach(node, tokens[match.tokens :])
        if pin:
            self._pin(node)
            self.pinned_sequences[tokens] = self.pinned_sequences.get(tokens, 0) + 1
        self._touch(node)
        return {
            "matched_tokens": match.tokens,
            "new_tokens": new_tokens,
            "cached_tokens": self.cached_tokens,
        }

    def release_pin(self, tokens: Tokens) -> None:
        """Undo one `insert(tokens, pin=True)`; ValueError if there is none left to undo."""
        if self.pinned_sequences.get(tokens, 0) < 1:
            raise ValueError("No active pin for this sequence")
        matched, deepest = self.match_prefix(tokens)
        if matched != len(tokens):
            raise RuntimeError("Pinned sequence is missing")
        for node in self._path(deepest):
            node.pin_count -= 1
            if node.pin_count == 0:
                self._pinned_tokens -= len(node.tokens)
                self._enqueue_leaf(node)
        self.pinned_sequences[tokens] -= 1
        if self.pinned_sequences[tokens] == 0:
            del self.pinned_sequences[tokens]

    def evict_lru(self, needed_tokens: int) -> int:
        """Evict leaves, least recently touched first, until at least `needed_tokens` are free.

        Returns the tokens freed. Raises RuntimeError once only pinned nodes are left; what was
        evicted until then stays evicted.
        """
        freed = 0
        while freed < needed_tokens:
            victim = self._next_victim()
            if victim is None:
                raise RuntimeError(_all_pinned(needed_tokens))
            parent = victim.parent
            assert parent is not None
            del parent.children[victim.tokens[0]]
            self._enqueue_leaf(parent)
            self.cached_tokens -= len(victim.tokens)
            self.total_evicted_tokens += len(victim.tokens)
            freed += len(victim.tokens)
        return freed

    def _walk(self, tokens: Tokens) -> _Match:
        node, matched = self.root, 0
        while matched < len(tokens):
            child = node.children.get(tokens[matched])
            if child is None:
                break
            common = _common_length(child.tokens, tokens, matched)
            matched += common
            if common < len(child.tokens):
                return _Match(node, child, common, matched)
            node = child
        return _Match(node, None, 0, matched)

    def _path(self, node: RadixNode) -> Iterator[RadixNode]:
        """Yield the node and its ancestors, the root left out."""
        above: RadixNode | None = node
        while above is not None and above is not self.root:
            yield above
            above = above.parent

    def _touch(self, node: RadixNode) -> None:
        self.step_clock += 1
        for touched in self._path(node):
            touched.last_access_step = self.step_clock

    def _evictable_beside(self, match: _Match) -> int:
        """Return the tokens that could leave if the matched path has to stay."""
        own = sum(len(n.tokens) for n in self._path(match.node) if not n.pin_count)
        if match.partial is not None and not match.partial.pin_count:
            own += match.common
        return self.cached_tokens - self._pinned_tokens - own

    def _split(self, child: RadixNode, at: int) -> RadixNode:
        """Cut an edge after `at` tokens; the new upper part inherits recency and pins."""
        parent = child.parent
        assert parent is not None
        upper = RadixNode(child.tokens[:at], parent, {}, child.last_access_step, child.pin_count)
        parent.children[upper.tokens[0]] = upper
        child.tokens = child.tokens[at:]
        child.parent = upper
        upper.children[child.tokens[0]] = child
        return upper

    def _attach(self, parent: RadixNode, tokens: Tokens) -> RadixNode:
        leaf = RadixNode(tokens, parent, {}, self.step_clock + 1)
        parent.children[tokens[0]] = leaf
        self.cached_tokens += len(tokens)
        self._enqueue_leaf(leaf)
        return leaf

    def _pin(self, node: RadixNode) -> None:
        for pinned in self._path(node):
            if pinned.pin_count == 0:
                self._pinned_tokens += len(pinned.tokens)
            pinned.pin_count += 1

    def _evict_beside(self, node: RadixNode, needed_tokens: int) -> None:
        """Evict while the path of an insertion, which its new leaf hangs on, is held."""
        for held in self._path(node):
            held.pin_count += 1
        try:
            self.evict_lru(needed_tokens)
        finally:
            for held in self._path(node):
                held.pin_count -= 1

    def _enqueue_leaf(self, node: RadixNode) -> None:
        """Let the eviction queue know a leaf; it keeps at most one entry a node."""
        if node.is_leaf and not node.queued and node is not self.root:
            node.queued = True
            heappush(self._queue, (node.last_access_step, next(self._queue_order), node))

    def _next_victim(self) -> RadixNode | None:
        """Take the least recent unpinned leaf off the queue.

        Entries are mended when they come up: a leaf touched since goes back at its new step,
        an inner or pinned node is dropped and comes back when that ends.
        """
        while self._queue:
            step, _, node = heappop(self._queue)
            node.queued = False
            if node.pin_count or not node.is_leaf:
                continue
            if node.last_access_step == step:
                return node
            self._enqueue_leaf(node)
        return None


def _common_length(edge: Tokens, tokens: Tokens, start: int) -> int:
    window = tokens[start : start + len(edge)]
    if window == edge:
        return len(edge)
    return next(
        (i for i, (a, b) in enumerate(zip(edge, window, strict=False)) if a != b), len(window)
    )


def _all_pinned(needed_tokens: int) -> str:
    return f"Cannot evict {needed_tokens} tokens: all remaining cached nodes are pinned"
