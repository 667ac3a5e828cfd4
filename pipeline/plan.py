"""Plan: a trace and a configuration made ready to be replayed, as a run and `explain` do."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.absences import Clock, fleet_changes
from pipeline.config import EngineConfig, ReplayConfig, SubsetConfig
from pipeline.errors import UsageError
from pipeline.joined import joined_trace
from pipeline.prepare import ready_trace
from pipeline.replay import find_policy, trace_paths
from pipeline.replay.fleet import TracePaths
from pipeline.replay.records import ACTIVE, LOAD, SESSION
from pipeline.replay.router import Batch
from pipeline.sessions import session_names
from pipeline.subset import check_subset, chosen_requests
from pipeline.times import (
    Outputs,
    check_clock,
    chosen_clock,
    clock_ticks,
    count_outputs,
    output_tokens,
)
from pipeline.trace.checks import TraceColumns
from pipeline.trace.reader import TraceFile, carried_names


class Step(NamedTuple):
    """The next requests that are replayed, and the trace's columns that go through unread."""

    batch: Batch
    carried: pa.Table


@dataclass(frozen=True)
class Plan:
    """All that a replay needs. Rows of the warm-up trace come first, where there is one.

    trace          the linked trace, with the warm-up trace before it
    own            the trace without that, which has the columns of the contract
    columns        its columns that decide a replay
    config         the configuration, its engine resolved for this trace
    clock          the clock that is used
    chosen         bool[rows]   the rows that are replayed
    rank           int64[rows]  how many of these there are down to each row
    first          row of the first request of the trace itself
    counted        row of the first request that counts
    paths          the trace tree, as the engine keeps it
    clock_ticks    int64[rows]  how far queues have drained when each request comes
    changes        records.CHANGE: when replicas go away and return
    unmet_absences  how many absences no request of the trace meets
    needs          all that any of the policies needs, see records.LOAD
    completes      whether it matters when requests complete
    without_output_tokens  requests of which it is not known when they complete, if that matters
    link_s, tree_s seconds that links and tree took
    """

    trace: TraceFile
    own: TraceFile
    columns: TraceColumns
    config: ReplayConfig
    clock: str
    chosen: NDArray[np.bool_]
    rank: NDArray[np.int64]
    first: int
    counted: int
    paths: TracePaths
    clock_ticks: NDArray[np.int64]
    changes: NDArray[Any]
    unmet_absences: int
    needs: int
    completes: bool
    without_output_tokens: int
    link_s: float
    tree_s: float

    def steps(self, rows: int) -> Iterator[Step]:
        """Yield all requests that are replayed, from `rows` rows of the trace at a time."""
        first, columns = 0, self.columns
        outputs = ["output_tokens"] if self.completes else []
        for table in self.trace.batches([*carried_names(), *outputs], rows):
            here = slice(first, first + len(table))
            chosen = self.chosen[here]
            carried = table if chosen.all() else table.filter(pa.array(chosen))
            first += len(table)
            if len(carried):
                nobody = np.zeros(len(carried), np.uint64)
                batch = Batch(
                    seq=here.start + np.flatnonzero(chosen),
                    prompt_tokens=columns.prompt_tokens[here][chosen].astype(np.int64),
                    first_token_id=columns.first_token_id[here][chosen],
                    clock_ticks=self.clock_ticks[here][chosen],
                    output_tokens=output_tokens(carried),
                    session=session_names(carried) if self.needs & SESSION else nobody,
                )
                yield Step(batch, carried)


@contextmanager
def planned(trace_path: Path, config: ReplayConfig) -> Iterator[Plan]:
    """Open a trace, with its warm-up, and plan its replay.

    Raises UsageError where settings contradict each other or the trace, TraceError for the trace.
    """
    began = time.perf_counter()
    engine = _checked(trace_path, config)
    with ExitStack() as stack:
        own = stack.enter_context(ready_trace(trace_path))
        trace, first = _with_warmup(stack, own, trace_path, config.subset)
        columns = trace.columns()
        _check_output_links(engine, columns, trace_path)
        chosen = _chosen(trace, config.subset, first)
        clock = chosen_clock(config, columns.arrival_us[first:][chosen[first:]])
        needs = _needs(config)
        completes = _completes(config, engine, needs)
        known = chosen & (columns.prompt_tokens > 0)
        outputs = count_outputs(trace, known) if completes else Outputs(0, 0)
        ticks = clock_ticks(config, clock, columns, chosen, outputs.tokens)
        changes, unmet = fleet_changes(config.fleet, Clock(clock, columns.arrival_us, ticks, first))
        linked = time.perf_counter()
        yield Plan(
            trace=trace,
            own=own,
            columns=columns,
            config=replace(config, engine=engine),
            clock=clock,
            chosen=chosen,
            rank=np.cumsum(chosen, dtype=np.int64),
            first=first,
            counted=_first_counted(chosen, first, config.subset.warmup_fraction),
            paths=trace_paths(columns.links, columns.wholes, engine, chosen),
            clock_ticks=ticks,
            changes=changes,
            unmet_absences=unmet,
            needs=needs,
            completes=completes,
            without_output_tokens=outputs.unknown,
            link_s=linked - began,
            tree_s=time.perf_counter() - linked,
        )


def _checked(trace_path: Path, config: ReplayConfig) -> EngineConfig:
    """Return the engine's settings for this trace; UsageError for what can be told so early."""
    check_clock(config.engine, config.clock.clock)
    opened, subset = TraceFile.open(trace_path), config.subset
    engine = _resolved(config, opened)
    if subset.warmup is not None or not opened.linked:
        check_subset(subset)
    if subset.warmup is not None:
        _check_outputs(engine, TraceFile.open(Path(subset.warmup)))
    return engine


def _with_warmup(
    stack: ExitStack, own: TraceFile, path: Path, subset: SubsetConfig
) -> tuple[TraceFile, int]:
    """Return the trace with its warm-up trace before it, if there is one, and its own first row."""
    if subset.warmup is None:
        return own, 0
    return stack.enter_context(joined_trace(Path(subset.warmup), path))


def _completes(config: ReplayConfig, engine: EngineConfig, needs: int) -> bool:
    """Tell whether it matters when requests complete."""
    follows = needs & (LOAD | ACTIVE) != 0
    return follows or engine.in_flight != "none" or bool(config.fleet.absences)


def _needs(config: ReplayConfig) -> int:
    """Return all that any of the policies needs."""
    needs = 0
    for policy in config.policies:
        needs |= find_policy(policy, config.routing).policy.needs
    return needs


def _resolved(config: ReplayConfig, trace: TraceFile) -> EngineConfig:
    """Return the engine's settings for this trace; UsageError if they don't go together."""
    engine, own = config.engine, trace.metadata.block_tokens
    _check_outputs(engine, trace)
    if own and engine.own_blocks:
        engine = replace(engine, block_tokens=own)
    elif own and engine.block_tokens > 1 and engine.block_tokens % own:
        raise UsageError(
            f"{trace.path}: block-tokens is {engine.block_tokens}, but the trace knows only"
            f" blocks of {own} tokens: give a multiple of {own}"
        )
    for member in config.fleet.members:
        if member.capacity_tokens < engine.block_tokens:
            raise UsageError(
                f"capacity-tokens is {member.capacity_tokens}: that is less than one block of"
                f" {engine.block_tokens} tokens"
            )
    return engine


def _check_outputs(engine: EngineConfig, trace: TraceFile) -> None:
    if engine.cache_output and not (trace.has_outputs or trace.has_output_ids):
        raise UsageError(
            f"{trace.path}: cache-output needs the token ids of the outputs, and the trace has"
            " none: make it with: replay tokenize --output-ids"
        )


def _check_output_links(engine: EngineConfig, columns: TraceColumns, path: Path) -> None:
    if engine.cache_output and not columns.has_outputs:
        raise UsageError(
            f"{path}: cache-output needs links of its outputs, and it has none: make them with:"
            f" replay link {path} -o NEW.parquet"
        )


def _chosen(trace: TraceFile, subset: SubsetConfig, first: int) -> NDArray[np.bool_]:
    """Return which rows are replayed; UsageError if a warm-up trace is left with none."""
    chosen = chosen_requests(trace, subset, first)
    if first and not chosen[:first].any():
        raise UsageError(
            f"{subset.warmup}: where and sample leave none of its {first:,} requests to warm up"
            " with: they hold for both traces"
        )
    return chosen


def _first_counted(chosen: NDArray[np.bool_], first: int, fraction: float) -> int:
    """Return the row of the first request that counts, after that share of the trace's own."""
    own = np.flatnonzero(chosen[first:])
    return first + int(own[int(Fraction(str(fraction)) * len(own))])
