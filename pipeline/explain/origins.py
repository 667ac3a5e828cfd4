"""Which request had brought what is evicted, and which evictions took what a request misses."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.explain.moment import History
from pipeline.replay.fleet import TracePaths
from pipeline.upcoming import NEVER, UpcomingRequests


class Bringer(NamedTuple):
    """The request whose prompt, or output, made tokens resident."""

    row: int
    output: bool


class Loss(NamedTuple):
    """A part of a prompt, from `start` to `end`, that was nowhere after an eviction."""

    start: int
    end: int
    eviction: Any


class Origins:
    """Tells who brought what; `before` are the witnesses of a plan, see moment.witnesses."""

    def __init__(
        self,
        paths: TracePaths,
        before: UpcomingRequests,
        history: History,
        brought: NDArray[np.int64],
    ) -> None:
        """Take Fleet.brought of the replay, too."""
        self._tree, self._before, self._history = paths.tree, before, history
        self._brought = brought
        self._members = np.argsort(before.place)

    def bringer(self, member: int, start: int, replica: int) -> Bringer | None:
        """Return who brought the first tokens of an eviction that began `start` tokens deep.

        It is the last one of the node's path on that replica that did not find them there.
        """
        if member == NEVER:
            return None
        tree, rows = self._tree, len(self._tree.last)
        node = int(tree.last[member] if member < rows else tree.whole[member - rows])
        while tree.end[tree.parent[node]] > start:
            node = int(tree.parent[node])
        below = self._members[self._before.low[node] : self._before.high[node]]
        prompts, outputs = below[below < rows], below[below >= rows] - rows
        if len(self._brought) < rows:
            outputs = outputs[:0]
        prompts = self._served(prompts, replica)
        prompts = prompts[self._history.held[prompts] <= start]
        outputs = self._served(outputs, replica)
        found_tokens = self._brought[outputs]
        outputs = outputs[(found_tokens >= 0) & (found_tokens <= start)]
        found = [
            Bringer(int(requests.max()), output)
            for requests, output in ((prompts, False), (outputs, True))
            if len(requests)
        ]
        return max(found) if found else None

    def _served(self, rows: NDArray[np.int64], replica: int) -> NDArray[np.int64]:
        there: NDArray[np.bool_] = self._history.replica[rows] == replica
        return rows[there]


def last_losses(losses: NDArray[Any], start: int, end: int, beyond: int) -> list[Loss]:
    """Return for each part of a prompt from `start` to `end` the last eviction that took it.

    `losses` are the evictions on its path, in order. What was computed beyond `end`, up to
    `beyond`, was in no whole block: it goes with the block before it.
    """
    missing, found = [(start, end)] if start < end else [], []
    for eviction in losses[::-1]:
        if not missing:
            break
        first = int(eviction["start_tokens"])
        last = first + int(eviction["asked_again_tokens"])
        left = []
        for low, high in missing:
            cut_low, cut_high = max(low, first), min(high, last)
            if cut_low >= cut_high:
                left.append((low, high))
                continue
            found.append(Loss(cut_low, beyond if cut_high == end else cut_high, eviction))
            left += [(a, b) for a, b in ((low, cut_low), (cut_high, high)) if a < b]
        missing = left
    return sorted(found, key=lambda loss: loss.start)
