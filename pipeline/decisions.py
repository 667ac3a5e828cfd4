"""What the kernels decided, as the tables of a run: arrays in, Parquet files out."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.files import PARTIAL
from pipeline.replay.cost import CENTS_PER_MS, TICKS_PER_MS
from pipeline.replay.loop import SERVED
from pipeline.replay.tokens import token_split
from pipeline.run_folder import TABLES, table_file
from pipeline.tables import DECISIONS, EVICTIONS, OUTCOMES, REPLICAS, schema
from pipeline.trace.writer import conform, open_parquet
from pipeline.tree import NEVER
from pipeline.windows import ReplicaWindows

_TABLES = dict(zip(TABLES, (DECISIONS, EVICTIONS, REPLICAS), strict=True))


class DecisionWriter:
    """Writes one policy's decisions, evictions and replica windows into a run folder."""

    def __init__(
        self, run: Path, policy: str, arrival_us: NDArray[np.int64], replicas: int
    ) -> None:
        self._arrival_us = arrival_us
        self._windows = ReplicaWindows(arrival_us, replicas)
        self._files = {}
        for table, columns in _TABLES.items():
            file = table_file(run, table, policy)
            file.parent.mkdir(parents=True)
            self._files[table] = open_parquet(file.with_name(file.name + PARTIAL), schema(columns))

    def close(self, *, whole: bool) -> None:
        """Close all files; `whole` adds the replica windows, which end a run."""
        if whole:
            windows = pa.table(self._windows.columns())
            self._files["replicas"].write_table(conform(windows, {}, schema(REPLICAS)))
        for file in self._files.values():
            file.close()

    def write(
        self,
        first_seq: int,
        carried: pa.Table,
        prompt_tokens: NDArray[np.uint32],
        decisions: NDArray[Any],
        evictions: NDArray[Any],
    ) -> None:
        """Write one batch: the trace's carried columns, loop.DECISION, cache.EVICTION rows."""
        columns = _decision_columns(first_seq, prompt_tokens, decisions)
        self._files["decisions"].write_table(conform(carried, columns, schema(DECISIONS)))
        if len(evictions):
            columns = _eviction_columns(evictions, self._arrival_us)
            rows = pa.table(columns)
            self._files["evictions"].write_table(conform(rows, {}, schema(EVICTIONS)))
        self._windows.add(first_seq, prompt_tokens, decisions)


def _decision_columns(
    first_seq: int, prompt_tokens: NDArray[np.uint32], decisions: NDArray[Any]
) -> dict[str, Any]:
    """Return the columns of tables.DECISIONS that the trace does not carry."""
    rejected = decisions["outcome"] != SERVED
    outcomes = pa.DictionaryArray.from_arrays(decisions["outcome"], pa.array(OUTCOMES))
    served = {
        "replica_id": decisions["replica_id"],
        **token_split(prompt_tokens, decisions),
        "best_matched_tokens": decisions["best_matched_tokens"],
        "queue_wait_ms": decisions["queue_ticks"] / TICKS_PER_MS,
        "exec_ms": decisions["exec_ticks"] / TICKS_PER_MS,
        "ttft_ms": decisions["ttft_cents"] / CENTS_PER_MS,
        "evicted_tokens": decisions["evicted_tokens"],
        "evicted_nodes": decisions["evicted_nodes"],
        "resident_tokens": decisions["resident_tokens"],
    }
    return {
        "seq": np.arange(first_seq, first_seq + len(decisions), dtype=np.uint64),
        "outcome": outcomes.cast(pa.string()),
        "prompt_tokens": prompt_tokens,
        **{name: pa.array(values, mask=rejected) for name, values in served.items()},
    }


def _eviction_columns(evictions: NDArray[Any], arrival_us: NDArray[np.int64]) -> dict[str, Any]:
    """Return the columns of tables.EVICTIONS."""
    seq, last_used = evictions["seq"], evictions["last_used_seq"]
    never = evictions["asked_again_seq"] == NEVER
    again = np.where(never, seq, evictions["asked_again_seq"])
    return {
        "seq": seq,
        "arrival": pa.array(arrival_us[seq]).cast(pa.timestamp("us")),
        "replica_id": evictions["replica_id"],
        "evicted_tokens": evictions["evicted_tokens"],
        "start_tokens": evictions["start_tokens"],
        "last_used_seq": last_used,
        "age_requests": seq - last_used,
        "age_ms": (arrival_us[seq] - arrival_us[last_used]) / 1e3,
        "asked_again_seq": pa.array(again, mask=never),
        "asked_again_ms": pa.array((arrival_us[again] - arrival_us[seq]) / 1e3, mask=never),
    }
