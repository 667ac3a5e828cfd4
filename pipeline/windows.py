"""ReplicaWindows: what each replica did in each window of time, idle replicas included."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.kernel import NONE
from pipeline.replay.cost import TICKS_PER_MS
from pipeline.replay.tokens import Decided

_MOST_WINDOWS = 100
_LENGTHS_S = (1, 5, 10, 30, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86_400)
_SUMS = ("requests", "prompt_tokens", "matched_tokens", "computed_tokens", "evicted_tokens")


class ReplicaWindows:
    """Sums by window and replica; windows begin at whole multiples of their length.

    The length is the shortest of 1 s … 1 day that cuts the trace into at most 100 windows, else
    a number of days.
    """

    def __init__(
        self, arrival_us: NDArray[np.int64], counted: tuple[int, int], replicas: int
    ) -> None:
        """Take all arrivals, and which are the first and the last request that count."""
        first_us, last_us = (int(arrival_us[row]) for row in counted)
        self.length_us = _length_us(last_us - first_us)
        self._first = first_us // self.length_us
        windows = last_us // self.length_us - self._first + 1
        self._arrival_us = arrival_us
        shape = (windows, replicas)
        self._sums = {name: np.zeros(shape, np.int64) for name in _SUMS}
        self._max_queue = np.zeros(shape, np.int64)
        self._before = np.zeros(replicas, np.int64)
        self._before_seq = np.full(replicas, -1, np.int64)
        self._resident = np.full(shape, -1, np.int64)
        self._latest_seq = np.full(shape, -1, np.int64)

    def add(self, decided: Decided) -> None:
        """Add a batch of decisions that count, the next in order of seq."""
        served = decided.served()
        place = (self._window(served.seq), served.rows["replica_id"])
        added: dict[str, Any] = {
            "requests": 1,
            "prompt_tokens": served.prompt_tokens,
            **served.tokens,
        }
        for name, sums in self._sums.items():
            if name in added:
                np.add.at(sums, place, added[name])
        np.maximum.at(self._max_queue, place, served.rows["queue_ticks"])
        # The last of equal places stays.
        self._resident[place] = served.rows["resident_tokens"]
        self._latest_seq[place] = served.seq

    def add_warmup(self, decided: Decided) -> None:
        """Note what replicas hold after a batch that doesn't count."""
        served = decided.served()
        replicas = served.rows["replica_id"]
        self._before[replicas] = served.rows["resident_tokens"]
        self._before_seq[replicas] = served.seq

    def add_warmup_evictions(self, evictions: NDArray[Any]) -> None:
        """Note which replicas restarted before what counts; cache.EVICTION rows."""
        restarts = evictions[evictions["for_seq"] == NONE]
        after = restarts["seq"] >= self._before_seq[restarts["replica_id"]]
        self._before[restarts["replica_id"][after]] = 0

    def end(self, resident_tokens: NDArray[np.int64]) -> None:
        """Note what the replicas hold in the end."""
        self._resident[-1] = resident_tokens

    def add_evictions(self, evictions: NDArray[Any]) -> None:
        """Add cache.EVICTION rows that count."""
        place = (self._window(evictions["seq"]), evictions["replica_id"])
        np.add.at(self._sums["evicted_tokens"], place, evictions["evicted_tokens"])
        restarts = evictions[evictions["for_seq"] == NONE]
        place = (self._window(restarts["seq"]), restarts["replica_id"])
        after = restarts["seq"] >= self._latest_seq[place]
        self._resident[place[0][after], place[1][after]] = 0

    def _window(self, seq: NDArray[np.int64]) -> NDArray[np.int64]:
        window: NDArray[np.int64] = self._arrival_us[seq] // self.length_us - self._first
        return window

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
            "resident_tokens": _carried_forward(self._resident, self._before).ravel(),
        }


def _length_us(span_us: int) -> int:
    for length_s in _LENGTHS_S:
        if span_us <= length_s * 1_000_000 * (_MOST_WINDOWS - 1):
            return length_s * 1_000_000
    day_us = 86_400 * 1_000_000
    return day_us * -(-span_us // (day_us * (_MOST_WINDOWS - 1)))


def _carried_forward(resident: NDArray[np.int64], before: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fill windows in which a replica served nothing (-1) with what it held before."""
    rows = np.where(resident >= 0, np.arange(len(resident))[:, None], -1)
    latest = np.maximum.accumulate(rows, axis=0)
    held = np.take_along_axis(resident, np.maximum(latest, 0), axis=0)
    return np.where(latest >= 0, held, before)
