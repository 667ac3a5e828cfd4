"""Yesterday's trace before today's, linked as one, so that a replay starts with a warm cache."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.errors import TraceError
from pipeline.files import whole_file
from pipeline.prepare import check_block_size, made_beside, read_requests
from pipeline.tables import ARRIVAL_TYPE, EARLIEST_US
from pipeline.trace import TraceFile, TraceMetadata, TraceWriter
from pipeline.trace.checks import check_order

_BATCH_ROWS = 1 << 18


class Joined(NamedTuple):
    """A linked trace without token ids; its first `warmup_rows` come from the warm-up trace."""

    trace: TraceFile
    warmup_rows: int


@contextmanager
def joined_trace(warmup: Path, trace: Path) -> Iterator[Joined]:
    """Open two traces as one, the warm-up's requests before the trace's, with links over both.

    Where the warm-up ends after the trace begins, as it does if both count from 0, it is moved
    back as a whole until it ends as the trace begins. The joined trace is kept beside the trace,
    named by the content of both; where the folder can't be written, in a temporary folder.
    TraceError if the ids of the two can't be compared.
    """
    before, after = TraceFile.open(warmup), TraceFile.open(trace)
    for file in (before, after):
        _check_ids(file)
    _check_comparable(before, after)
    shift_us = _shift_us(before, after)

    def write(target: Path) -> None:
        _write(before, after, shift_us, target)

    with made_beside(after, "warmed", write, before) as joined:
        yield Joined(TraceFile.open(joined), before.rows)


def _check_ids(trace: TraceFile) -> None:
    """Raise TraceError unless the trace can be linked anew."""
    if trace.ids is None:
        raise TraceError(
            f"{trace.path}: its token ids were dropped, so it can't be linked to another trace:"
            " tokenize its logs again, without --no-tokens"
        )
    check_block_size(trace)


def _check_comparable(before: TraceFile, after: TraceFile) -> None:
    """Raise TraceError if equal ids of the two may not be equal tokens."""
    one, other = before.metadata, after.metadata
    pair = f"warm-up {before.path} and trace {after.path} can't be linked"
    if before.ids != after.ids:
        raise TraceError(
            f"{pair}: one has {before.ids}, the other {after.ids}: make both from logs of one kind"
        )
    keys = {one.tokenizer_sha256, other.tokenizer_sha256} - {None}
    if len(keys) > 1:
        raise TraceError(
            f"{pair}: their tokens are of {one.tokenizer} and {other.tokenizer} (or of another"
            " version, or chat template): tokenize both with the same"
        )
    if one.block_tokens != other.block_tokens:
        raise TraceError(
            f"{pair}: their blocks are of {one.block_tokens} and {other.block_tokens} tokens:"
            " take a warm-up with blocks of the same size"
        )
    if one.block_tokens and not _one_id_space(before, after):
        raise TraceError(
            f"{pair}: nothing says that equal block ids of the two are equal blocks: they would"
            " have to be parts of one trace, or both be tokenized with --block-ids global"
        )


def _one_id_space(before: TraceFile, after: TraceFile) -> bool:
    """Tell whether equal block ids of two traces are known to be equal blocks.

    They are if tokenize was told so for both, in one file, and in two parts of one trace. Parts
    tell the same of their logs, and together they have no more requests than these had.
    """
    one, other = before.metadata, after.metadata
    if one.block_ids == other.block_ids == "global" or before.path.samefile(after.path):
        return True
    requests = other.counts.get("requests")
    whole = requests if isinstance(requests, int) else 0
    return one == other and before.rows + after.rows <= whole


def _shift_us(before: TraceFile, after: TraceFile) -> int:
    """Return how far the warm-up has to move, 0 or less; TraceError if that is out of dates."""
    warmup, trace = _arrivals(before), _arrivals(after)
    shift = min(0, int(trace[0]) - int(warmup[-1]))
    if int(warmup[0]) + shift < EARLIEST_US:
        raise TraceError(
            f"warm-up {before.path} would begin before year 1 if it ended when trace {after.path}"
            f" begins: it lasts {(int(warmup[-1]) - int(warmup[0])) / 86_400e6:,.0f} days: check"
            " the unit of its times"
        )
    return shift


def _arrivals(trace: TraceFile) -> NDArray[np.int64]:
    """Return when the requests of a trace came, 0 for all if it doesn't say; check the order."""
    if "arrival" not in trace.names:
        return np.zeros(trace.rows, np.int64)
    tables = trace.batches(["arrival"], _BATCH_ROWS)
    arrival = np.concatenate([table["arrival"].cast(pa.int64()).to_numpy() for table in tables])
    check_order(str(trace.path), arrival)
    return arrival


def _write(before: TraceFile, after: TraceFile, shift_us: int, target: Path) -> None:
    """Write the requests of both, without their ids, with links over both."""
    outputs = before.has_output_ids and after.has_output_ids
    metadata, source = _metadata(before, after, shift_us), str(after.path)
    with (
        whole_file(target) as temporary,
        TraceWriter(temporary, metadata, source=source, keep_ids=False, outputs=outputs) as writer,
    ):
        for trace, shift in ((before, shift_us), (after, 0)):
            for requests in read_requests(trace, outputs=outputs):
                writer.write(requests._replace(carried=_moved(requests.carried, shift)))


def _moved(carried: pa.Table, shift_us: int) -> pa.Table:
    """Return the rows with other arrivals."""
    arrival = carried["arrival"].cast(pa.int64()).to_numpy() + shift_us
    place = carried.column_names.index("arrival")
    return carried.set_column(place, "arrival", pa.array(arrival).cast(ARRIVAL_TYPE))


def _metadata(before: TraceFile, after: TraceFile, shift_us: int) -> TraceMetadata:
    """Return what the joined trace says of itself: the trace's, and the sources of both."""
    one, other = before.metadata, after.metadata
    moved = f"warm-up moved by {shift_us / 1e6:g} s" if shift_us else None
    known = one if other.tokenizer_sha256 is None else other
    partial = (one.partial_block, other.partial_block)
    return replace(
        other,
        tokenizer=known.tokenizer,
        tokenizer_sha256=known.tokenizer_sha256,
        partial_block="ceil" if "ceil" in partial else other.partial_block,
        sources=(*one.sources, *other.sources),
        time_note="; ".join(note for note in (other.time_note, moved) if note) or None,
        counts={},
    )
