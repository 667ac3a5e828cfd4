"""Plan: a trace and a configuration made ready to be replayed, as a run and `explain` do."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.config import TICKS_PER_MS, EngineConfig, ReplayConfig
from pipeline.errors import UsageError
from pipeline.joined import joined_trace
from pipeline.prepare import ready_trace
from pipeline.replay import trace_paths
from pipeline.replay.fleet import TracePaths
from pipeline.replay.loop import Batch
from pipeline.subset import chosen_requests
from pipeline.trace.checks import TraceColumns
from pipeline.trace.reader import TraceFile, carried_names

_TICKS_PER_US = 10
_MOST_TICKS = 2**62


class Step(NamedTuple):
    """The next requests that are replayed, and the trace's columns that go through unread."""

    batch: Batch
    carried: pa.Table


@dataclass(frozen=True)
class Plan:
    """All that a replay needs. Rows of the warm-up trace come first, where there is one.

    trace          the linked trace
    columns        its columns that decide a replay
    config         the configuration, its engine resolved for this trace
    clock          the clock that is used
    chosen         bool[rows]   the rows that are replayed
    first          row of the first request of the trace itself
    counted        row of the first request that counts
    paths          the trace tree, as the engine keeps it
    clock_ticks    int64[rows]  how far queues have drained when each request comes
    without_output_tokens  requests of which it is not known when they complete, if that matters
    link_s, tree_s seconds that links and tree took
    """

    trace: TraceFile
    columns: TraceColumns
    config: ReplayConfig
    clock: str
    chosen: NDArray[np.bool_]
    first: int
    counted: int
    paths: TracePaths
    clock_ticks: NDArray[np.int64]
    without_output_tokens: int
    link_s: float
    tree_s: float

    def steps(self, rows: int) -> Iterator[Step]:
        """Yield all requests that are replayed, from `rows` rows of the trace at a time."""
        first, columns = 0, self.columns
        decode_ms = self.config.cost.decode_ms_per_token
        for table in self.trace.batches([*carried_names(), "output_tokens"], rows):
            here = slice(first, first + len(table))
            chosen = self.chosen[here]
            carried = table if chosen.all() else table.filter(pa.array(chosen))
            first += len(table)
            if len(carried):
                batch = Batch(
                    seq=here.start + np.flatnonzero(chosen),
                    prompt_tokens=columns.prompt_tokens[here][chosen].astype(np.int64),
                    first_token_id=columns.first_token_id[here][chosen],
                    clock_ticks=self.clock_ticks[here][chosen],
                    decode_ticks=_decode_ticks(carried, decode_ms),
                )
                yield Step(batch, carried)


@contextmanager
def planned(trace_path: Path, config: ReplayConfig) -> Iterator[Plan]:
    """Open a trace, with its warm-up, and plan its replay.

    Raises UsageError where settings contradict each other or the trace, TraceError for the trace.
    """
    _check_settings(config)
    began = time.perf_counter()
    engine = _resolved(config, TraceFile.open(trace_path))
    with ExitStack() as stack:
        first = 0
        if config.subset.warmup is None:
            trace = stack.enter_context(ready_trace(trace_path))
        else:
            joined = joined_trace(Path(config.subset.warmup), trace_path)
            trace, first = stack.enter_context(joined)
        columns = trace.columns()
        if engine.cache_output and not columns.has_outputs:
            raise _no_outputs(Path(str(config.subset.warmup)))
        chosen = chosen_requests(trace, config.subset, first)
        clock = _clock(config, columns.arrival_us[first:][chosen[first:]])
        if first and not chosen[:first].any():
            raise UsageError(
                f"{config.subset.warmup}: where and sample leave none of its {first:,} requests to"
                " warm up with: they hold for both traces"
            )
        linked = time.perf_counter()
        yield Plan(
            trace=trace,
            columns=columns,
            config=replace(config, engine=engine),
            clock=clock,
            chosen=chosen,
            first=first,
            counted=_first_counted(chosen, first, config.subset.warmup_fraction),
            paths=trace_paths(columns.links, columns.wholes, engine, chosen),
            clock_ticks=_clock_ticks(config, clock, columns, chosen),
            without_output_tokens=_without_output_tokens(trace, chosen, engine),
            link_s=linked - began,
            tree_s=time.perf_counter() - linked,
        )


def _check_settings(config: ReplayConfig) -> None:
    """Raise UsageError for settings that contradict each other whatever the trace."""
    engine = config.engine
    if (
        engine.in_flight == "pins"
        and engine.when_full == "wait"
        and config.clock.clock == "arrivals"
    ):
        raise _no_clock()


def _no_clock() -> UsageError:
    return UsageError(
        "when-full wait needs a clock: with the clock arrivals no request completes between two"
        " others; give --clock timestamps for a trace with times, or --when-full reject"
    )


def _resolved(config: ReplayConfig, trace: TraceFile) -> EngineConfig:
    """Return the engine's settings for this trace; UsageError if they don't go together."""
    engine, own = config.engine, trace.metadata.block_tokens
    if engine.cache_output and not (trace.has_outputs or trace.has_output_ids):
        raise _no_outputs(trace.path)
    if own and engine.own_blocks:
        engine = replace(engine, block_tokens=own)
    elif own and engine.block_tokens > 1 and engine.block_tokens % own:
        raise UsageError(
            f"{trace.path}: block-tokens is {engine.block_tokens}, but the trace knows only"
            f" blocks of {own} tokens: give a multiple of {own}"
        )
    if config.fleet.capacity_tokens < engine.block_tokens:
        raise UsageError(
            f"capacity-tokens is {config.fleet.capacity_tokens}: that is less than one block of"
            f" {engine.block_tokens} tokens"
        )
    return engine


def _no_outputs(path: Path) -> UsageError:
    return UsageError(
        f"{path}: cache-output needs the token ids of the outputs, and the trace has none:"
        " make it with: replay tokenize --output-ids"
    )


def _first_counted(chosen: NDArray[np.bool_], first: int, fraction: float) -> int:
    """Return the row of the first request that counts, after that share of the trace's own."""
    own = np.flatnonzero(chosen[first:])
    return first + int(own[int(Fraction(str(fraction)) * len(own))])


def _clock(config: ReplayConfig, arrival_us: NDArray[np.int64]) -> str:
    """Return the clock of a run: as asked, else timestamps where the arrivals differ."""
    differ = arrival_us[0] < arrival_us[-1]
    clock = config.clock.clock or ("timestamps" if differ else "arrivals")
    engine = config.engine
    if clock == "arrivals" and engine.in_flight == "pins" and engine.when_full == "wait":
        raise _no_clock()
    return clock


def _clock_ticks(
    config: ReplayConfig, clock: str, columns: TraceColumns, chosen: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Return how far queues have drained when each request comes, in ticks since the start.

    An empty prompt is rejected before anything happens, so it drains no queue by arriving.
    Raises UsageError if times of this run could pass what 64 bits hold.
    """
    span_us = int(columns.arrival_us[-1]) - int(columns.arrival_us[0])
    longest = max(span_us * _TICKS_PER_US, len(columns.arrival_us) * config.clock.decay_ticks)
    dearest = max(config.cost.prefill_ms_per_token, config.cost.lookup_ms_per_token)
    work = int(columns.prompt_tokens.sum(dtype=np.uint64)) * int(dearest * TICKS_PER_MS + 1)
    output = 2**32 * int(config.cost.decode_ms_per_token * TICKS_PER_MS + 1)
    if longest + work + output >= _MOST_TICKS:
        raise UsageError(
            "the trace's time span, or costs and decay times its requests, pass what 64 bits of"
            " 0.0001 ms hold: give smaller ones"
        )
    if clock == "timestamps":
        elapsed_us: NDArray[np.int64] = columns.arrival_us - columns.arrival_us[0]
        return elapsed_us * _TICKS_PER_US
    routed = np.cumsum((columns.prompt_tokens > 0) & chosen, dtype=np.int64)
    return routed * config.clock.decay_ticks


def _without_output_tokens(
    trace: TraceFile, chosen: NDArray[np.bool_], engine: EngineConfig
) -> int:
    """Count the requests that are in flight for no longer than their first token."""
    if engine.in_flight == "none":
        return 0
    known, first = np.zeros(trace.rows, np.bool_), 0
    for table in trace.batches(["seq", "output_tokens"], 1 << 20):
        if "output_tokens" in table.column_names:
            known[first : first + len(table)] = table["output_tokens"].is_valid().to_numpy()
        first += len(table)
    return int((chosen & ~known).sum())


def _decode_ticks(carried: pa.Table, decode_ms_per_token: float) -> NDArray[np.int64]:
    """Return how long each output takes, rounded to ticks; one that is not known takes none."""
    if "output_tokens" not in carried.column_names:
        return np.zeros(len(carried), np.int64)
    outputs = carried["output_tokens"].fill_null(0).to_numpy()
    ticks: NDArray[np.int64] = np.rint(outputs * decode_ms_per_token * TICKS_PER_MS).astype(
        np.int64
    )
    return ticks
