"""Which requests are replayed: predicates on the trace's columns, and samples of sessions."""

from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import SMALL, names_in, write_large_trace, write_trace

from pipeline.config import SubsetConfig
from pipeline.errors import UsageError
from pipeline.subset import chosen_requests
from pipeline.trace import TraceFile

NOON = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * 1_000_000
TENANTS = ["a", "b", "a", None, "a", "b"]
SESSIONS = ["s1", "s2", "s1", None, "s2", None]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceFile:
    """Return six requests, two before noon, one at noon, three after it."""
    arrivals = [NOON + minute * 60_000_000 for minute in (-2, -1, 0, 1, 2, 3)]
    carried = {"tenant": TENANTS, "session_id": SESSIONS, "output_tokens": [5, 6, 7, 8, None, 9]}
    path = tmp_path_factory.mktemp("subset") / "t.parquet"
    return TraceFile.open(write_trace(path, SMALL, arrivals, **carried))


def rows(trace: TraceFile, where: str | None = None, sample: float = 1.0) -> list[int]:
    return chosen_requests(trace, SubsetConfig(where, sample)).nonzero()[0].tolist()


def refusal(trace: TraceFile, where: str) -> str:
    with pytest.raises(UsageError) as caught:
        rows(trace, where)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_without_a_subset_all_requests_are_replayed(trace: TraceFile) -> None:
    assert rows(trace) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ("tenant = 'a'", [0, 2, 4]),
        ("TENANT = 'a' -- who pays", [0, 2, 4]),
        ("tenant = 'a' and arrival < '2026-01-01 12:00'", [0]),
        ("arrival >= '2026-01-01 13:00+01:00'", [2, 3, 4, 5]),
        ("hour(arrival) = 11", [0, 1]),
        ("tenant <> 'a' or\n output_tokens > 7", [1, 3, 5]),
        ("tenant is null", [3]),
        ("tenant like '%''%' or prompt_tokens = 0", [4]),
        ("prefix_tokens > 0 and seq in (2, 3, 5)", [2, 5]),
        ("true", [0, 1, 2, 3, 4, 5]),
    ],
)
def test_a_predicate_chooses_the_rows_where_it_is_true(
    trace: TraceFile, where: str, chosen: list[int]
) -> None:
    assert rows(trace, where) == chosen


def test_null_is_not_true_and_not_false_either(trace: TraceFile) -> None:
    assert rows(trace, "tenant = 'a'") == [0, 2, 4]
    assert rows(trace, "not (tenant = 'a')") == [1, 5]


def test_columns_that_only_this_file_has_can_be_asked_for(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.parquet", SMALL)
    regions = pa.array(["eu", "us", "eu", None, "us", "eu"]).dictionary_encode()
    more = pq.read_table(path).append_column("Region x", regions)
    pq.write_table(more, path)
    assert rows(TraceFile.open(path), "\"Region x\" = 'eu' and prompt_tokens > 4") == [2]


def test_rows_of_all_batches_are_chosen(tmp_path: Path) -> None:
    trace = TraceFile.open(write_large_trace(tmp_path / "large.parquet", 600_000))
    last = "seq in (0, 262143, 262144, 599999)"
    assert rows(trace, last) == [0, 262_143, 262_144, 599_999]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("", "not one expression: SELECT clause without selection list"),
        ("tenant = 'a", "not one expression: unterminated"),
        ("tenant = 'a'; select true", "not one expression"),
        ("tenant = 'a'; copy (select 1) to 'stolen.csv'", "not one expression"),
        ("copy trace to 'stolen.csv'", "not one expression"),
        ("true) or (true", 'not one expression: syntax error at or near ")"'),
        ("true) from read_text('/etc/hosts') where (true", "not one expression"),
        ("true) union all select (true", "not one expression"),
        ("true limit 1", 'not one expression: syntax error at or near "limit"'),
        ("tenant as t", "not one expression"),
        ("true /*", "not one expression: unterminated /* comment"),
        ("tenant = 'a'\0", "not one expression"),
        ("\ud800 = 'a'", "it holds half a character"),
        ("not " * 900 + "true", "it is nested too deeply"),
        ("exists (from read_text('/etc/hosts'))", "it holds a subquery"),
        ("tenant in (select content from read_text('/etc/hosts'))", "it holds a subquery"),
        ("list_contains([(select 1)], seq)", "it holds a subquery"),
        ("read_text('/etc/hosts') = ''", 'Binder Error: Function "read_text" is a table function'),
        ("nosuch(tenant)", "Catalog Error: Scalar Function with name nosuch does not exist!"),
        ("columns(*) = 1", "it holds a *: name the columns"),
        ("sum(seq) > 1", "Binder Error: WHERE clause cannot contain aggregates!"),
        ("row_number() over () = 1", "WHERE clause cannot contain window functions!"),
        ("random() < 0.5", "random differs from run to run"),
        ("arrival < now()", "now differs from run to run"),
        ("arrival < current_date", "current_date differs from run to run"),
        ("prompt_tokens", "it is UINTEGER, not true or false"),
        ("tenant", "it is VARCHAR, not true or false"),
        ("cast(tenant as int) = 1", "Conversion Error: Could not convert string 'a' to INT32"),
    ],
)
def test_what_is_not_one_predicate_on_the_columns_is_refused(
    trace: TraceFile, where: str, reason: str
) -> None:
    message = refusal(trace, where)
    assert message.startswith(f"where is {where!r}: ")
    assert reason in message


def test_a_predicate_writes_no_file(
    trace: TraceFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refusal(trace, "true); copy (select 1) to 'stolen.csv'; select (true")
    assert names_in(tmp_path) == set()


def test_python_variables_are_not_tables_or_columns(trace: TraceFile) -> None:
    secret = pa.table({"tenant": ["a"]})
    assert "subquery" in refusal(trace, "tenant in (from secret)")
    assert "unknown column 'secret'" in refusal(trace, "secret.tenant = 'a'")
    assert len(secret) == 1


@pytest.mark.parametrize(
    ("where", "name"),
    [
        ("tenat = 'a'", "'tenat' (did you mean tenant?)"),
        ("prompt_token_ids = []", "'prompt_token_ids' (did you mean prompt_tokens?)"),
        ("trace is not null", "'trace'"),
        ('"row of this batch" = 1', "'row of this batch'"),
    ],
)
def test_an_unknown_column_is_told_with_those_that_there_are(
    trace: TraceFile, where: str, name: str
) -> None:
    message = refusal(trace, where)
    assert f"unknown column {name}" in message
    assert message.endswith(
        ": choose from seq, request_id, arrival, namespace, model, tenant, session_id,"
        " prompt_tokens, first_token_id, prefix_seq, prefix_tokens, output_tokens,"
        " observed_cached_tokens, observed_ttft_ms"
    )


def share_of(name: str) -> float:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big") / 2**64


def test_a_sample_takes_the_sessions_whose_hash_is_below_it(trace: TraceFile) -> None:
    # Without session: r3 and r5, by their own ids.
    shares = {name: round(share_of(name), 4) for name in ("s1", "s2", "r3", "r5")}
    of_row = [shares[session or f"r{row}"] for row, session in enumerate(SESSIONS)]
    for limit in sorted(shares.values()):
        sample = limit + 0.0001
        assert rows(trace, sample=sample) == [r for r in range(6) if of_row[r] < sample]


def large(path: Path, count: int, **columns: Any) -> TraceFile:
    return TraceFile.open(write_trace(path, [(1, 2)] * count, **columns))


def test_a_sample_keeps_about_its_share_of_sessions_and_holds_smaller_ones(tmp_path: Path) -> None:
    sessions = [f"session {i % 1000}" for i in range(3000)]
    trace = large(tmp_path / "a.parquet", 3000, session_id=sessions)
    chosen = {s: set(rows(trace, sample=s)) for s in (0.1, 0.2, 0.5, 0.999)}
    assert chosen[0.1] < chosen[0.2] < chosen[0.5] < chosen[0.999]
    assert 3 * 70 < len(chosen[0.1]) < 3 * 130
    assert all(row % 1000 + other in kept for kept in chosen.values() for row in kept
               for other in (0, 1000, 2000))  # fmt: skip


def test_a_session_is_sampled_alike_in_every_trace_and_namespace(tmp_path: Path) -> None:
    names = [f"session {i}" for i in range(200)]
    one = large(tmp_path / "a.parquet", 200, session_id=names)
    turned = large(tmp_path / "b.parquet", 200, session_id=names[::-1], namespace=["x", "y"] * 100)
    assert rows(one, sample=0.3) == sorted(199 - row for row in rows(turned, sample=0.3))


def test_requests_without_sessions_are_sampled_one_by_one(tmp_path: Path) -> None:
    trace = large(tmp_path / "a.parquet", 1000)
    by_hand = [row for row in range(1000) if share_of(f"r{row}") < 0.25]
    assert rows(trace, sample=0.25) == by_hand


def test_a_predicate_and_a_sample_must_both_hold(tmp_path: Path) -> None:
    trace = large(tmp_path / "a.parquet", 300, tenant=["a", "b", "c"] * 100)
    both = rows(trace, "tenant = 'b'", 0.5)
    assert both == [row for row in rows(trace, sample=0.5) if row % 3 == 1]


def test_an_empty_subset_says_what_there_was_and_what_was_asked(trace: TraceFile) -> None:
    assert refusal(trace, "tenant = 'z'") == (
        "of the trace's 6 requests none is left to replay: where is \"tenant = 'z'\": choose more"
    )
    with pytest.raises(UsageError, match=r"6 requests none .*: sample is 1e-09: choose more"):
        rows(trace, sample=1e-9)
    with pytest.raises(UsageError, match=r"where is .false. and sample is 0\.5: choose more"):
        rows(trace, "false", 0.5)


def test_requests_of_a_warm_up_are_chosen_but_are_not_what_is_left(trace: TraceFile) -> None:
    subset = SubsetConfig("tenant = 'b'")
    assert chosen_requests(trace, subset, warmup_rows=5).nonzero()[0].tolist() == [1, 5]
    with pytest.raises(UsageError, match="of the trace's 2 requests none is left"):
        chosen_requests(trace, SubsetConfig("tenant = 'b'", sample=1e-9), warmup_rows=4)
    with pytest.raises(UsageError, match="with a warm-up, row numbers are not those of the trace"):
        chosen_requests(trace, SubsetConfig("seq < 4"), warmup_rows=4)
