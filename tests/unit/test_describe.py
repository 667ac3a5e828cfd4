"""What is in a trace: small ones, counted by hand, and awkward ones."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import Prompts, names_in, requests, write_tokens, write_trace

from pipeline.describe import describe_sql, describe_trace, statements
from pipeline.describe.prefixes import shared_prefixes
from pipeline.describe.reuse import last_uses
from pipeline.describe.sessions import session_prefix_tokens
from pipeline.errors import TraceError, UsageError
from pipeline.prepare import drop_tokens
from pipeline.report import render
from pipeline.tables import trace_schema
from pipeline.trace import Lists, TraceFile, TraceMetadata, TraceWriter
from pipeline.tree import build_tree

Rows = list[dict[str, Any]]

PROMPTS: Prompts = [
    (1, 2, 3, 4),
    (1, 2, 5, 6, 7),
    (1, 2, 3, 4, 8, 9),
    (1, 2, 5, 6),
    (),
    (1, 2, 3, 4, 8, 9),
]
SECONDS = [0, 1, 3, 6, 6, 10]
CARRIED = {
    "session_id": ["a", "b", "a", None, None, "b"],
    "tenant": ["x", "x", "x", "y", None, "x"],
    "output_tokens": [10, None, 30, None, None, 20],
}
POINTS = ("counted", "mean", "p0", "p10", "p50", "p90", "p99", "p100")
NOTHING = (0, *[None] * 7)


def write_example(path: Path) -> Path:
    return write_trace(path, PROMPTS, [1_000_000 * s for s in SECONDS], **CARRIED)


def described(path: Path, block_tokens: int = 1) -> dict[str, Rows]:
    """Return a description's rows as its JSON has them; a NaN in it is an error."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    return {
        s.name: json.loads(b"".join(render(s.rows, "json")), parse_constant=refuse)
        for s in describe_trace(path, block_tokens)
    }


def points(rows: Rows) -> dict[str, tuple[Any, ...]]:
    return {row["quantity"]: tuple(row[name] for name in POINTS) for row in rows}


def select(rows: Rows, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rows]:
    return described(write_example(tmp_path_factory.mktemp("example") / "a.parquet"))


def test_the_overview_counts_what_is_there(example: dict[str, Rows]) -> None:
    [row] = example["overview"]
    known = {name: row[name] for name in ("requests", "empty_prompts", "prompt_tokens")}
    assert known == {"requests": 6, "empty_prompts": 1, "prompt_tokens": 25}
    assert (row["requests_with_output"], row["output_tokens"]) == (3, 60)
    arrivals = [row["first_arrival"], row["last_arrival"]]
    assert arrivals == ["1970-01-01 00:00:00", "1970-01-01 00:00:10"]
    assert (row["span_s"], row["requests_per_s"]) == (10.0, 0.6)
    assert (row["tokenizer"], row["block_tokens"], row["sources"]) == (None, None, [])


def test_lengths_lie_linearly_between_neighbours(example: dict[str, Rows]) -> None:
    assert points(example["lengths"]) == {
        "prompt_tokens": (6, 4.17, 0, 2, 4.5, 6, 6, 6),
        "output_tokens": (3, 20, 10, 12, 20, 28, 29.8, 30),
        "requests_per_session": (2, 2, 2, 2, 2, 2, 2, 2),
    }


def test_names_are_counted_and_the_largest_listed(example: dict[str, Rows]) -> None:
    assert select(example["names"], "kind", "names", "requests", "requests_ratio") == [
        ("model", 0, 0, 0),
        ("tenant", 2, 5, 0.8333),
        ("namespace", 0, 0, 0),
        ("session_id", 2, 4, 0.6667),
    ]
    columns = ("kind", "position", "name", "requests", "prompt_tokens", "shared_tokens")
    assert select(example["top_names"], *columns) == [
        ("tenant", 1, "x", 4, 21, 12),
        ("tenant", 2, "y", 1, 4, 4),
        ("session_id", 1, "b", 2, 11, 8),
        ("session_id", 2, "a", 2, 10, 4),
    ]


def test_hits_are_split_at_the_longest_prefix_of_the_own_session(example: dict[str, Rows]) -> None:
    columns = ("scope", "prompt_tokens", "requests_with_hit", "hit_tokens", "hit_ratio")
    assert select(example["unlimited_cache"], *columns) == [
        ("within_session", 25, 2, 6, 0.24),
        ("across_sessions", 25, 3, 10, 0.4),
        ("total", 25, 4, 16, 0.64),
    ]


def test_each_shared_prefix_saves_what_lies_beyond_the_next_shorter(
    example: dict[str, Rows],
) -> None:
    columns = ("requests", "prefix_tokens", "edge_tokens", "saved_tokens", "first_request_id")
    expected = [
        (5, 2, 2, 8, "r0"),
        (3, 4, 2, 4, "r0"),
        (2, 6, 2, 2, "r2"),
        (2, 4, 2, 2, "r1"),
    ]
    assert select(example["prefixes_by_requests"], *columns) == expected
    assert select(example["prefixes_by_tokens"], *columns) == expected
    columns = ("sessions", "tenants", "first_arrival", "last_arrival")
    shown = select(example["prefixes_by_requests"], *columns)
    assert shown[0] == (2, 2, "1970-01-01 00:00:00", "1970-01-01 00:00:10")
    assert shown[3] == (1, 2, "1970-01-01 00:00:01", "1970-01-01 00:00:06")


def test_reuse_is_counted_from_the_last_use_of_all_that_is_found(example: dict[str, Rows]) -> None:
    assert points(example["reuse_distance"]) == {
        "age_ms": (4, 4000, 1000, 1600, 4000, 6400, 6940, 7000),
        "age_requests": (4, 2, 1, 1.3, 2, 2.7, 2.97, 3),
        "age_tokens": (4, 8.5, 4, 5.5, 9.5, 10.7, 10.97, 11),
    }


def test_only_full_blocks_are_hits(tmp_path: Path) -> None:
    told = described(write_example(tmp_path / "a.parquet"), 4)
    columns = ("scope", "requests_with_hit", "hit_tokens", "hit_ratio")
    assert select(told["unlimited_cache"], *columns) == [
        ("within_session", 1, 4, 0.16),
        ("across_sessions", 2, 8, 0.32),
        ("total", 3, 12, 0.48),
    ]
    columns = ("requests", "prefix_tokens", "edge_tokens", "saved_tokens")
    assert select(told["prefixes_by_tokens"], *columns) == [(3, 4, 4, 8), (2, 4, 4, 4)]
    assert select(told["top_names"], "name", "shared_tokens")[2:] == [("b", 4), ("a", 4)]
    assert points(told["reuse_distance"])["age_requests"][0] == 3


def test_a_shorter_prefix_may_have_been_used_later(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.parquet", [(1, 2, 3), (1, 2, 4), (1, 2, 3)])
    ages = {
        size: points(described(path, size)["reuse_distance"])["age_requests"] for size in (1, 2)
    }
    assert ages[1][:3] == (2, 1.5, 1)
    assert ages[2][:3] == (2, 1, 1)


TALK: list[tuple[str, int, Sequence[int], Sequence[int]]] = [
    ("a", 0, (1, 2), (3, 4)),
    ("a", 2, (1, 2, 3, 4, 5), (6,)),
    ("b", 3, (1, 2, 9), ()),
    ("a", 7, (1, 2, 3, 4, 5, 6, 7), (8,)),
    ("b", 8, (1, 2, 3, 4, 5, 6), (7,)),
]
"""Session, second, prompt, output: turns that go on with the answer before them."""


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sessions, seconds, prompts, outputs = zip(*TALK, strict=True)
    batch = requests(prompts, [1_000_000 * s for s in seconds], session_id=sessions)
    offsets = np.cumsum([0, *map(len, outputs)], dtype=np.int64)
    ids = np.array([token for output in outputs for token in output], np.uint32)
    path = tmp_path_factory.mktemp("talk") / "a.parquet"
    with TraceWriter(path, TraceMetadata(), outputs=True) as writer:
        writer.write(batch._replace(outputs=Lists(ids, offsets)))
    return path


@pytest.mark.parametrize(
    ("block_tokens", "within", "across"), [(1, (3, 12), (2, 6)), (4, (2, 8), (1, 4))]
)
def test_what_a_prompt_finds_of_an_earlier_answer_is_a_hit_of_its_session(
    talk: Path, block_tokens: int, within: tuple[int, int], across: tuple[int, int]
) -> None:
    # Of 4 + 2 + 6 + 6 tokens found, the second session has only (1, 2) of its own.
    told = described(talk, block_tokens)["unlimited_cache"]
    hits = select(told, "scope", "requests_with_hit", "hit_tokens")
    assert hits[:2] == [("within_session", *within), ("across_sessions", *across)]
    assert hits[2][2] == within[1] + across[1]


def test_a_shared_prefix_may_come_from_an_answer(talk: Path) -> None:
    rows = described(talk)["prefixes_by_tokens"]
    columns = ("requests", "prefix_tokens", "edge_tokens", "saved_tokens", "first_request_id")
    assert select(rows, *columns) == [
        (5, 2, 2, 8, "r0"),
        (4, 4, 2, 6, "r0"),  # all but r2: r0 answered with it
        (3, 6, 2, 4, "r1"),
    ]
    assert select(rows, "sessions", "last_arrival") == [(2, "1970-01-01 00:00:08")] * 3


def test_an_answer_is_a_use_of_the_prefix_and_takes_room(talk: Path) -> None:
    # r1 finds r0's answer, r2 the start of r1, r3 the answer of r1, r4 the prompt of r3.
    assert points(described(talk)["reuse_distance"]) == {
        "age_ms": (4, 2250, 1000, 1000, 1500, 4100, 4910, 5000),  # 2, 1, 5 and 1 s
        "age_requests": (4, 1.25, 1, 1, 1, 1.7, 1.97, 2),
        "age_tokens": (4, 6.75, 4, 4.6, 7, 8.7, 8.97, 9),  # 4, 6, 6 + 3 and 8
    }


def test_answers_that_nobody_goes_on_with_are_no_shared_prefix(tmp_path: Path) -> None:
    prompts, answers = [(1, 2)] * 3, [(7, 7)] * 3
    offsets = np.array([0, 2, 4, 6])
    with TraceWriter(tmp_path / "a.parquet", TraceMetadata(), outputs=True) as writer:
        ids = np.array(answers, np.uint32).reshape(-1)
        writer.write(requests(prompts, [0] * 3)._replace(outputs=Lists(ids, offsets)))
    rows = described(tmp_path / "a.parquet")["prefixes_by_requests"]
    assert select(rows, "requests", "prefix_tokens", "saved_tokens") == [(3, 2, 4)]


def test_a_trace_with_outputs_is_described_alike_without_tokens(talk: Path, tmp_path: Path) -> None:
    drop_tokens(TraceFile.open(talk), tmp_path / "b.parquet")
    told, without = described(talk), described(tmp_path / "b.parquet")
    assert without.pop("overview")[0] | {"trace": str(talk)} == told.pop("overview")[0]
    assert without == told


def test_names_are_cut_at_ten_by_prompt_tokens_then_requests_then_name(tmp_path: Path) -> None:
    prompts = [[i] * (1 + i // 4) for i in range(40)] + [[7], [8]]
    path = write_trace(tmp_path / "a.parquet", prompts, tenant=[*map(str, range(40)), "38", None])
    top = described(path)["top_names"]
    assert [row["name"] for row in top] == [
        str(i) for i in (38, 36, 37, 39, 32, 33, 34, 35, 28, 29)
    ]


@pytest.mark.parametrize("block_tokens", [1, 2, 16])
@pytest.mark.parametrize(
    "prompts", [[()], [(), ()], [(1,)], [(1, 2, 3)], [(1,), (2,), (3,)], [(1, 2)] * 3], ids=str
)
def test_what_is_not_there_is_zero_or_null(
    tmp_path: Path, prompts: Prompts, block_tokens: int
) -> None:
    told = described(write_trace(tmp_path / "a.parquet", prompts), block_tokens)
    hits = [
        sum(row["hit_tokens"] for row in told["unlimited_cache"] if row["scope"] == scope)
        for scope in ("within_session", "across_sessions", "total")
    ]
    repeated = 2 * (2 - 2 % block_tokens) if len(prompts[0]) == 2 else 0
    assert hits == [0, repeated, repeated]
    tokens = sum(map(len, prompts))
    ratio = round(repeated / tokens, 6) if tokens else None
    assert told["unlimited_cache"][2]["hit_ratio"] == ratio
    assert bool(told["prefixes_by_tokens"]) == bool(told["prefixes_by_requests"]) == (repeated > 0)
    found = 2 if repeated else 0
    assert [row["counted"] for row in told["reuse_distance"]] == [found] * 3
    assert points(told["lengths"])["output_tokens"] == NOTHING
    assert points(told["lengths"])["requests_per_session"] == NOTHING
    assert (told["overview"][0]["output_tokens"], told["overview"][0]["span_s"]) == (None, 0)
    assert told["overview"][0]["requests_per_s"] is None
    assert told["top_names"] == []


@pytest.mark.parametrize("statement", statements(), ids=lambda statement: statement.name)
def test_a_statement_works_on_zero_rows(statement: Any) -> None:
    connection = duckdb.connect()
    connection.register("trace", trace_schema(None).empty_table())
    rows = connection.sql(statement.sql).to_arrow_table().to_pylist()
    expected = {"overview": 1, "lengths": 3, "names": 4, "top_names": 0, "unlimited_cache": 1}
    assert len(rows) == expected[statement.name]
    values = {v for row in rows for name, v in row.items() if name not in {"kind", "quantity"}}
    assert values <= {0, None}


def test_a_tree_without_requests_shares_nothing() -> None:
    none = np.empty(0, np.int64)
    tree = build_tree(none.astype(np.uint32), none, none.astype(np.uint32))
    assert len(last_uses(tree, none)) == 0
    assert len(session_prefix_tokens(tree, none.astype(np.int32))) == 0
    assert len(shared_prefixes(tree, 1).requests) == 0


@pytest.mark.parametrize("statement", statements(), ids=lambda statement: statement.name)
def test_a_statement_says_what_it_answers_in_one_ordered_select(statement: Any) -> None:
    lines = statement.sql.splitlines()
    assert lines[0] == f"-- Question: {statement.question}"
    assert re.fullmatch(r"[a-z].*\?", statement.question)
    assert lines[1] == "-- Reads: trace"
    assert re.fullmatch(r"-- One row per .*[^.]", lines[2])
    assert max(map(len, lines)) <= 100
    code = re.sub(r"--.*|'[^']*'", "", statement.sql)
    assert code == code.lower()
    assert code.count(";") == 1
    assert "\norder by" in code.rsplit("\nfrom ", 1)[1]


def test_every_file_of_the_folder_is_a_statement() -> None:
    files = (Path(__file__).parents[2] / "queries" / "describe").glob("*.sql")
    assert {file.stem for file in files} == {statement.name for statement in statements()}


def test_a_trace_without_tokens_is_described_alike(tmp_path: Path) -> None:
    whole = write_example(tmp_path / "a.parquet")
    drop_tokens(TraceFile.open(whole), tmp_path / "b.parquet")
    told, without = described(whole), described(tmp_path / "b.parquet")
    assert without.pop("overview")[0] | {"trace": str(whole)} == told.pop("overview")[0]
    assert without == told


def test_a_file_with_token_ids_alone_is_linked_first(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "a.parquet", PROMPTS)
    told = described(path)
    assert told["overview"][0]["trace"] == str(path)
    assert told["unlimited_cache"][2]["hit_ratio"] == 0.64
    assert told["unlimited_cache"][0]["hit_tokens"] == 0
    assert len(names_in(tmp_path)) == 2


def test_a_linked_file_may_lack_columns_and_have_other_types(tmp_path: Path) -> None:
    path = write_example(tmp_path / "a.parquet")
    told = described(path)
    table = pq.ParquetFile(path).read().drop_columns(["model", "namespace", "observed_ttft_ms"])
    table = table.set_column(
        table.column_names.index("arrival"),
        "arrival",
        pa.array([s * 1000 for s in SECONDS], pa.timestamp("ms")),
    )
    for name, kind in (
        ("tenant", pa.dictionary(pa.int32(), pa.string())),
        ("prompt_tokens", pa.int64()),
    ):
        index = table.column_names.index(name)
        table = table.set_column(index, name, table[name].cast(kind))
    pq.write_table(table, path)
    assert described(path) == told


@pytest.mark.parametrize("name", ["bob's.parquet", "day[1] ä.parquet", "a*b?.parquet"])
def test_a_trace_may_have_any_name(tmp_path: Path, name: str) -> None:
    write_example(tmp_path / "a*b.parquet")
    path = write_trace(tmp_path / name, [(1, 2), (1, 2, 3)])
    assert described(path)["unlimited_cache"][2]["hit_ratio"] == 0.4


def test_sql_of_links_that_could_not_be_kept_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tokens(tmp_path / "a.parquet", PROMPTS)
    monkeypatch.setattr("pipeline.prepare._write_beside", lambda *_: False)
    assert described(path)["unlimited_cache"][2]["hit_ratio"] == 0.64
    with pytest.raises(TraceError, match="replay link"):
        describe_sql(path)


def test_blocks_hold_at_least_a_token(tmp_path: Path) -> None:
    for ask in (describe_trace, describe_sql):
        with pytest.raises(UsageError, match="block-tokens is 0: give at least 1"):
            ask(tmp_path / "missing.parquet", 0)
