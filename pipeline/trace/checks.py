"""The laws of a trace's integer columns, checked as they are read; errors name row and value."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import TraceError
from pipeline.tables import EARLIEST_US, LATEST_US, WHOLE_COLUMNS
from pipeline.tree import Wholes


class TraceColumns(NamedTuple):
    """The columns that decide a replay, one item a request.

    arrival_us           int64   since 1970-01-01
    prompt_tokens        uint32
    first_token_id       uint64
    prefix_seq           int64   -1 for none
    prefix_tokens        uint32
    whole_tokens         uint32  of prompt + output; these three are empty arrays in a trace
    whole_prefix_seq     int64   that doesn't know its outputs
    whole_prefix_tokens  uint32
    """

    arrival_us: NDArray[np.int64]
    prompt_tokens: NDArray[np.uint32]
    first_token_id: NDArray[np.uint64]
    prefix_seq: NDArray[np.int64]
    prefix_tokens: NDArray[np.uint32]
    whole_tokens: NDArray[np.uint32] = np.empty(0, np.uint32)
    whole_prefix_seq: NDArray[np.int64] = np.empty(0, np.int64)
    whole_prefix_tokens: NDArray[np.uint32] = np.empty(0, np.uint32)

    @property
    def links(self) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.uint32]]:
        """Return what `tree.build_tree` takes of prompts."""
        return self.prompt_tokens, self.prefix_seq, self.prefix_tokens

    @property
    def wholes(self) -> Wholes:
        """Return what it takes of prompts with their outputs."""
        return Wholes(self.whole_tokens, self.whole_prefix_seq, self.whole_prefix_tokens)

    @property
    def has_outputs(self) -> bool:
        """Whether the trace knows its outputs, so that a link may reach into one."""
        return len(self.whole_tokens) > 0


def check_columns(path: Path, names: Collection[str]) -> None:
    """Raise TraceError if only some of the columns that link outputs are there."""
    lacking = [name for name in WHOLE_COLUMNS if name not in names]
    if 0 < len(lacking) < len(WHOLE_COLUMNS):
        raise TraceError(
            f"{path}: it links its outputs, but has no column {', '.join(lacking)};"
            f" make new links with: replay link {path} -o NEW.parquet"
        )


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


def check_links(
    path: str, columns: TraceColumns, namespaces: NDArray[np.int64], shortest: int = 1
) -> None:
    """Raise TraceError unless every link names an earlier request that could share so much.

    `namespaces` numbers the namespace of each request. Prompts of fewer tokens than `shortest`
    have no first id: they are empty, or no block of them has one.
    """
    length, shared = columns.prompt_tokens, columns.prefix_tokens
    link, rows = columns.prefix_seq, np.arange(len(columns.prompt_tokens))
    linked = link >= 0
    earlier = np.where(linked, np.minimum(link, rows), 0)
    reach = columns.whole_tokens if columns.has_outputs else length
    _refuse(path, linked & (link >= rows), "prefix_seq", link, "is not an earlier row")
    _refuse(path, linked != (shared > 0), "prefix_tokens", shared, "does not fit its prefix_seq")
    _refuse(path, shared > length, "prefix_tokens", shared, "is more than its prompt_tokens")
    too_long = linked & (shared > reach[earlier])
    _refuse(path, too_long, "prefix_tokens", shared, "is more than that earlier request has")
    _refuse_strangers(path, columns, namespaces, "prefix_seq", linked, shortest)
    unlinked = np.flatnonzero(~linked & (length >= shortest))
    heads = np.stack([columns.first_token_id[unlinked], namespaces[unlinked].astype(np.uint64)])
    _, firsts = np.unique(heads, axis=1, return_index=True)
    other = np.zeros(len(length), np.bool_)
    other[np.delete(unlinked, firsts)] = True
    _refuse(path, other, "prefix_tokens", shared, "is less than an earlier request shares with it")
    if columns.has_outputs:
        _check_wholes(path, columns, namespaces, shortest)


def _check_wholes(
    path: str, columns: TraceColumns, namespaces: NDArray[np.int64], shortest: int
) -> None:
    """Raise TraceError unless prompt + output shares its prompt with itself, or more with others.

    Who shares more than the prompt shares the prompt too, so that `prefix_tokens` is all of it.
    """
    length, whole = columns.prompt_tokens, columns.whole_tokens
    link, shared = columns.whole_prefix_seq, columns.whole_prefix_tokens
    rows = np.arange(len(length))
    other = link != rows
    earlier = np.clip(link, 0, rows)
    name = "whole_prefix_tokens"
    _refuse(path, whole < length, "whole_tokens", whole, "is less than its prompt_tokens")
    _refuse(path, (link < 0) | (link > rows), "whole_prefix_seq", link, "is a later row")
    _refuse(path, shared < length, name, shared, "is less than its prompt_tokens")
    _refuse(path, shared > whole, name, shared, "is more than its whole_tokens")
    _refuse(path, other != (shared > length), name, shared, "does not fit its whole_prefix_seq")
    too_long = other & (shared > whole[earlier])
    _refuse(path, too_long, name, shared, "is more than that earlier request has")
    less = other & (columns.prefix_tokens < length)
    _refuse(path, less, "prefix_tokens", columns.prefix_tokens, "is less than its output's link")
    _refuse_strangers(path, columns, namespaces, "whole_prefix_seq", other, shortest)


def _refuse_strangers(
    path: str,
    columns: TraceColumns,
    namespaces: NDArray[np.int64],
    name: str,
    linked: NDArray[np.bool_],
    shortest: int,
) -> None:
    """Raise TraceError for links to another namespace or first token.

    An empty prompt says nothing of the first token of its output.
    """
    link: NDArray[np.int64] = getattr(columns, name)
    other = np.where(linked, link, np.arange(len(link)))
    has_first = columns.prompt_tokens >= shortest
    strange = columns.first_token_id != columns.first_token_id[other]
    strange &= has_first & has_first[other]
    _refuse(path, strange, name, link, "names a request with another first token")
    strange = namespaces != namespaces[other]
    _refuse(path, strange, name, link, "names a request of another namespace")


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
