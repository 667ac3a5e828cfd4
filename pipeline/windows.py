"""ReplicaWindows: what each replica did in each window of time, idle replicas included."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.replay.cost import TICKS_PER_MS
from pipeline.replay.loop import SERVED
from pipeline.replay.tokens import token_split

_MOST_WINDOWS = 100
_LENGTHS_S = (1, 5, 10, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400)
_SUMS = ("requests", "prompt_tokens", "matched_tokens", "computed_tokens", "evicted_tokens")


class ReplicaWindows:
    """Sums by window and replica; windows begin at whole multiples of their length.

    The length is the shortest of 1 s … 1 day that cuts the trace into at most 100 windows, else
    a number of days.
    """

    def __init__(self, arrival_us: NDArray[np.int64], replicas: int) -> None:
        self.length_us = _length_us(int(arrival_us[-1] - arrival_us[0]))
        self._first = int(arrival_us[0]) // self.length_us
        windows = int(arrival_us[-1]) // self.length_us - self._first + 1
        self._arrival_us = arrival_us
        shape = (windows, replicas)
        self._sums = {name: np.zeros(shape, np.int64) for name in _SUMS}
        self._max_queue = np.zeros(shape, np.int64)
        self._resident = np.full(shape, -1, np.int64)

    def add(
        self, first_seq: int, prompt_tokens: NDArray[np.uint32], decisions: NDArray[Any]
    ) -> None:
        """Add a batch of loop.DECISION rows, the next in order of seq."""
        served = decisions["outcome"] == SERVED
        arrival_us = self._arrival_us[first_seq : first_seq + len(decisions)][served]
        rows, prompts = decisions[served], prompt_tokens[served]
        place = (arrival_us // self.length_us - self._first, rows["replica_id"])
        added = {
            "requests": 1,
            "prompt_tokens": prompts,
            "evicted_tokens": rows["evicted_tokens"],
            **token_split(prompts, rows),
        }
        for name, sums in self._sums.items():
            np.add.at(sums, place, added[name])
        np.maximum.at(self._max_queue, place, rows["queue_ticks"])
        self._resident[place] = rows["resident_tokens"]  # numpy keeps the last of equal places

    def columns(self) -> dict[str, Any]:
        """Return the columns of tables.REPLICAS, by window and replica."""
        windows, replicas = self._max_queue.shape
        start_us = (self._first + np.arange(windows)) * self.length_us
        return {
            "replica_id": np.tile(np.arange(replicas), windows),
            "window_start": pa.array(np.repeat(start_us, replicas)).cast(pa.timestamp("us")),
            "window_ms": np.full(windows * replicas, self.length_us / 1e3),
            **{name: sums.ravel() for name, sums in self._sums.items()},
            "max_queue_wait_ms": self._max_queue.ravel() / TICKS_PER_MS,
            "resident_tokens": _carried_forward(self._resident).ravel(),
        }


def _length_us(span_us: int) -> int:
    for length_s in _LENGTHS_S:
        if span_us <= length_s * 1_000_000 * (_MOST_WINDOWS - 1):
            return length_s * 1_000_000
    day_us = 86_400 * 1_000_000
    return day_us * -(-span_us // (day_us * (_MOST_WINDOWS - 1)))


def _carried_forward(resident: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fill windows in which a replica served nothing (-1) with what it held before, at first 0."""
    rows = np.where(resident >= 0, np.arange(len(resident))[:, None], -1)
    latest = np.maximum.accumulate(rows, axis=0)
    held = np.take_along_axis(resident, np.maximum(latest, 0), axis=0)
    return np.where(latest >= 0, held, 0)
