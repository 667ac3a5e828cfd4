"""Small traces, logs and runs for tests, and the ways to look into them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.config import ClockConfig, CostModel, FleetConfig, ReplayConfig
from pipeline.run_folder import table_file
from pipeline.tables import ARRIVAL_TYPE, trace_schema
from pipeline.trace.metadata import TraceMetadata
from pipeline.trace.writer import Requests, TraceWriter

Prompts = Sequence[Sequence[int]]
Row = dict[str, Any]

SMALL: Prompts = [(1, 2, 3, 4), range(50, 59), (1, 2, 3, 4, 5), (9, 9), (), (1, 2, 3, 9)]
"""One prompt too long for 6 tokens, an empty one, and prefixes that are shared."""

SMALL_FLEET = ReplayConfig(
    fleet=FleetConfig(replicas=2, capacity_tokens=6),
    cost=CostModel(prefill_ms_per_token=1.0, lookup_ms_per_token=0.1),
    clock=ClockConfig("arrivals", 12.0),
)


def write_tokens(path: Path, prompts: Prompts, **columns: Any) -> Path:
    """Write what another tool would: token ids, and the columns that are given."""
    ids = pa.array([list(p) for p in prompts], pa.large_list(pa.uint32()))
    pq.write_table(pa.table({"prompt_token_ids": ids} | columns), path)
    return path


def requests(prompts: Prompts, arrival_us: Sequence[int], **carried: Any) -> Requests:
    """Return a batch for TraceWriter."""
    columns = {"request_id": [f"r{i}" for i in range(len(prompts))]} | carried
    arrival = pa.array(arrival_us, pa.timestamp("us")).cast(ARRIVAL_TYPE)
    offsets = np.cumsum([0, *map(len, prompts)], dtype=np.int64)
    ids = np.array([token for prompt in prompts for token in prompt], np.uint32)
    return Requests(pa.table(columns | {"arrival": arrival}), ids, offsets)


def write_trace(
    path: Path, prompts: Prompts, arrival_us: Sequence[int] | None = None, **carried: Any
) -> Path:
    """Write a linked trace with tokens; all requests arrive at once if no time is given."""
    times = [0] * len(prompts) if arrival_us is None else arrival_us
    with TraceWriter(path, TraceMetadata()) as writer:
        writer.write(requests(prompts, times, **carried))
    return path


def grouped_prompts(groups: int, count: int) -> list[list[int]]:
    """Return prompts of `groups` families, each with a long prefix of its own and a new end."""
    return [[1000 + i % groups] * (20 + i % groups) + [i * 7919 % 500, i % 3] for i in range(count)]


def write_large_trace(path: Path, rows: int, groups: int = 50) -> Path:
    """Write a lawful trace without tokens by formula: row i shares a prefix with row i - groups."""
    row = np.arange(rows)
    family = row % groups
    shared = np.where(row >= groups, 40 + family, 0)
    arrays: dict[str, Any] = {
        "seq": row.astype(np.uint64),
        "request_id": pa.array(row).cast(pa.string()),
        "arrival": pa.array(row * 2000).cast(pa.timestamp("us")).cast(ARRIVAL_TYPE),
        "tenant": pa.array(family).cast(pa.string()),
        "prompt_tokens": (40 + family + 5 + row % 7).astype(np.uint32),
        "first_token_id": family.astype(np.uint64),
        "prefix_seq": pa.array((row - groups).clip(0).astype(np.uint64), mask=row < groups),
        "prefix_tokens": shared.astype(np.uint32),
    }
    schema = trace_schema(None)
    columns = [
        pa.array(arrays[f.name]) if f.name in arrays else pa.nulls(rows, f.type) for f in schema
    ]
    pq.write_table(pa.Table.from_arrays(columns, schema=schema), path, row_group_size=65_536)
    return path


def write_log(path: Path, lines: Sequence[Mapping[str, Any] | str]) -> Path:
    """Write a log of JSON lines; a line that is text already is written as it is."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def rows_of(path: Path) -> list[Row]:
    """Return a Parquet file's rows."""
    rows: list[Row] = pq.ParquetFile(path).read().to_pylist()
    return rows


def decisions(run: Path, policy: str) -> list[Row]:
    """Return a policy's decisions."""
    return rows_of(table_file(run, "decisions", policy))


def column(rows: Sequence[Row], name: str) -> list[Any]:
    """Return one column of rows."""
    return [row[name] for row in rows]


def parquet_bytes(run: Path) -> dict[str, bytes]:
    """Return the content of all Parquet files of a run by their names in it."""
    return {str(p.relative_to(run)): p.read_bytes() for p in sorted(run.rglob("*.parquet"))}


def names_in(folder: Path) -> set[str]:
    """Return the names of all that is in a folder, hidden or not."""
    return {path.name for path in folder.iterdir()}


def common_prefix(one: Sequence[int], other: Sequence[int]) -> int:
    """Count equal tokens from the start."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def token_lists(path: Path) -> list[NDArray[np.uint32]]:
    """Return the token ids of a trace's requests."""
    ids = pq.ParquetFile(path).read(["prompt_token_ids"])["prompt_token_ids"].combine_chunks()
    return [np.array(prompt.as_py(), np.uint32) for prompt in ids]
