"""Where a request stands: the configuration of its run, and its row among those of the trace."""

import difflib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.config import (
    ClockConfig,
    CostModel,
    EngineConfig,
    FleetConfig,
    ReplayConfig,
    RoutingConfig,
    SubsetConfig,
)
from pipeline.errors import RunError, TraceError, UsageError
from pipeline.plan import Plan
from pipeline.run_folder import read_run
from pipeline.trace.reader import fingerprint

_BATCH_ROWS = 1 << 18
_SEARCHED_FOR_NEAREST = 20_000
_SHOWN = 10


def trace_and_config(run: Path) -> tuple[Path, ReplayConfig]:
    """Return the trace of a run and how it was replayed; RunError if that can't be done again."""
    about = read_run(run) or {}
    try:
        config = about["config"]
        path = Path(about["trace"]["path"])
        made = ReplayConfig(
            fleet=FleetConfig.of(config["fleet"]),
            engine=EngineConfig(**config["engine"]),
            cost=CostModel(**config["cost"]),
            clock=ClockConfig(**config["clock"]),
            subset=SubsetConfig(**config["subset"]),
            routing=RoutingConfig(**config["routing"]),
            policies=tuple(config["policies"]),
        )
    except (KeyError, TypeError):
        raise RunError(f"{run}: made by an older version: replay it again") from None
    warmup = made.subset.warmup
    for needed in (path, Path(warmup)) if warmup else (path,):
        if not needed.exists():
            raise TraceError(
                f"{needed}: the run {run} was made of it, and it is gone: put it back, as a"
                " request is explained by replaying the requests before it"
            )
    return path, made


def check_unchanged(run: Path, plan: Plan) -> None:
    """Raise RunError unless the trace is the one that was replayed."""
    about = read_run(run) or {}
    if about["trace"].get("fingerprint") != fingerprint(plan.columns):
        raise RunError(
            f"{run}: the trace {about['trace']['path']} has changed since it was replayed: replay"
            " it again"
        )


def find_request(plan: Plan, request_id: str, seq: int | None) -> int:
    """Return the row of the request of that id; UsageError if it is none, or not the only one."""
    rows, warmup_rows = _rows_of(plan, request_id)
    if seq is not None:
        rows = [row for row in rows if row - plan.first == seq] or _not_that_one(
            plan, request_id, rows, seq
        )
    if not rows:
        raise UsageError(_no_such_request(plan, request_id, warmup_rows))
    if len(rows) > 1:
        seqs = ", ".join(str(row - plan.first) for row in rows[:_SHOWN])
        more = f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else ""
        raise UsageError(
            f"{len(rows)} requests are called {request_id!r}: name one by --seq: {seqs}{more}"
        )
    [row] = rows
    if not plan.chosen[row]:
        subset = plan.config.subset
        asked = [] if subset.where is None else [f"where {subset.where!r}"]
        asked += [f"sample {subset.sample}"] if subset.sample < 1 else []
        raise UsageError(
            f"request {request_id!r} (seq {row - plan.first}) was not replayed: the run has"
            f" {' and '.join(asked)}: replay the trace without, and explain it in that run"
        )
    return row


def rows_with(plan: Plan, columns: list[str], rows: Collection[int]) -> dict[int, dict[str, Any]]:
    """Return what the trace has in some columns in some rows of the plan."""
    found: dict[int, dict[str, Any]] = {}
    wanted, first = np.unique(np.fromiter(rows, np.int64)), 0
    for table in plan.trace.batches(columns, _BATCH_ROWS):
        here = wanted[(wanted >= first) & (wanted < first + len(table))]
        if len(here):
            taken = table.take(pa.array(here - first)).to_pylist()
            found |= dict(zip(here.tolist(), taken, strict=True))
        first += len(table)
    return found


def _rows_of(plan: Plan, request_id: str) -> tuple[list[int], int]:
    """Return the rows of the trace with that id, and how many rows of the warm-up have it."""
    rows: list[int] = []
    first = 0
    wanted = pa.scalar(request_id.encode(errors="replace"), pa.binary()).cast(pa.string())
    for table in plan.trace.batches(["request_id"], _BATCH_ROWS):
        same = pc.equal(table["request_id"], wanted)
        rows += (first + np.flatnonzero(same.to_numpy())).tolist()
        first += len(table)
    own = [row for row in rows if row >= plan.first]
    return own, len(rows) - len(own)


def _not_that_one(plan: Plan, request_id: str, rows: list[int], seq: int) -> list[int]:
    """Raise UsageError if the id is there, under another seq."""
    if rows:
        seqs = ", ".join(str(row - plan.first) for row in rows[:_SHOWN])
        raise UsageError(f"seq {seq} is not {request_id!r}: that is seq {seqs}")
    return rows


def _no_such_request(plan: Plan, request_id: str, warmup_rows: int) -> str:
    """Return what to say of an id that no request of the trace has."""
    missing = f"no request of this run's trace is called {request_id!r}"
    if warmup_rows:
        return f"{missing}: one of the warm-up trace is, and these are not explained"
    own = plan.trace.rows - plan.first
    near: list[str] = []
    if own <= _SEARCHED_FOR_NEAREST:
        tables = plan.trace.batches(["request_id"], _BATCH_ROWS)
        ids = pa.concat_tables(list(tables))["request_id"].slice(plan.first).to_pylist()
        near = difflib.get_close_matches(request_id, ids, n=3)
    if near:
        return f"{missing}: did you mean {' or '.join(near)}?"
    first = rows_with(plan, ["request_id"], [plan.first])[plan.first]["request_id"]
    return f"{missing}: the first one, for example, is {first!r}"
