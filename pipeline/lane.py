"""Lane: one policy's way through a trace, batch after batch: replayed, written, added up."""

import time
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.decisions import DecisionWriter
from pipeline.errors import PolicyError
from pipeline.plan import Plan, Step
from pipeline.replay import Replayer
from pipeline.replay.tokens import Decided, token_split
from pipeline.totals import Totals
from pipeline.windows import ReplicaWindows


class Done(NamedTuple):
    """What is left of a replay under one policy and seed: sums, and seconds that it took."""

    policy: str
    seed: int
    totals: Totals
    requests: int
    replay_s: float
    write_s: float


class Lane:
    """Replays under one policy and seed into a run folder; a context manager.

    Lanes share no state.
    """

    def __init__(self, folder: Path, policy: str, plan: Plan, seed: int) -> None:
        replicas = plan.config.fleet.replicas
        self._plan = plan
        self._replayer = Replayer(plan.paths, plan.config, policy, seed, plan.changes)
        self._writer = DecisionWriter(folder, policy, plan, self._replayer)
        counted = (plan.counted, int(np.flatnonzero(plan.chosen)[-1]))
        self._windows = ReplicaWindows(plan.columns.arrival_us, counted, replicas)
        self.totals = Totals(policy, replicas)
        self.policy, self.seed = policy, seed
        self.requests = 0
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
        self._writer.close(self._windows if kind is None else None)
        self.write_s += time.perf_counter() - began

    def step(self, step: Step) -> None:
        """Do the next batch."""
        began = time.perf_counter()
        try:
            rows, evictions = self._replayer.replay(step.batch)
        except PolicyError as error:
            raise self._named(error, step) from error
        replayed = time.perf_counter()
        batch, block_tokens = step.batch, self._plan.config.engine.block_tokens
        split = token_split(batch.prompt_tokens, rows, block_tokens)
        decided = Decided(batch.seq, batch.prompt_tokens, rows, split)
        first, counted = np.searchsorted(batch.seq, (self._plan.first, self._plan.counted))
        self._writer.write(step.carried.slice(first), decided.part(slice(first, None)))
        self._windows.add_warmup(decided.part(slice(0, counted)))
        for table in (self.totals, self._windows):
            table.add(decided.part(slice(counted, None)))
        self._add_evictions(evictions)
        self.requests += len(rows)
        self.replay_s += replayed - began
        self.write_s += time.perf_counter() - replayed

    def finish(self) -> None:
        """Let the requests in flight complete."""
        self._add_evictions(self._replayer.finish())
        for table in (self.totals, self._windows):
            table.end(self._replayer.fleet.replicas["resident_tokens"])

    def done(self) -> Done:
        """Return what is to be kept when the lane, with its fleet, is let go."""
        return Done(self.policy, self.seed, self.totals, self.requests, self.replay_s, self.write_s)

    def _named(self, error: PolicyError, step: Step) -> PolicyError:
        """Return the error with the name of its request."""
        place = int(np.searchsorted(step.batch.seq, error.seq))
        name = step.carried["request_id"][place].as_py()
        seq = error.seq - self._plan.first
        where = f"seq {seq}" if seq >= 0 else "of the warm-up trace"
        return PolicyError(f"request {name} ({where}): {error}", error.seq)

    def _add_evictions(self, evictions: NDArray[Any]) -> None:
        self._writer.write_evictions(evictions[evictions["seq"] >= self._plan.first])
        counts = evictions["seq"] >= self._plan.counted
        self._windows.add_warmup_evictions(evictions[~counts])
        counted = evictions[counts]
        for table in (self.totals, self._windows):
            table.add_evictions(counted)
