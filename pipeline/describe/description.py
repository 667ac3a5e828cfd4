"""describe_trace: a trace in, a few small tables of what is in it out."""

from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.describe.prefixes import SharedPrefixes, full_blocks, shared_prefixes
from pipeline.describe.reuse import last_uses, reuse_table
from pipeline.describe.sessions import session_prefix_tokens
from pipeline.describe.statements import (
    NO_BLOCKS,
    check_block_tokens,
    open_trace,
    statements,
)
from pipeline.prepare import ready_trace
from pipeline.trace import TraceColumns, TraceFile
from pipeline.tree import build_tree

_TOP = 10
_BATCH_ROWS = 1 << 18


class Section(NamedTuple):
    """One table of a description, and the question that it answers."""

    name: str
    question: str
    rows: pa.Table


class Names(NamedTuple):
    """The session and the tenant of each request as a number, -1 for none."""

    session: NDArray[np.int32]
    tenant: NDArray[np.int32]


def describe_trace(path: Path, block_tokens: int = NO_BLOCKS) -> list[Section]:
    """Return what is in a trace; hits are counted in full blocks of `block_tokens`."""
    check_block_tokens(block_tokens)
    with ready_trace(path) as trace:
        columns = trace.columns()
        names = Names(_numbered(trace, "session_id"), _numbered(trace, "tenant"))
        with open_trace(trace, block_tokens) as connection:
            told = {
                s.name: Section(s.name, s.question, connection.sql(s.sql).to_arrow_table())
                for s in statements()
            }
            overview, unlimited = told["overview"], told["unlimited_cache"]
            told["overview"] = overview._replace(rows=_with_metadata(overview.rows, path, trace))
            tree = build_tree(*columns.links, columns.wholes)
            shared = full_blocks(columns.prefix_tokens, block_tokens)
            own = full_blocks(session_prefix_tokens(tree, names.session), block_tokens)
            split = _split_by_session(unlimited.rows, own, shared)
            told["unlimited_cache"] = unlimited._replace(rows=split)
            prefixes = shared_prefixes(tree, block_tokens)
            tops = _top_prefixes(connection, columns, names, prefixes)
    reuse = Section(
        "reuse_distance",
        "how long ago was the prefix that a request finds last used: how much must a cache hold?",
        reuse_table(columns, last_uses(tree, shared)),
    )
    return [*told.values(), *tops, reuse]


def _numbered(trace: TraceFile, name: str) -> NDArray[np.int32]:
    """Return a number for each value of a column of names, -1 for null."""
    if name not in trace.names:
        return np.full(trace.rows, -1, np.int32)
    chunks = [c for table in trace.batches([name], _BATCH_ROWS) for c in table[name].chunks]
    coded = pa.chunked_array(chunks, pa.string()).dictionary_encode().combine_chunks()
    codes: NDArray[np.int32] = coded.indices.fill_null(-1).to_numpy()
    return codes


def _with_metadata(overview: pa.Table, path: Path, trace: TraceFile) -> pa.Table:
    """Return the overview with the trace's name before and its metadata after it."""
    about, text = trace.metadata, pa.string()
    whole = overview.add_column(0, "trace", pa.array([str(path)], text))
    for name, value, kind in (
        ("tokenizer", about.tokenizer, text),
        ("tokenizer_sha256", about.tokenizer_sha256, text),
        ("block_tokens", about.block_tokens, pa.int64()),
        ("partial_block", about.partial_block, text),
        ("sources", list(about.sources), pa.list_(text)),
        ("time_note", about.time_note, text),
    ):
        whole = whole.append_column(name, pa.array([value], kind))
    return whole


def _split_by_session(
    unlimited: pa.Table, own: NDArray[np.int64], shared: NDArray[np.int64]
) -> pa.Table:
    """Return an unlimited cache's hits within and across sessions, above their total.

    What a request shares with an earlier one of its session is within; what it finds beyond
    that, across. Without blocks the two add up to the links.
    """
    [total] = unlimited.to_pylist()
    prompts = total["prompt_tokens"]
    rows = [
        {
            "scope": scope,
            "requests_with_hit": int(np.count_nonzero(hits)),
            "hit_tokens": int(hits.sum()),
            "hit_ratio": round(int(hits.sum()) / prompts, 6) if prompts else None,
        }
        for scope, hits in (("within_session", own), ("across_sessions", shared - own))
    ]
    schema = pa.schema([pa.field("scope", pa.string()), *unlimited.schema])
    parts = [row | {"prompt_tokens": prompts} for row in rows]
    return pa.Table.from_pylist([*parts, {"scope": "total"} | total], schema=schema)


def _top_prefixes(
    connection: duckdb.DuckDBPyConnection,
    columns: TraceColumns,
    names: Names,
    prefixes: SharedPrefixes,
) -> list[Section]:
    """Return the prefixes of most requests, and those that save most tokens."""
    sections = []
    for name, question, most in (
        ("prefixes_by_requests", "which prefixes do most requests share?", prefixes.requests),
        ("prefixes_by_tokens", "which prefixes save most tokens?", prefixes.saved_tokens),
    ):
        top = prefixes.top(most, _TOP)
        rows = _prefix_table(connection, columns, names, prefixes, top)
        sections.append(Section(name, question, rows))
    return sections


def _prefix_table(
    connection: duckdb.DuckDBPyConnection,
    columns: TraceColumns,
    names: Names,
    prefixes: SharedPrefixes,
    top: NDArray[np.int64],
) -> pa.Table:
    first = prefixes.first_seq[top]
    members = [prefixes.members(int(prefix)) for prefix in top]
    last = np.array([requests.max() for requests in members], np.int64)
    wanted = "select seq, request_id from trace where seq in (select unnest($1::bigint[]))"
    request_id = dict(connection.execute(wanted, [first.tolist()]).fetchall())
    arrival = [pa.array(columns.arrival_us[seq]).cast(pa.timestamp("us")) for seq in (first, last)]
    return pa.table(
        {
            "requests": prefixes.requests[top],
            "prefix_tokens": prefixes.prefix_tokens[top],
            "edge_tokens": prefixes.edge_tokens[top],
            "saved_tokens": prefixes.saved_tokens[top],
            "sessions": pa.array([_distinct(names.session[m]) for m in members], pa.int64()),
            "tenants": pa.array([_distinct(names.tenant[m]) for m in members], pa.int64()),
            "first_arrival": arrival[0],
            "last_arrival": arrival[1],
            "first_request_id": pa.array([request_id[seq] for seq in first.tolist()], pa.string()),
        }
    )


def _distinct(codes: NDArray[np.int32]) -> int:
    """Count different names; none is no name."""
    return int(np.count_nonzero(np.bincount(codes[codes >= 0])))
