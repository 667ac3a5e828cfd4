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
from pipeline.links import LinkFinder, grown
from pipeline.tables import BLOCK_COLUMN, TOKEN_COLUMN, trace_schema
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
    """

    carried: pa.Table
    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    prompt_tokens: NDArray[np.uint32] | None = None


class TraceWriter:
    """Writes a trace, finding its prefix links; a context manager."""

    def __init__(
        self, path: Path, metadata: TraceMetadata, *, source: str = "", keep_ids: bool = True
    ) -> None:
        """Write to `path`; errors name `source` as the file that the requests come from."""
        self._source = source
        self._block_tokens = metadata.block_tokens
        self._ids_column = BLOCK_COLUMN if self._block_tokens else TOKEN_COLUMN
        schema = trace_schema(self._ids_column if keep_ids else None)
        self._schema = schema.with_metadata(metadata.as_parquet())
        self._file = open_parquet(path, self._schema)
        self._links = LinkFinder(path.parent)
        self._background = ThreadPoolExecutor(1)
        self._writing: Future[None] | None = None
        self._pending: list[pa.Table] = []
        self._pending_ids = 0
        self._last_arrival: int | None = None
        self._lengths = np.empty(1 << 10, np.uint32)  # of the prompts so far
        self.rows = 0
        self.prompt_tokens = 0
        self.prefix_tokens = 0
        self.extending = 0  # prompts that an earlier prompt is the beginning of
        self.contained = 0  # prompts that are the beginning of an earlier, longer one

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
        if self._block_tokens:
            assert prompt_tokens is not None
            halves = ids.astype(np.uint64, copy=False).view(np.uint32)
            prefix_seq, prefix = self._links.link(halves, 2 * offsets, names)
            prefix = prefix // 2 * self._block_tokens
        else:
            prompt_tokens = np.diff(offsets).astype(np.uint32)
            prefix_seq, prefix = self._links.link(ids, offsets, names)
        prefix = self._within_both(prompt_tokens, prefix_seq, prefix)
        prefix_seq = np.where(prefix > 0, prefix_seq, -1)
        first = np.zeros(rows, np.uint64)
        some = offsets[:-1] < offsets[1:]
        first[some] = ids[offsets[:-1][some]]
        columns = {
            "seq": np.arange(self.rows, self.rows + rows, dtype=np.uint64),
            self._ids_column: pa.LargeListArray.from_arrays(offsets, pa.array(ids)),
            "prompt_tokens": prompt_tokens,
            "first_token_id": first,
            "prefix_seq": pa.array(prefix_seq, mask=prefix_seq < 0).cast(pa.uint64(), safe=False),
            "prefix_tokens": prefix.astype(np.uint32),
        }
        self.rows += rows
        self.prompt_tokens += int(prompt_tokens.sum(dtype=np.int64))
        self.prefix_tokens += int(prefix.sum())
        return conform(carried, columns, self._schema)

    def _within_both(
        self,
        prompt_tokens: NDArray[np.uint32],
        prefix_seq: NDArray[np.int64],
        prefix: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return shared tokens, no more than either prompt has: a last block may be partial."""
        rows = self.rows + len(prompt_tokens)
        self._lengths = grown(self._lengths, self.rows, rows)
        self._lengths[self.rows : rows] = prompt_tokens
        earlier = np.where(prefix_seq >= 0, self._lengths[prefix_seq], 0)
        shared = np.minimum(prefix, np.minimum(prompt_tokens, earlier))
        longer = np.where(shared > 0, prompt_tokens.astype(np.int64) - earlier, 0)
        self.extending += int(((longer > 0) & (shared == earlier)).sum())
        self.contained += int(((longer < 0) & (shared == prompt_tokens)).sum())
        return shared

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
