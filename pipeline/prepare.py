"""A trace made ready for replay: links found for a file that has none, tokens dropped."""

import errno
import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.errors import TraceError
from pipeline.files import whole_file
from pipeline.tables import (
    ARRIVAL_TYPE,
    BLOCK_COLUMN,
    OUTPUT_COLUMN,
    TRACE,
    WHOLE_COLUMNS,
    trace_schema,
)
from pipeline.trace.linker import Lists
from pipeline.trace.reader import TraceFile
from pipeline.trace.writer import Requests, TraceWriter, conform, open_parquet

_NOT_TO_BE_WRITTEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_MADE = ("seq", "first_token_id", "prefix_seq", "prefix_tokens", *WHOLE_COLUMNS)
_BATCH_IDS = 4_000_000
_BATCH_ROWS = 1 << 16


@contextmanager
def ready_trace(path: Path) -> Iterator[TraceFile]:
    """Open a trace that can be replayed.

    A file with token ids and no links gets them once, as a trace without tokens beside it, named
    by its content; where the folder can't be written, in a temporary folder.
    """
    trace = TraceFile.open(path)
    if trace.linked:
        yield trace
        return
    with made_beside(
        trace, "links", lambda links: write_links(trace, links, keep_ids=False)
    ) as links:
        yield TraceFile.open(links)


@contextmanager
def made_beside(
    trace: TraceFile, kind: str, write: Callable[[Path], None], *others: TraceFile
) -> Iterator[Path]:
    """Yield a file that `write` makes of a trace and others, if it is not there yet.

    It is kept beside the trace, named by the content of all; where the folder can't be written,
    in a temporary folder. What was made of earlier content of the trace goes.
    """
    keys = [_content_key(file) for file in (trace, *others)]
    start = f"{trace.path.name}.{kind}-"
    made = trace.path.with_name(start + "-".join(keys))
    with ExitStack() as stack:
        if not made.exists():
            if _write_beside(made, write):
                key = "([0-9a-f]{16})"
                named = re.compile(re.escape(start) + "-".join([key] * len(keys)))
                for other in made.parent.iterdir():
                    found = named.fullmatch(other.name)
                    if found and found[1] != keys[0]:
                        other.unlink(missing_ok=True)
            else:
                folder = stack.enter_context(tempfile.TemporaryDirectory())
                made = Path(folder, made.name)
                write(made)
        yield made


def _write_beside(made: Path, write: Callable[[Path], None]) -> bool:
    """Write a file; False where that is not allowed."""
    try:
        write(made)
    except OSError as error:
        if error.errno not in _NOT_TO_BE_WRITTEN:
            raise
        return False
    return True


def write_links(trace: TraceFile, target: Path, *, keep_ids: bool = True) -> None:
    """Write a trace anew from its token or block ids, with new seq and links.

    Outputs are linked too where their token ids are there.
    """
    if trace.ids is None:
        raise TraceError(f"{trace.path}: it has no token ids, so its links can't be made anew")
    check_block_size(trace)
    outputs = trace.has_output_ids
    with (
        whole_file(target) as temporary,
        TraceWriter(
            temporary,
            trace.metadata,
            source=str(trace.path),
            keep_ids=keep_ids,
            outputs=outputs,
        ) as writer,
    ):
        for requests in read_requests(trace, outputs=outputs):
            writer.write(requests)


def check_block_size(trace: TraceFile) -> None:
    """Raise TraceError for blocks of which nothing says how many tokens they have."""
    if trace.ids == BLOCK_COLUMN and not trace.metadata.block_tokens:
        raise TraceError(f"{trace.path}: {BLOCK_COLUMN} without a block size in its metadata")


def read_requests(trace: TraceFile, *, outputs: bool) -> Iterator[Requests]:
    """Yield a trace's requests in batches, with their ids and, if asked for, those of outputs.

    What a foreign file lacks gets its plain default.
    """
    assert trace.ids is not None
    made = _MADE if outputs else (*_MADE, OUTPUT_COLUMN)
    names = [column.name for column in TRACE if column.name not in made]
    first_row = 0
    for table in trace.batches(names, trace.rows_of_ids(_BATCH_IDS)):
        yield _requests(table, trace.ids, first_row)
        first_row += len(table)


def drop_tokens(trace: TraceFile, target: Path) -> None:
    """Write a trace without its token or block ids; it replays to the same decisions.

    What is known of its outputs stays, as links.
    """
    if target.exists() and target.samefile(trace.path):
        raise TraceError(f"{target}: is the trace itself: name another file, its tokens would go")
    if not trace.linked:
        write_links(trace, target, keep_ids=False)
        return
    trace.columns()
    schema = trace_schema(None, outputs="links" if trace.has_outputs else None)
    schema = schema.with_metadata(trace.metadata.as_parquet())
    with whole_file(target) as temporary, open_parquet(temporary, schema) as file:
        for table in trace.batches(schema.names, _BATCH_ROWS):
            file.write_table(conform(table, {}, schema))


def _requests(table: pa.Table, ids: str, first_row: int) -> Requests:
    """Return a table's rows as requests."""
    prompts = _lists(table, ids)
    outputs = _lists(table, OUTPUT_COLUMN) if OUTPUT_COLUMN in table.column_names else None
    rows = np.arange(first_row, first_row + len(table))
    carried = table.drop_columns([n for n in (ids, OUTPUT_COLUMN) if n in table.column_names])
    if "request_id" not in table.column_names:
        carried = carried.append_column("request_id", pa.array(rows).cast(pa.string()))
    if "arrival" not in table.column_names:
        carried = carried.append_column("arrival", pa.repeat(0, len(table)).cast(ARRIVAL_TYPE))
    prompt_tokens = table["prompt_tokens"].to_numpy() if ids == BLOCK_COLUMN else None
    return Requests(carried, *prompts, prompt_tokens, outputs)


def _lists(table: pa.Table, name: str) -> Lists:
    lists = table[name].combine_chunks()
    offsets = lists.offsets.to_numpy()
    return Lists(lists.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0])


def _content_key(trace: TraceFile) -> str:
    """Return what changes with a file's content, or with what its links have to tell."""
    person = b"outputs" if trace.has_output_ids else b""
    with trace.path.open("rb") as stream:
        made = hashlib.blake2b(digest_size=8, person=person)
        return hashlib.file_digest(stream, lambda: made).hexdigest()
