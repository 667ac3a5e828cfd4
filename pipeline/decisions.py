"""What the kernels decided, as the tables of a run: arrays in, Parquet files out."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.files import PARTIAL
from pipeline.kernel import NONE
from pipeline.plan import Plan
from pipeline.replay import Replayer
from pipeline.replay.cost import CENTS_PER_MS, TICKS_PER_MS
from pipeline.replay.serve import SERVED
from pipeline.replay.tokens import Decided
from pipeline.run_folder import TABLES, table_file
from pipeline.tables import DECISIONS, EVICTIONS, OUTCOMES, REPLICAS, schema
from pipeline.trace.writer import conform, open_parquet
from pipeline.upcoming import NEVER
from pipeline.windows import ReplicaWindows

_TABLES = dict(zip(TABLES, (DECISIONS, EVICTIONS, REPLICAS), strict=True))


class DecisionWriter:
    """Writes one policy's decisions, evictions and replica windows into a run folder.

    Rows are numbered as in the trace itself: `first` is its first row among those of the plan,
    and null stands for what came before.
    """

    def __init__(self, run: Path, policy: str, plan: Plan, replayer: Replayer) -> None:
        self._first, self._counted = plan.first, plan.counted
        self._arrival_us, self._rank = plan.columns.arrival_us, plan.rank
        self._in_flight = replayer.counts_requests
        self._policy = replayer.spec.policy
        self._files = {}
        for table, columns in _TABLES.items():
            file = table_file(run, table, policy)
            file.parent.mkdir(parents=True)
            self._files[table] = open_parquet(file.with_name(file.name + PARTIAL), schema(columns))

    def close(self, windows: ReplicaWindows | None) -> None:
        """Close all files; the windows end a run that is whole."""
        if windows:
            rows = pa.table(windows.columns())
            self._files["replicas"].write_table(conform(rows, {}, schema(REPLICAS)))
        for file in self._files.values():
            file.close()

    def write(self, carried: pa.Table, decided: Decided) -> None:
        """Write decisions beside the trace's carried columns."""
        if len(carried):
            columns = self._decision_columns(decided)
            self._files["decisions"].write_table(conform(carried, columns, schema(DECISIONS)))

    def write_evictions(self, evictions: NDArray[Any]) -> None:
        """Write cache.EVICTION rows."""
        if len(evictions):
            rows = pa.table(self._eviction_columns(evictions))
            self._files["evictions"].write_table(conform(rows, {}, schema(EVICTIONS)))

    def _decision_columns(self, decided: Decided) -> dict[str, Any]:
        """Return the columns of tables.DECISIONS that the trace does not carry."""
        rows = decided.rows
        rejected = rows["outcome"] != SERVED
        outcomes = pa.DictionaryArray.from_arrays(rows["outcome"], pa.array(OUTCOMES))
        same = ("best_matched_tokens", "evicted_tokens", "evicted_nodes", "resident_tokens")
        scores = pa.array([score.name for score in self._policy.scores])
        branches = pa.array(rows["branch"], mask=rejected)
        decided_by = pa.DictionaryArray.from_arrays(branches, scores)
        served = {
            "replica_id": rows["replica_id"],
            **decided.tokens,
            **{name: rows[name] for name in same},
            "queue_wait_ms": rows["queue_ticks"] / TICKS_PER_MS,
            "exec_ms": rows["exec_ticks"] / TICKS_PER_MS,
            "ttft_ms": rows["ttft_cents"] / CENTS_PER_MS,
            "best_replica_id": rows["best_replica_id"],
            "regret_ms": rows["regret_ticks"] / TICKS_PER_MS,
        }
        known = ["queued_requests", "running_requests"] if self._in_flight else []
        known += ["believed_matched_tokens"] if self._policy.looks_up else []
        served |= {name: rows[name] for name in known}
        return {
            "seq": decided.seq - self._first,
            "outcome": outcomes.cast(pa.string()),
            "decided_by": decided_by.cast(pa.string()),
            "prompt_tokens": decided.prompt_tokens,
            "is_warmup": decided.seq < self._counted,
            **{name: pa.array(values, mask=rejected) for name, values in served.items()},
        }

    def _eviction_columns(self, evictions: NDArray[Any]) -> dict[str, Any]:
        """Return the columns of tables.EVICTIONS."""
        arrival_us, seq, last_used = self._arrival_us, evictions["seq"], evictions["last_used_seq"]
        never = evictions["asked_again_seq"] == NEVER
        again = np.where(never, seq, evictions["asked_again_seq"])
        same = ("replica_id", "evicted_tokens", "evicted_nodes", "start_tokens")
        return {
            **{name: evictions[name] for name in (*same, "asked_again_tokens")},
            "seq": seq - self._first,
            "arrival": pa.array(arrival_us[seq]).cast(pa.timestamp("us")),
            "for_seq": self._of_trace(evictions["for_seq"]),
            "cause": pa.DictionaryArray.from_arrays(
                (evictions["for_seq"] == NONE).astype(np.int8), pa.array(["room", "restart"])
            ).cast(pa.string()),
            "last_used_seq": self._of_trace(last_used),
            "age_requests": self._rank[seq] - self._rank[last_used],
            "age_ms": (arrival_us[seq] - arrival_us[last_used]) / 1e3,
            "asked_again_seq": pa.array(again - self._first, mask=never),
            "asked_again_ms": pa.array((arrival_us[again] - arrival_us[seq]) / 1e3, mask=never),
            "is_warmup": seq < self._counted,
        }

    def _of_trace(self, rows: NDArray[np.int64]) -> pa.Array:
        """Return rows of the plan as rows of the trace, null for those of the warm-up trace."""
        return pa.array(rows - self._first, mask=rows < self._first)
