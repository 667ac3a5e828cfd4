"""Writing a trace and reading it back: row groups by token budget, types, batches, metadata."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import (
    column,
    grouped_prompts,
    requests,
    rows_of,
    token_lists,
    write_large_trace,
    write_trace,
)

from pipeline.errors import TraceError
from pipeline.tables import ARRIVAL_TYPE, BLOCK_COLUMN, TOKEN_COLUMN, trace_schema
from pipeline.trace import ROW_GROUP_TOKENS, TraceFile, TraceMetadata, TraceWriter, writer
from pipeline.trace.writer import Requests

TOKENS = 4000


def _group_rows(path: Path) -> list[int]:
    footer = pq.ParquetFile(path).metadata
    return [footer.row_group(g).num_rows for g in range(footer.num_row_groups)]


def _group_values(path: Path) -> list[int]:
    """Return how many token ids each row group has, as its footer says."""
    footer = pq.ParquetFile(path).metadata
    names = [footer.schema.column(i).path for i in range(footer.num_columns)]
    token = next(i for i, name in enumerate(names) if name.startswith(TOKEN_COLUMN))
    groups = range(footer.num_row_groups)
    return [footer.row_group(g).column(token).num_values for g in groups]


def test_a_row_group_ends_before_its_tokens_pass_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_TOKENS", 10)
    lengths = [4, 6, 1, 9, 5, 5, 1]
    path = write_trace(tmp_path / "a.parquet", [[7] * n for n in lengths])
    assert _group_values(path) == [10, 10, 10, 1]
    assert [len(ids) for ids in token_lists(path)] == lengths


def test_a_request_larger_than_the_budget_is_alone_in_its_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_TOKENS", 10)
    path = write_trace(tmp_path / "a.parquet", [[1] * n for n in (3, 25, 3, 11, 40)])
    assert _group_values(path) == [3, 25, 3, 11, 40]


def test_row_groups_do_not_depend_on_how_requests_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_TOKENS", 100)
    prompts = grouped_prompts(3, 40)
    whole = write_trace(tmp_path / "whole.parquet", prompts)
    parts = tmp_path / "parts.parquet"
    with TraceWriter(parts, TraceMetadata()) as trace:
        for begin in range(0, 40, 7):
            some = prompts[begin : begin + 7]
            names = [f"r{begin + i}" for i in range(len(some))]
            trace.write(requests(some, [0] * len(some), request_id=names))
    assert parts.read_bytes() == whole.read_bytes()
    assert max(_group_values(whole)) <= 100


def test_empty_prompts_are_limited_by_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_ROWS", 4)
    path = write_trace(tmp_path / "a.parquet", [[]] * 10)
    assert _group_rows(path) == [4, 4, 2]


def test_20_000_prompts_of_4_000_tokens_keep_to_8_million_tokens_a_row_group(
    tmp_path: Path,
) -> None:
    path = tmp_path / "large.parquet"
    offsets = np.arange(0, 1001 * TOKENS, TOKENS, dtype=np.int64)
    arrival = pa.repeat(0, 1000).cast(ARRIVAL_TYPE)
    with TraceWriter(path, TraceMetadata()) as trace:
        for batch in range(20):
            ids = np.arange(1000 * TOKENS, dtype=np.uint32) + np.uint32(batch)
            names = pa.array(np.arange(1000)).cast(pa.string())
            trace.write(Requests(pa.table({"request_id": names, "arrival": arrival}), ids, offsets))
    values = _group_values(path)
    assert sum(values) == 20_000 * TOKENS
    assert max(values) <= ROW_GROUP_TOKENS == 8_000_000
    assert len(values) == 10


def test_a_trace_without_requests_has_no_row_groups_and_the_whole_schema(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.parquet", [])
    assert _group_rows(path) == []
    assert pq.read_schema(path).remove_metadata() == trace_schema(TOKEN_COLUMN)


def test_token_ids_keep_all_their_32_bits_in_large_lists(tmp_path: Path) -> None:
    prompt = [0, 2**31, 2**32 - 1, 2**24 + 1]
    path = write_trace(tmp_path / "a.parquet", [prompt, prompt[::-1]])
    assert pq.read_schema(path).field(TOKEN_COLUMN).type == pa.large_list(pa.uint32())
    assert [ids.tolist() for ids in token_lists(path)] == [prompt, prompt[::-1]]
    assert column(rows_of(path), "first_token_id") == [0, 2**24 + 1]


def test_block_ids_keep_all_their_64_bits(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    ids = np.array([2**64 - 1, 2**63, 2**64 - 1, 2**63 + 1], np.uint64)
    carried = requests([[], []], [0, 0]).carried
    offsets = np.array([0, 2, 4], np.int64)
    batch = Requests(carried, ids, offsets, np.array([1000, 1024], np.uint32))
    with TraceWriter(path, TraceMetadata(block_tokens=512)) as trace:
        trace.write(batch)
    rows = rows_of(path)
    assert column(rows, BLOCK_COLUMN) == [[2**64 - 1, 2**63], [2**64 - 1, 2**63 + 1]]
    assert column(rows, "first_token_id") == [2**64 - 1] * 2
    assert column(rows, "prefix_tokens") == [0, 512]


def test_namespaces_share_no_prefix(tmp_path: Path) -> None:
    names = ["a", None, "a", None, "b"]
    path = write_trace(tmp_path / "a.parquet", [(1, 2)] * 5, namespace=names)
    assert column(rows_of(path), "prefix_seq") == [None, None, 0, 1, None]
    TraceFile.open(path).columns()


def test_arrivals_that_go_backwards_are_refused_within_and_between_batches(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "a.parquet", TraceMetadata()) as trace:
        trace.write(requests([[1], [1]], [5, 5]))
        with pytest.raises(TraceError, match="row 2: it arrived before the row above it"):
            trace.write(requests([[1]], [4]))
        with pytest.raises(TraceError, match="row 4: it arrived before"):
            trace.write(requests([[1], [1], [1]], [5, 6, 5]))


@pytest.mark.parametrize("rows", [1, 7, 100, 1000])
def test_batches_give_every_row_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_TOKENS", 500)
    path = write_trace(tmp_path / "a.parquet", grouped_prompts(5, 100))
    assert len(_group_rows(path)) > 4
    batches = list(TraceFile.open(path).batches(["seq", TOKEN_COLUMN, "nowhere"], rows))
    assert max(map(len, batches)) <= rows
    whole = pa.concat_tables(batches)
    assert whole.column_names == ["seq", TOKEN_COLUMN]
    assert whole["seq"].to_pylist() == list(range(100))
    assert whole[TOKEN_COLUMN].to_pylist() == grouped_prompts(5, 100)


def test_what_was_read_is_let_go(tmp_path: Path) -> None:
    path = write_large_trace(tmp_path / "a.parquet", 400_000)
    columns = ["seq", "prompt_tokens", "prefix_seq"]
    batches = TraceFile.open(path).batches(columns, 10_000)
    held = [pa.total_allocated_bytes() for _ in batches]
    assert len(held) >= 40
    row_group = 65_536 * (8 + 4 + 8)
    assert max(held) - min(held) < 4 * row_group


def test_rows_for_a_number_of_ids_follow_the_mean_length(tmp_path: Path) -> None:
    trace = TraceFile.open(write_trace(tmp_path / "a.parquet", [[1] * 20] * 50))
    assert trace.rows_of_ids(1000) == 50
    assert trace.rows_of_ids(100) == 5
    assert trace.rows_of_ids(1) == 1


def test_metadata_comes_back_as_it_was_written(tmp_path: Path) -> None:
    tokens = TraceMetadata("v", "ab" * 32, None, None, ("ä.jsonl", "b.jsonl"), "times in s")
    blocks = TraceMetadata(block_tokens=16, partial_block="floor", block_ids="global")
    for metadata in (tokens, blocks):
        path = tmp_path / "a.parquet"
        with TraceWriter(path, metadata) as trace:
            lengths = None if metadata is tokens else np.array([16], np.uint32)
            trace.write(requests([[1]], [0])._replace(prompt_tokens=lengths))
        assert TraceFile.open(path).metadata == metadata


def test_metadata_that_is_older_than_a_field_is_read_as_not_knowing_it(tmp_path: Path) -> None:
    [(key, text)] = TraceMetadata(block_tokens=16).as_parquet().items()
    assert "block_ids" not in json.loads(text)
    assert TraceMetadata.of_parquet({key: text}, tmp_path).block_ids is None


def test_a_trace_knows_whether_it_has_tokens_and_links(tmp_path: Path) -> None:
    trace = TraceFile.open(write_trace(tmp_path / "a.parquet", [[1]]))
    assert (trace.rows, trace.ids, trace.linked) == (1, TOKEN_COLUMN, True)
    bare = TraceFile.open(write_large_trace(tmp_path / "b.parquet", 10))
    assert (bare.rows, bare.ids, bare.linked) == (10, None, True)
