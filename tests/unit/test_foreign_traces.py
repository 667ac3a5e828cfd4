"""Parquet files of token ids that other tools wrote: they replay as our own traces do."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import (
    SMALL_FLEET,
    grouped_prompts,
    names_in,
    parquet_bytes,
    requests,
    write_tokens,
    write_trace,
)

from pipeline.errors import TraceError
from pipeline.prepare import ready_trace, write_links
from pipeline.run import replay_trace
from pipeline.trace import TraceFile, TraceMetadata, TraceWriter

PROMPTS = [*([*p[-2:], *p[:3]] for p in grouped_prompts(4, 60)), []]
NAMES = [str(i) for i in range(len(PROMPTS))]
TENANTS = [None if i % 5 == 0 else f"tenant-{i % 3}" for i in range(len(PROMPTS))]


def _polars(path: Path, ids: pl.DataType) -> None:
    columns = {"prompt_token_ids": PROMPTS, "tenant": TENANTS}
    schema = {"prompt_token_ids": pl.List(ids), "tenant": pl.String}
    pl.DataFrame(columns, schema=schema).write_parquet(path)


def _polars_categories(path: Path) -> None:
    tenant = pl.Series("tenant", TENANTS, pl.Categorical)
    ids = pl.Series("prompt_token_ids", PROMPTS, pl.List(pl.UInt32))
    pl.DataFrame([ids, tenant]).write_parquet(path)


def _duckdb(path: Path, ids: str) -> None:
    table = pa.table({"ids": pa.array(PROMPTS, pa.list_(pa.int64())), "tenant": TENANTS})
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute(
            f"copy (select cast(ids as {ids}[]) as prompt_token_ids, tenant, 1 as more from given)"  # noqa: S608
            f" to '{path}' (format parquet, row_group_size 2048)"
        )


def _arrow_dictionary(path: Path) -> None:
    tenant = pa.array(TENANTS, pa.string()).dictionary_encode()
    write_tokens(path, PROMPTS, tenant=tenant)


WRITERS: dict[str, Callable[[Path], None]] = {
    "polars int64": lambda path: _polars(path, pl.Int64()),
    "polars int32": lambda path: _polars(path, pl.Int32()),
    "polars uint32": lambda path: _polars(path, pl.UInt32()),
    "polars categories": _polars_categories,
    "duckdb integer": lambda path: _duckdb(path, "integer"),
    "duckdb bigint": lambda path: _duckdb(path, "bigint"),
    "duckdb ubigint": lambda path: _duckdb(path, "ubigint"),
    "duckdb uinteger": lambda path: _duckdb(path, "uinteger"),
    "arrow dictionary": _arrow_dictionary,
}


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("own")
    trace = write_trace(folder / "own.parquet", PROMPTS, request_id=NAMES, tenant=TENANTS)
    replay_trace(trace, folder / "run", SMALL_FLEET)
    return parquet_bytes(folder / "run")


@pytest.mark.parametrize("tool", WRITERS)
def test_a_file_of_another_tool_replays_to_the_same_bytes(
    tmp_path: Path, expected: dict[str, bytes], tool: str
) -> None:
    path = tmp_path / "foreign.parquet"
    WRITERS[tool](path)
    replay_trace(path, tmp_path / "run", SMALL_FLEET)
    assert parquet_bytes(tmp_path / "run") == expected


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_arrivals_may_have_any_unit_and_zone(tmp_path: Path, unit: str, zone: str | None) -> None:
    arrival = pa.array([0, 3, 5]).cast(pa.int64())
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    times = pa.array([t.as_py() * factor for t in arrival]).cast(pa.timestamp(unit, zone))
    path = write_tokens(tmp_path / "a.parquet", [[1], [2], [3]], arrival=times)
    with ready_trace(path) as trace:
        assert trace.columns().arrival_us.tolist() == [0, 3_000_000, 5_000_000]


def test_a_file_without_arrivals_is_replayed_in_its_order_by_arrivals(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "a.parquet", [[1], [2]])
    run = replay_trace(path, tmp_path / "run", SMALL_FLEET)
    assert run["config"]["chosen_clock"] == "arrivals"


def test_old_links_and_numbers_of_a_filtered_file_are_made_anew(tmp_path: Path) -> None:
    whole = pq.ParquetFile(write_trace(tmp_path / "a.parquet", [(1, 2), (1, 2, 3), (1, 2, 3, 4)]))
    filtered = tmp_path / "filtered.parquet"
    pq.write_table(whole.read().slice(1), filtered)
    trace = TraceFile.open(filtered)
    with pytest.raises(TraceError, match="replay link"):
        trace.columns()
    write_links(trace, tmp_path / "new.parquet")
    columns = TraceFile.open(tmp_path / "new.parquet").columns()
    assert columns.prefix_seq.tolist() == [-1, 0]
    assert columns.prefix_tokens.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1], None], "row 1: prompt_token_ids is null"),
        ([[1], [None, 2]], "row 1: prompt_token_ids has a null in it"),
        ([[1], [-1]], "does not fit"),
        ([[1], [2**32]], "does not fit"),
    ],
)
def test_ids_that_are_none_name_file_and_row_and_leave_no_links(
    tmp_path: Path, values: list[Any], message: str
) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"prompt_token_ids": pa.array(values, pa.list_(pa.int64()))}), path)
    with pytest.raises(TraceError, match=message) as caught, ready_trace(path):
        pass
    assert str(caught.value).count(str(path)) == 1
    assert names_in(tmp_path) == {"a.parquet"}


def test_unsorted_arrivals_name_the_row_and_leave_no_links(tmp_path: Path) -> None:
    times = pa.array([5, 3], pa.timestamp("us", "UTC"))
    path = write_tokens(tmp_path / "a.parquet", [[1], [2]], arrival=times)
    with (
        pytest.raises(TraceError, match="row 1: it arrived before the row above"),
        ready_trace(path),
    ):
        pass
    assert names_in(tmp_path) == {"a.parquet"}


def test_block_ids_need_a_block_size(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ids = pa.array([[1], [1, 2]], pa.list_(pa.uint64()))
    lengths = pa.array([5, 600], pa.uint32())
    pq.write_table(pa.table({"block_ids": ids, "prompt_tokens": lengths}), path)
    with pytest.raises(TraceError, match="without a block size"), ready_trace(path):
        pass


def test_a_batch_of_many_small_writes_is_the_same_file_as_one_large(tmp_path: Path) -> None:
    for name, step in (("one", len(PROMPTS)), ("many", 1)):
        with TraceWriter(tmp_path / name, TraceMetadata()) as writer:
            for begin in range(0, len(PROMPTS), step):
                part = PROMPTS[begin : begin + step]
                ids = NAMES[begin : begin + step]
                writer.write(requests(part, [0] * len(part), request_id=ids))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "many").read_bytes()
