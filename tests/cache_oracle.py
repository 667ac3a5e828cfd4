"""The obvious caches of the engines: which blocks a replica holds, how fresh, and pinned by whom.

A path is a sequence cut into blocks, and a block is named by the path that ends with it. A
partial block is shorter than the others, so it equals no whole block and has nothing below it.
A token is a pair of namespace and id, so different namespaces share nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Token = tuple[str | None, int]
Sequenced = tuple[Token, ...]
Path = tuple[Sequenced, ...]


def common(left: Sequence[Any], right: Sequence[Any]) -> int:
    """Count the items that two sequences share from their beginning."""
    shared = 0
    while shared < min(len(left), len(right)) and left[shared] == right[shared]:
        shared += 1
    return shared


def cut(tokens: Sequenced, block_tokens: int, *, partial: bool) -> Path:
    """Cut tokens into blocks, with or without a last one that is not full."""
    blocks = [tokens[at : at + block_tokens] for at in range(0, len(tokens), block_tokens)]
    if blocks and len(blocks[-1]) < block_tokens and not partial:
        blocks.pop()
    return tuple(blocks)


def size(path: Path) -> int:
    """Count the tokens of a path."""
    return sum(map(len, path))


class Stamp(NamedTuple):
    """The number of a touch, and the request that it was for."""

    touch: int
    seq: int


class Evicted(NamedTuple):
    """Blocks path[start:], which left together, and the request that had used them last."""

    path: Path
    start: int
    last_used_seq: int


@dataclass
class Cache:
    """What the two kinds of cache have in common; all sizes in blocks."""

    capacity: int
    pins: list[Path] = field(default_factory=list)
    held: int = 0
    touches: int = 0

    def blocks(self) -> set[Path]:
        """Return every resident block."""
        raise NotImplementedError

    def paths(self) -> set[Path]:
        """Return every edge, named by its path from the beginning."""
        raise NotImplementedError

    def split(self, path: Path) -> None:
        """See that an edge ends where this resident path ends."""
        raise NotImplementedError

    def stamp(self, path: Path, stamp: Stamp) -> None:
        """Stamp whatever the walk along the path enters."""
        raise NotImplementedError

    def add(self, path: Path, start: int, stamp: Stamp) -> None:
        """Make path[start:] resident."""
        raise NotImplementedError

    def evict(self, protected: Path) -> Evicted:
        """Remove the leaf that was not used for longest, if it is not pinned or protected."""
        raise NotImplementedError

    @property
    def pinned(self) -> int:
        return sum(map(self.is_pinned, self.blocks()))

    @property
    def evictable(self) -> int:
        return len(self.blocks()) - self.pinned

    @property
    def free(self) -> int:
        return self.capacity - len(self.blocks()) - self.held

    @property
    def resident_tokens(self) -> int:
        return sum(len(block[-1]) for block in self.blocks())

    def is_pinned(self, block: Path) -> bool:
        return any(pin[: len(block)] == block for pin in self.pins)

    def resident(self, path: Path) -> int:
        """Count how many leading blocks of a path are resident, and change nothing."""
        blocks = self.blocks()
        here = 0
        while here < len(path) and path[: here + 1] in blocks:
            here += 1
        return here

    def touch(self, path: Path, seq: int) -> None:
        """Make all that the walk along the path enters the most recent."""
        self.stamp(path, self.next_stamp(seq))

    def next_stamp(self, seq: int) -> Stamp:
        self.touches += 1
        return Stamp(self.touches, seq)

    def has_room(self, needed: int, protected: Path) -> bool:
        """Say whether so many blocks are free, or would be if all went that may go."""
        beside = [
            block
            for block in self.blocks()
            if block != protected[: len(block)] and not self.is_pinned(block)
        ]
        return needed <= self.free + len(beside)

    def insert(self, path: Path, matched: int, needed: int, seq: int) -> list[Evicted]:
        """Free the needed blocks beside the matched ones, then make the path resident."""
        protected = path[:matched]
        self.split(protected)
        self.touch(protected, seq)
        evicted = []
        while self.free < needed:
            evicted.append(self.evict(protected))
        # A block beyond the match may have been resident all the time, or may just have left.
        here = self.resident(path)
        self.split(path[:here])
        stamp = self.next_stamp(seq)
        self.stamp(path, stamp)
        self.add(path, here, stamp)
        return evicted


@dataclass
class BlockCache(Cache):
    """Every block comes, ages and goes alone."""

    stamps: dict[Path, Stamp] = field(default_factory=dict)

    def blocks(self) -> set[Path]:
        return set(self.stamps)

    def paths(self) -> set[Path]:
        return self.blocks()

    def split(self, path: Path) -> None:
        """Do nothing: every block is an edge of its own."""

    def stamp(self, path: Path, stamp: Stamp) -> None:
        for end in range(1, self.resident(path) + 1):
            self.stamps[path[:end]] = stamp

    def add(self, path: Path, start: int, stamp: Stamp) -> None:
        for end in range(start + 1, len(path) + 1):
            self.stamps[path[:end]] = stamp

    def evict(self, protected: Path) -> Evicted:
        parents = {block[:-1] for block in self.stamps}
        leaves = [
            block
            for block in self.stamps
            if block not in parents
            and block != protected[: len(block)]
            and not self.is_pinned(block)
        ]
        # Equal stamps are on one path, where only the deepest block is a leaf.
        victim = min(leaves, key=lambda block: self.stamps[block].touch)
        return Evicted(victim, len(victim) - 1, self.stamps.pop(victim).seq)


@dataclass
class Edge:
    """Blocks path[start:], which age and go together."""

    path: Path
    start: int
    stamp: Stamp


@dataclass
class LeafCache(Cache):
    """A radix tree's edges, each with its whole path; edges are split, never joined."""

    edges: list[Edge] = field(default_factory=list)

    def blocks(self) -> set[Path]:
        return {
            edge.path[:end]
            for edge in self.edges
            for end in range(edge.start + 1, len(edge.path) + 1)
        }

    def paths(self) -> set[Path]:
        return {edge.path for edge in self.edges}

    def split(self, path: Path) -> None:
        for lower in self._entered(path):
            if len(lower.path) > len(path):
                self.edges.append(replace(lower, path=path))
                lower.start = len(path)

    def stamp(self, path: Path, stamp: Stamp) -> None:
        for edge in self._entered(path):
            edge.stamp = stamp

    def add(self, path: Path, start: int, stamp: Stamp) -> None:
        if start < len(path):
            self.edges.append(Edge(path, start, stamp))

    def evict(self, protected: Path) -> Evicted:
        leaves = [
            edge
            for edge in self.edges
            if not self._has_children(edge)
            and edge.path != protected[: len(edge.path)]
            and not self.is_pinned(edge.path)
        ]
        # Equal stamps are on one path, where only the deepest edge is a leaf.
        victim = min(leaves, key=lambda edge: edge.stamp.touch)
        self.edges.remove(victim)
        return Evicted(victim.path, victim.start, victim.stamp.seq)

    def _entered(self, path: Path) -> list[Edge]:
        return [edge for edge in self.edges if common(edge.path, path) > edge.start]

    def _has_children(self, edge: Edge) -> bool:
        end = len(edge.path)
        return any(other.start == end and other.path[:end] == edge.path for other in self.edges)
