"""TraceWriter: requests in arrival order in, row groups by token budget out, linked on the way."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pipeline.errors import TraceError
from pipeline.tables import BLOCK_COLUMN, OUTPUT_COLUMN, TOKEN_COLUMN, trace_schema
from pipeline.trace.linker import Linker, Lists
from pipeline.trace.metadata import TraceMetadata

ROW_GROUP_TOKENS = 8_000_000
"""A row group holds at most so many token ids (32 MB), or one request: readers hold a group."""

ROW_GROUP_ROWS = 131_072
_PAGE_BYTES = 8 << 20  # prefixes repeat far apart: pages of 1 MB make files twice as large


class Requests(NamedTuple):
    """A batch of requests in arrival order.

    carried        the trace's columns that are only carried through, request_id and arrival
                   among them; one row a request
    ids            token ids (uint32) or block ids (uint64) of all prompts, one after another
    offsets        int64[requests + 1]: where each prompt's ids begin in `ids`
    prompt_tokens  uint32[requests], or None where ids are tokens
    outputs        token ids of all outputs, None if they aren't known
    """

    carried: pa.Table
    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    prompt_tokens: NDArray[np.uint32] | None = None
    outputs: Lists | None = None


class TraceWriter:
    """Writes a trace, finding its prefix links; a context manager."""

    def __init__(
        self,
        path: Path,
        metadata: TraceMetadata,
        *,
        source: str = "",
        keep_ids: bool = True,
        outputs: bool = False,
    ) -> None:
        """Write to `path`; errors name `source` as the file that the requests come from.

        With `outputs`, which no block trace can have, every batch brings the ids of its outputs.
        """
        self._source = source
        self._block_tokens = metadata.block_tokens
        self._ids_column = BLOCK_COLUMN if self._block_tokens else TOKEN_COLUMN
        assert not (outputs and self._block_tokens)
        self._outputs = outputs
        kept = ("ids" if keep_ids else "links") if outputs else None
        schema = trace_schema(self._ids_column if keep_ids else None, outputs=kept)
        self._schema = schema.with_metadata(metadata.as_parquet())
        self._file = open_parquet(path, self._schema)
        self.links = Linker(path.parent, self._block_tokens)
        self._background = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._pending: list[pa.Table] = []
        self._pending_ids = 0
        self._last_arrival: int | None = None
        self.rows = 0
        self.prompt_tokens = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._flush()
            self._wait()
        finally:
            self._background.shutdown()
            self._file.close()

    def write(self, requests: Requests) -> None:
        """Link a batch of requests and write it; TraceError if arrivals go backwards."""
        self._check_order(requests.carried)
        table = self._linked(requests)
        ids = np.diff(requests.offsets)
        if requests.outputs is not None:
            ids += np.diff(requests.outputs.offsets)
        begin = 0
        while begin < len(ids):
            room = ROW_GROUP_TOKENS - self._pending_ids
            fitting = int(np.searchsorted(np.cumsum(ids[begin:]), room, side="right"))
            fitting = min(fitting, ROW_GROUP_ROWS - sum(map(len, self._pending)))
            if fitting == 0 and self._pending:
                self._flush()
                continue
            end = begin + max(fitting, 1)
            self._pending.append(table.slice(begin, end - begin))
            self._pending_ids += int(ids[begin:end].sum())
            begin = end

    def _check_order(self, carried: pa.Table) -> None:
        arrival = carried["arrival"].cast(pa.int64()).to_numpy()
        before = self._last_arrival if self._last_arrival is not None else arrival[:1]
        steps = np.diff(arrival, prepend=before)
        if (steps < 0).any():
            row = self.rows + int(np.argmax(steps < 0))
            raise TraceError(
                f"{self._source}: row {row}: it arrived before the row above it: sort by arrival"
            )
        if len(arrival):
            self._last_arrival = int(arrival[-1])

    def _linked(self, requests: Requests) -> pa.Table:
        """Return the batch as rows of the trace."""
        carried, ids, offsets = requests.carried, requests.ids, requests.offsets
        rows = len(offsets) - 1
        names = carried["namespace"].to_pylist() if "namespace" in carried.column_names else None
        prompt_tokens = requests.prompt_tokens
        if prompt_tokens is None:
            prompt_tokens = np.diff(offsets).astype(np.uint32)
        outputs = requests.outputs
        assert self._outputs == (outputs is not None)
        columns = self.links.link(Lists(ids, offsets), prompt_tokens, outputs, names)
        first = np.zeros(rows, np.uint64)
        some = offsets[:-1] < offsets[1:]
        first[some] = ids[offsets[:-1][some]]
        columns |= {
            "seq": np.arange(self.rows, self.rows + rows, dtype=np.uint64),
            self._ids_column: pa.LargeListArray.from_arrays(offsets, pa.array(ids)),
            "prompt_tokens": prompt_tokens,
            "first_token_id": first,
        }
        if outputs is not None:
            lists = pa.LargeListArray.from_arrays(outputs.offsets, pa.array(outputs.ids))
            columns[OUTPUT_COLUMN] = lists
        self.rows += rows
        self.prompt_tokens += int(prompt_tokens.sum(dtype=np.int64))
        return conform(carried, columns, self._schema)

    def _flush(self) -> None:
        """Write a row group, while the next one is being linked."""
        if self._pending:
            self._wait()
            table = pa.concat_tables(self._pending)
            rows = max(len(table), 1)
            write = self._file.write_table
            self._writing = self._background.submit(write, table, row_group_size=rows)
        self._pending, self._pending_ids = [], 0

    def _wait(self) -> None:
        if self._writing is not None:
            self._writing.result()
            self._writing = None


def conform(carried: pa.Table, columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    """Return a table of `schema`: from `columns`, else from `carried`, else null."""
    arrays = []
    for field in schema:
        if field.name in columns:
            values = columns[field.name]
            if not isinstance(values, pa.Array | pa.ChunkedArray):
                values = pa.array(values)
        elif field.name in carried.column_names:
            values = carried[field.name]
        else:
            values = pa.nulls(len(carried), field.type)
        arrays.append(values if values.type == field.type else values.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def open_parquet(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Open a Parquet file for writing with the settings that all our files share.

    The same rows written in the same row groups give the same bytes.
    """
    strings = [f.name for f in schema if pa.types.is_string(f.type)]
    lists = [f.name for f in schema if pa.types.is_large_list(f.type)]
    return pq.ParquetWriter(
        path,
        schema,
        version="2.6",
        compression="zstd",
        compression_level=3,
        use_dictionary=strings,
        column_encoding={f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in lists},
        data_page_size=_PAGE_BYTES,
        write_statistics=[f.name for f in schema if f.name not in lists],
        write_page_checksum=True,
    )
