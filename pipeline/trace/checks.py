"""The laws of a trace's integer columns, checked as they are read; errors name row and value."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import TraceError
from pipeline.tables import EARLIEST_US, LATEST_US


class TraceColumns(NamedTuple):
    """The columns that decide a replay, one item a request.

    arrival_us      int64   since 1970-01-01
    prompt_tokens   uint32
    first_token_id  uint64
    prefix_seq      int64   -1 for none
    prefix_tokens   uint32
    """

    arrival_us: NDArray[np.int64]
    prompt_tokens: NDArray[np.uint32]
    first_token_id: NDArray[np.uint64]
    prefix_seq: NDArray[np.int64]
    prefix_tokens: NDArray[np.uint32]


def check_order(path: str, arrival_us: NDArray[np.int64]) -> None:
    """Raise TraceError unless arrivals are dates and never go backwards."""
    wrong = (arrival_us < EARLIEST_US) | (arrival_us > LATEST_US)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TraceError(f"{path}: row {row}: its arrival is beyond year 9999: check its unit")
    steps = np.diff(arrival_us)
    if (steps < 0).any():
        row = int(np.argmax(steps < 0)) + 1
        raise TraceError(
            f"{path}: row {row} arrived {-int(steps[row - 1]) / 1e6:g} s before the row above it:"
            " sort the trace by arrival"
        )


def check_seq(path: str, seq: NDArray[np.uint64]) -> None:
    """Raise TraceError unless `seq` counts the rows from 0."""
    wrong = seq != np.arange(len(seq), dtype=np.uint64)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TraceError(_broken(path, row, f"seq is {seq[row]}"))


def check_links(path: str, columns: TraceColumns, namespaces: NDArray[np.int64]) -> None:
    """Raise TraceError unless every link names an earlier request that could share so much.

    `namespaces` numbers the namespace of each request.
    """
    length, shared = columns.prompt_tokens, columns.prefix_tokens
    link, rows = columns.prefix_seq, np.arange(len(columns.prompt_tokens))
    linked = link >= 0
    earlier = np.where(linked, np.minimum(link, rows), 0)
    _refuse(path, linked & (link >= rows), "prefix_seq", link, "is not an earlier row")
    _refuse(path, linked != (shared > 0), "prefix_tokens", shared, "does not fit its prefix_seq")
    _refuse(path, shared > length, "prefix_tokens", shared, "is more than its prompt_tokens")
    too_long = linked & (shared > length[earlier])
    _refuse(path, too_long, "prefix_tokens", shared, "is more than that earlier request has")
    other = linked & (columns.first_token_id != columns.first_token_id[earlier])
    _refuse(path, other, "prefix_seq", link, "names a request with another first token")
    other = linked & (namespaces != namespaces[earlier])
    _refuse(path, other, "prefix_seq", link, "names a request of another namespace")
    unlinked = np.flatnonzero(~linked & (length > 0))
    heads = np.stack([columns.first_token_id[unlinked], namespaces[unlinked].astype(np.uint64)])
    _, firsts = np.unique(heads, axis=1, return_index=True)
    other = np.zeros(len(length), np.bool_)
    other[np.delete(unlinked, firsts)] = True
    _refuse(path, other, "prefix_tokens", shared, "is less than an earlier request shares with it")


def _refuse(
    path: str, wrong: NDArray[np.bool_], column: str, values: NDArray[np.integer], why: str
) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        raise TraceError(_broken(path, row, f"{column} is {values[row]}, which {why}"))


def _broken(path: str, row: int, what: str) -> str:
    return (
        f"{path}: row {row}: {what}: rows were filtered, reordered or cut after linking;"
        f" make new links with: replay link {path} -o NEW.parquet"
    )
