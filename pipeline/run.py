"""replay_trace: a trace and a configuration in, a run folder out."""

import json
import math
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
from pipeline.config import DEFAULT_BATCH_REQUESTS, TIES, ReplayConfig
from pipeline.errors import RunError, UsageError
from pipeline.files import PARTIAL, whole_folder
from pipeline.lane import Done, Lane
from pipeline.plan import Plan, planned
from pipeline.replay import PolicySpec, find_policy
from pipeline.replay.policies.rule import FOREVER
from pipeline.run_folder import FORMAT, foreign_names, read_run, seed_folder
from pipeline.tables import SCHEMA_VERSION
from pipeline.trace.reader import fingerprint

_MOST_REQUESTS = 100_000_000
_MOST_BYTES_AT_ONCE = 1_000_000_000
_MOST_AT_ONCE = 64  # each has three files open


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
        lanes = _replay(plan, folder, batch_requests)
        for name in ("replay_s", "write_s"):
            timings[name] = sum(getattr(lane, name) for lane in lanes)
        timings["total_s"] = time.perf_counter() - began
        first = [lane for lane in lanes if lane.seed == config.routing.seed]
        run = {
            **_about(plan, _lasting(plan.own.path, trace_path), config),
            "totals": {lane.policy: lane.totals.as_dict() for lane in first},
            "timings": {name: round(seconds, 6) for name, seconds in timings.items()},
            "lanes": [_timed(lane) for lane in lanes],
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
            "unmet_absences": plan.unmet_absences,
        },
        "config": {
            **asdict(config),
            "chosen_clock": plan.clock,
            "chosen_block_tokens": plan.config.engine.block_tokens,
            "chosen_policies": [
                _chosen(find_policy(policy, config.routing), config) for policy in config.policies
            ],
        },
    }


def _lasting(read: Path, asked: Path) -> Path:
    """Return the file that was read, unless its links were kept for this run alone."""
    return read if read.parent == asked.parent else asked


def _check(target: Path, config: ReplayConfig, batch_requests: int) -> None:
    if not 1 <= batch_requests <= _MOST_REQUESTS:
        raise UsageError(f"batch-requests is {batch_requests}: give 1 to {_MOST_REQUESTS:,}")
    for policy in config.policies:
        find_policy(policy, config.routing)
        if config.policies.count(policy) > 1:
            raise UsageError(f"policy {policy} is named twice: name it once")
    if target.exists() and not read_run(target) and not _is_empty_folder(target):
        raise RunError(f"{target}: exists and is not a run folder: remove it, or name another")
    foreign = foreign_names(target)
    if foreign:
        raise RunError(
            f"{target}: holds {foreign[0]}, which is not of a run and would be lost: move it away"
        )


def _is_empty_folder(path: Path) -> bool:
    return path.is_dir() and next(path.iterdir(), None) is None


def _seeds(spec: PolicySpec, config: ReplayConfig) -> range:
    """Return the seeds with which a policy is replayed."""
    seed = config.routing.seed
    return range(seed, seed + (config.routing.seeds if spec.chooses_at_random else 1))


def _replay(plan: Plan, folder: Path, batch_requests: int) -> list[Done]:
    """Replay under all policies and seeds; of a large trace, under as many at once as fit."""
    config = plan.config
    wanted = [
        (policy, seed)
        for policy in config.policies
        for seed in _seeds(find_policy(policy, config.routing), config)
    ]
    at_once = _at_once(len(plan.chosen), config.fleet.replicas)
    lanes: list[Done] = []
    for first in range(0, len(wanted), at_once):
        lanes += _side_by_side(plan, folder, wanted[first : first + at_once], batch_requests)
    return lanes


def _at_once(rows: int, replicas: int) -> int:
    """Return how many replays go side by side; each keeps bits of all replicas for each node."""
    bytes_a_row = 320 + 40 * -(-replicas // 64)
    fit = _MOST_BYTES_AT_ONCE // (rows * bytes_a_row)
    return max(os.cpu_count() or 1, min(fit, _MOST_AT_ONCE))


def _side_by_side(
    plan: Plan, folder: Path, wanted: list[tuple[str, int]], batch_requests: int
) -> list[Done]:
    """Replay batch after batch; within a batch, policies run side by side."""
    first = plan.config.routing.seed
    with ExitStack() as stack:
        lanes = []
        for policy, seed in wanted:
            place = folder if seed == first else seed_folder(folder, seed)
            lanes.append(stack.enter_context(Lane(place, policy, plan, seed)))
        pool = stack.enter_context(ThreadPoolExecutor(min(len(lanes), os.cpu_count() or 1)))
        for step in plan.steps(batch_requests):
            jobs = [pool.submit(lane.step, step) for lane in lanes]
            for job in jobs:
                job.result()
        for lane in lanes:
            lane.finish()
    return [lane.done() for lane in lanes]


def _timed(lane: Done) -> dict[str, Any]:
    """Return how long a lane took."""
    return {
        "policy": lane.policy,
        "seed": lane.seed,
        "requests": lane.requests,
        "replay_s": round(lane.replay_s, 6),
        "write_s": round(lane.write_s, 6),
        "requests_per_s": round(lane.requests / max(lane.replay_s, 1e-9)),
    }


def _chosen(spec: PolicySpec, config: ReplayConfig) -> dict[str, Any]:
    """Return a policy with all its settings, as a run tells them."""
    routed = spec.view.kind == "routed" and spec.policy.looks_up
    names = (parameter.name for parameter in spec.policy.parameters)
    values = (None if math.isinf(value) else value for value in spec.parameters)
    return {
        "policy": spec.text,
        "name": spec.name,
        "source": spec.policy.source,
        "parameters": dict(zip(names, values, strict=True)),
        "router_view": str(spec.view),
        "router_tokens": spec.router_tokens if routed and spec.router_tokens < FOREVER else None,
        "router_ttl_ms": spec.router_ttl_ms if routed else None,
        "tie": None if spec.policy.tie is None else TIES[spec.tie],
        "chooses_at_random": spec.chooses_at_random,
        "seeds": len(_seeds(spec, config)),
    }
