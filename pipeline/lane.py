"""Lane: one policy's way through a trace, batch after batch: replayed, written, added up."""

import time
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.config import ReplayConfig
from pipeline.decisions import DecisionWriter
from pipeline.replay import Replayer
from pipeline.replay.loop import Batch
from pipeline.totals import Totals
from pipeline.tree import TraceTree, UpcomingRequests


class Lane:
    """Replays under one policy into a run folder; a context manager. Lanes share no state."""

    def __init__(
        self,
        folder: Path,
        policy: str,
        config: ReplayConfig,
        trace: tuple[TraceTree, UpcomingRequests],
        arrival_us: NDArray[np.int64],
    ) -> None:
        replicas = config.fleet.replicas
        self._replayer = Replayer(*trace, config, policy)
        self._writer = DecisionWriter(folder, policy, arrival_us, replicas)
        self.totals = Totals(policy, replicas)
        self.replay_s = 0.0
        self.write_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        began = time.perf_counter()
        self._writer.close(whole=kind is None)
        self.write_s += time.perf_counter() - began

    def step(self, batch: Batch, prompt_tokens: NDArray[np.uint32], carried: pa.Table) -> None:
        """Do the next batch; `carried` are the trace's columns that go through unread."""
        began = time.perf_counter()
        decisions, evictions = self._replayer.replay(batch)
        replayed = time.perf_counter()
        self._writer.write(batch.first_seq, carried, prompt_tokens, decisions, evictions)
        self.totals.add(prompt_tokens, decisions)
        self.replay_s += replayed - began
        self.write_s += time.perf_counter() - replayed
