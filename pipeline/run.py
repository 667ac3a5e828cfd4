"""replay_trace: a trace and a configuration in, a run folder out."""

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pipeline
from pipeline.config import DEFAULT_BATCH_REQUESTS, TICKS_PER_MS, ReplayConfig
from pipeline.errors import RunError, UsageError
from pipeline.files import PARTIAL, whole_folder
from pipeline.lane import Lane
from pipeline.prepare import ready_trace
from pipeline.replay import find_policy
from pipeline.replay.loop import Batch
from pipeline.run_folder import FORMAT, foreign_names, read_run
from pipeline.tables import SCHEMA_VERSION
from pipeline.totals import Totals
from pipeline.trace.checks import TraceColumns
from pipeline.trace.reader import TraceFile, carried_names, fingerprint
from pipeline.tree import build_tree, upcoming_requests

_TICKS_PER_US = 10
_MOST_TICKS = 2**62


def replay_trace(
    trace_path: Path,
    target: Path,
    config: ReplayConfig,
    batch_requests: int = DEFAULT_BATCH_REQUESTS,
) -> dict[str, Any]:
    """Replay a trace under every policy of `config` into the run folder `target`.

    An earlier run there is replaced once this one is whole; anything else there is a RunError.
    Returns what run.json holds.
    """
    _check(target, config, batch_requests)
    timings: dict[str, float] = dict.fromkeys(("link_s", "tree_s", "replay_s", "write_s"), 0.0)
    began = time.perf_counter()
    with ExitStack() as stack:
        with _timed(timings, "link_s"):
            trace = stack.enter_context(ready_trace(trace_path))
            columns = trace.columns()
        _check_times(config, columns)
        folder = stack.enter_context(whole_folder(target))
        totals = _replay(trace, columns, folder, config, batch_requests, timings)
        timings["total_s"] = time.perf_counter() - began
        run = {
            **_about(trace, _lasting(trace.path, trace_path), columns, config),
            "totals": {t.policy: t.as_dict() for t in totals},
            "timings": {name: round(seconds, 6) for name, seconds in timings.items()},
        }
        text = json.dumps(run, indent=2) + "\n"
        Path(folder, f"run.json{PARTIAL}").write_text(text, encoding="utf-8")
    return run


def _about(
    trace: TraceFile, path: Path, columns: TraceColumns, config: ReplayConfig
) -> dict[str, Any]:
    """Return what a run says of its making: format, versions, trace, configuration."""
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "versions": {
            "replay-pipeline": pipeline.__version__,
            **{name: version(name) for name in ("numba", "numpy", "pyarrow")},
        },
        "trace": {
            "path": str(path.resolve()),
            "fingerprint": fingerprint(columns),
            "requests": len(columns.arrival_us),
            **asdict(trace.metadata),
        },
        "config": {**asdict(config), "chosen_clock": _clock(config, columns)},
    }


def _lasting(read: Path, asked: Path) -> Path:
    """Return the file that was read, unless its links were kept for this run alone."""
    return read if read.parent == asked.parent else asked


def _check(target: Path, config: ReplayConfig, batch_requests: int) -> None:
    if batch_requests < 1:
        raise UsageError(f"batch-requests is {batch_requests}: give at least 1")
    for policy in config.policies:
        find_policy(policy)
    if len(set(config.policies)) < len(config.policies):
        raise UsageError("a policy is named twice")
    if target.exists() and not read_run(target) and not _is_empty_folder(target):
        raise RunError(f"{target}: exists and is not a run folder: remove it, or name another")
    foreign = foreign_names(target)
    if foreign:
        raise RunError(
            f"{target}: holds {foreign[0]}, which is not of a run and would be lost: move it away"
        )


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and next(path.iterdir(), None) is None


def _replay(
    trace: TraceFile,
    columns: TraceColumns,
    folder: Path,
    config: ReplayConfig,
    batch_requests: int,
    timings: dict[str, float],
) -> list[Totals]:
    """Replay batch after batch; within a batch, policies run side by side."""
    with _timed(timings, "tree_s"):
        tree = build_tree(columns.prompt_tokens, columns.prefix_seq, columns.prefix_tokens)
        upcoming = upcoming_requests(tree)
    with ExitStack() as stack:
        lanes = [
            stack.enter_context(Lane(folder, policy, config, (tree, upcoming), columns.arrival_us))
            for policy in config.policies
        ]
        workers = min(len(lanes), os.cpu_count() or 1)
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        clock, first = _clock_ticks(config, columns), 0
        for carried in trace.batches(carried_names(), batch_requests):
            rows = slice(first, first + len(carried))
            prompts, first_ids = columns.prompt_tokens[rows], columns.first_token_id[rows]
            batch = Batch(first, prompts.astype(np.int64), first_ids.copy(), clock[rows])
            jobs = [pool.submit(lane.step, batch, prompts, carried) for lane in lanes]
            for job in jobs:
                job.result()
            first += len(carried)
    for lane in lanes:
        timings["replay_s"] += lane.replay_s
        timings["write_s"] += lane.write_s
    return [lane.totals for lane in lanes]


def _clock(config: ReplayConfig, columns: TraceColumns) -> str:
    """Return the clock of a run: as asked, else timestamps where the arrivals differ."""
    differ = columns.arrival_us[0] < columns.arrival_us[-1]
    return config.clock.clock or ("timestamps" if differ else "arrivals")


def _check_times(config: ReplayConfig, columns: TraceColumns) -> None:
    """Raise UsageError if times of this run could pass what 64 bits hold."""
    span_us = int(columns.arrival_us[-1]) - int(columns.arrival_us[0])
    clock = max(span_us * _TICKS_PER_US, len(columns.arrival_us) * config.clock.decay_ticks)
    dearest = max(config.cost.prefill_ms_per_token, config.cost.lookup_ms_per_token)
    work = int(columns.prompt_tokens.sum(dtype=np.uint64)) * int(dearest * TICKS_PER_MS + 1)
    if clock + work >= _MOST_TICKS:
        raise UsageError(
            "the trace's time span, or costs and decay times its requests, pass what 64 bits of"
            " 0.0001 ms hold: give smaller ones"
        )


def _clock_ticks(config: ReplayConfig, columns: TraceColumns) -> NDArray[np.int64]:
    """Return how far queues have drained when each request comes, in ticks since the start.

    An empty prompt is rejected before anything happens, so it drains no queue by arriving.
    """
    if _clock(config, columns) == "timestamps":
        elapsed_us: NDArray[np.int64] = columns.arrival_us - columns.arrival_us[0]
        return elapsed_us * _TICKS_PER_US
    routed = np.cumsum(columns.prompt_tokens > 0, dtype=np.int64)
    return routed * config.clock.decay_ticks


@contextmanager
def _timed(timings: dict[str, float], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    timings[name] += time.perf_counter() - began
