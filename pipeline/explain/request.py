"""explain_request: a run folder and a request id in, what happened to it under each policy out."""

from pathlib import Path
from typing import Any

import duckdb

from pipeline.errors import RunError, unknown
from pipeline.explain.locate import check_unchanged, find_request, rows_with, trace_and_config
from pipeline.explain.moment import witnesses
from pipeline.explain.names import Named, with_names
from pipeline.explain.story import Story, tell
from pipeline.plan import Plan, planned
from pipeline.report import open_run, select
from pipeline.trace.reader import carried_names

_OF_DECISION = ("replica_id", "matched_tokens", "queue_wait_ms", "exec_ms", "ttft_ms")


def explain_request(
    run: Path, request_id: str, policy: str | None = None, seq: int | None = None
) -> dict[str, Any]:
    """Return what happened to a request of a run, under one policy or all of the run.

    `seq` is its number in the trace, which tells requests of one id apart. Raises UsageError for
    a request or policy that the run does not have, RunError and TraceError if what the run was
    made of is not there any more.
    """
    connection = open_run(run)
    trace_path, config = trace_and_config(run)
    if policy is not None and policy not in config.policies:
        raise unknown("policy of this run", policy, config.policies)
    policies = config.policies if policy is None else (policy,)
    with planned(trace_path, config) as plan:
        check_unchanged(run, plan)
        row = find_request(plan, request_id, seq)
        before = witnesses(plan, row)
        stories = {}
        for name in policies:
            story = tell(plan, name, row, before)
            stories[name] = _as_in_run(run, connection, story, name, plan, row)
        told = {
            "run": str(run),
            "trace": str(trace_path),
            "request": _request(plan, row),
            "engine": plan.config.engine.name,
            "cache_unit": plan.config.engine.cache_unit,
            "policies": stories,
        }
        return with_names(told, plan)


def _request(plan: Plan, row: int) -> Story:
    """Return what the trace says of the request."""
    carried = rows_with(plan, carried_names(), [row])[row]
    arrival = carried.pop("arrival").replace(tzinfo=None).isoformat(sep=" ")
    request_id = carried.pop("request_id")
    return {
        "request_id": request_id,
        "seq": row - plan.first,
        "arrival": arrival,
        **carried,
        "prompt_tokens": int(plan.columns.prompt_tokens[row]),
        "is_warmup": row < plan.counted,
    }


def _as_in_run(
    run: Path,
    connection: duckdb.DuckDBPyConnection,
    story: Story,
    policy: str,
    plan: Plan,
    row: int,
) -> Story:
    """Return the story with what the run knows of the time after; RunError if they differ."""
    seq = row - plan.first
    of_policy = f"where policy = '{policy}'"
    decided = select(connection, f"from all_decisions {of_policy} and seq = {seq}").to_pylist()
    # One file, which DuckDB reads in order: evictions have no number of their own.
    evicted = select(connection, f"from all_evictions {of_policy} and for_seq = {seq}").to_pylist()
    told = story.get("evictions", [])
    of_prompt, of_output = evicted[: len(told)], evicted[len(told) :]
    same = ("evicted_tokens", "evicted_nodes", "start_tokens")
    if len(decided) != 1 or _decision(story) != {n: decided[0][n] for n in _decision(story)} or (
        [[e[n] for n in same] for e in told] != [[e[n] for n in same] for e in of_prompt]
    ):  # fmt: skip
        raise RunError(
            f"{run}: seq {seq} was decided otherwise under {policy} than this version does:"
            " the run was made by another one, or is damaged: replay it again"
        )
    if story["outcome"] != "served":
        return story
    for eviction, found in zip(told, of_prompt, strict=True):
        again = found["asked_again_seq"]
        eviction["asked_again_by"] = None if again is None else Named(again + plan.first)
        eviction["asked_again_ms"] = found["asked_again_ms"]
        eviction["asked_again_tokens"] = found["asked_again_tokens"]
    sums = {n: sum(e[n] for e in of_output) for n in ("evicted_tokens", "evicted_nodes")}
    return story | {"output_evictions": sums}


def _decision(story: Story) -> Story:
    """Return what the run's row of the request has to be, under the row's names."""
    if story["outcome"] != "served":
        return {"outcome": story["outcome"], **dict.fromkeys(_OF_DECISION)}
    return {"outcome": story["outcome"], **{name: story[name] for name in _OF_DECISION}}
