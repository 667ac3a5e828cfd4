"""replay_trace: a trace and a configuration in, a run folder out."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import pipeline
from pipeline.config import DEFAULT_BATCH_REQUESTS, ReplayConfig
from pipeline.errors import RunError, UsageError
from pipeline.files import PARTIAL, whole_folder
from pipeline.lane import Lane
from pipeline.plan import Plan, planned
from pipeline.replay import find_policy
from pipeline.run_folder import FORMAT, foreign_names, read_run
from pipeline.tables import SCHEMA_VERSION
from pipeline.totals import Totals
from pipeline.trace.reader import fingerprint

_MOST_REQUESTS = 100_000_000


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
    if config.subset.warmup is not None:
        warmup = str(Path(config.subset.warmup).resolve())
        config = replace(config, subset=replace(config.subset, warmup=warmup))
    began = time.perf_counter()
    with ExitStack() as stack:
        plan = stack.enter_context(planned(trace_path, config))
        folder = stack.enter_context(whole_folder(target))
        timings = {"link_s": plan.link_s, "tree_s": plan.tree_s}
        totals, busy = _replay(plan, folder, batch_requests)
        timings |= {**busy, "total_s": time.perf_counter() - began}
        run = {
            **_about(plan, _lasting(plan.own.path, trace_path), config),
            "totals": {t.policy: t.as_dict() for t in totals},
            "timings": {name: round(seconds, 6) for name, seconds in timings.items()},
        }
        text = json.dumps(run, indent=2) + "\n"
        Path(folder, f"run.json{PARTIAL}").write_text(text, encoding="utf-8")
    return run


def _about(plan: Plan, path: Path, config: ReplayConfig) -> dict[str, Any]:
    """Return what a run says of its making: format, versions, trace, configuration."""
    replayed = np.flatnonzero(plan.chosen)
    return {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "versions": {
            "replay-pipeline": pipeline.__version__,
            **{name: version(name) for name in ("numba", "numpy", "pyarrow")},
        },
        "trace": {
            "path": str(path.resolve()),
            "fingerprint": fingerprint(plan.columns),
            "requests": plan.own.rows,
            **asdict(plan.own.metadata),
        },
        "replayed": {
            "requests": int((replayed >= plan.first).sum()),
            "counted_requests": int((replayed >= plan.counted).sum()),
            "warmup_trace_requests": int((replayed < plan.first).sum()),
            "without_output_tokens": plan.without_output_tokens,
        },
        "config": {
            **asdict(config),
            "chosen_clock": plan.clock,
            "chosen_block_tokens": plan.config.engine.block_tokens,
        },
    }


def _lasting(read: Path, asked: Path) -> Path:
    """Return the file that was read, unless its links were kept for this run alone."""
    return read if read.parent == asked.parent else asked


def _check(target: Path, config: ReplayConfig, batch_requests: int) -> None:
    if not 1 <= batch_requests <= _MOST_REQUESTS:
        raise UsageError(f"batch-requests is {batch_requests}: give 1 to {_MOST_REQUESTS:,}")
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


def _replay(plan: Plan, folder: Path, batch_requests: int) -> tuple[list[Totals], dict[str, float]]:
    """Replay batch after batch; within a batch, policies run side by side."""
    policies = plan.config.policies
    with ExitStack() as stack:
        lanes = [stack.enter_context(Lane(folder, policy, plan)) for policy in policies]
        workers = min(len(lanes), os.cpu_count() or 1)
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        for step in plan.steps(batch_requests):
            jobs = [pool.submit(lane.step, step) for lane in lanes]
            for job in jobs:
                job.result()
        for lane in lanes:
            lane.finish()
    busy = {name: sum(getattr(lane, name) for lane in lanes) for name in ("replay_s", "write_s")}
    return [lane.totals for lane in lanes], busy
