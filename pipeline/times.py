"""When requests come and complete, in ticks of 0.0001 ms since the start."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.config import TICKS_PER_MS, EngineConfig, ReplayConfig
from pipeline.errors import UsageError
from pipeline.trace.checks import TraceColumns
from pipeline.trace.reader import TraceFile

_TICKS_PER_US = 10
_MOST_TICKS = 2**62
_MOST_WORK_TICKS = 2**53  # scores are 64-bit floats, and exact up to this


def check_clock(engine: EngineConfig, clock: str | None) -> None:
    """Raise UsageError if requests would wait where no time passes."""
    if clock == "arrivals" and engine.in_flight == "pins" and engine.when_full == "wait":
        raise UsageError(
            "when-full wait needs a clock: with the clock arrivals no request completes between"
            " two others; give --clock timestamps for a trace with times, or --when-full reject"
        )


def chosen_clock(config: ReplayConfig, arrival_us: NDArray[np.int64]) -> str:
    """Return the clock of a run: as asked, else timestamps where the arrivals differ."""
    differ = arrival_us[0] < arrival_us[-1]
    clock = config.clock.clock or ("timestamps" if differ else "arrivals")
    check_clock(config.engine, clock)
    return clock


def clock_ticks(
    config: ReplayConfig,
    clock: str,
    columns: TraceColumns,
    chosen: NDArray[np.bool_],
    output_tokens: int,
) -> NDArray[np.int64]:
    """Return how far queues have drained when each request comes, in ticks since the start.

    An empty prompt is rejected before anything happens, so it drains no queue by arriving.
    Raises UsageError if times of this run could pass what 64 bits hold.
    """
    span_us = int(columns.arrival_us[-1]) - int(columns.arrival_us[0])
    longest = max(span_us * _TICKS_PER_US, len(columns.arrival_us) * config.clock.decay_ticks)
    slowest = min(member.speed for member in config.fleet.members)
    dearest = max(config.cost.prefill_ms_per_token, config.cost.lookup_ms_per_token) / slowest
    work = int(columns.prompt_tokens.sum(dtype=np.uint64)) * int(dearest * TICKS_PER_MS + 1)
    decode = config.cost.decode_ms_per_token / slowest
    decode_work = output_tokens * int(decode * TICKS_PER_MS + 1)
    if longest + work + decode_work >= _MOST_TICKS or work >= _MOST_WORK_TICKS:
        raise UsageError(
            "the trace's time span, or costs and decay times its requests, pass what 64 bits of"
            " 0.0001 ms hold: give smaller ones"
        )
    if clock == "timestamps":
        elapsed_us: NDArray[np.int64] = columns.arrival_us - columns.arrival_us[0]
        return elapsed_us * _TICKS_PER_US
    routed = np.cumsum((columns.prompt_tokens > 0) & chosen, dtype=np.int64)
    return routed * config.clock.decay_ticks


class Outputs(NamedTuple):
    """Output tokens of all requests, and how many requests don't say how many they had."""

    tokens: int
    unknown: int


def count_outputs(trace: TraceFile, counted: NDArray[np.bool_]) -> Outputs:
    """Count what decides when requests complete.

    `counted` are the requests of which to say how many don't tell.
    """
    tokens, known, first = 0, np.zeros(trace.rows, np.bool_), 0
    for table in trace.batches(["seq", "output_tokens"], 1 << 20):
        if "output_tokens" in table.column_names:
            counts = table["output_tokens"]
            known[first : first + len(table)] = counts.is_valid().to_numpy()
            tokens += int(counts.fill_null(0).to_numpy().sum(dtype=np.int64))
        first += len(table)
    return Outputs(tokens, int((counted & ~known).sum()))


def output_tokens(carried: pa.Table) -> NDArray[np.int64]:
    """Return how many tokens each output has, 0 where that is not known."""
    if "output_tokens" not in carried.column_names:
        return np.zeros(len(carried), np.int64)
    counts: NDArray[np.int64] = carried["output_tokens"].fill_null(0).to_numpy().astype(np.int64)
    return counts
