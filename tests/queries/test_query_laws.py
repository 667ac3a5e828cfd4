import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars as pl
import pytest
from query_tables import QUERIES, SCHEMAS, Run, write_run
from random_runs import Shape, random_run

from pipeline.config import ReplayConfig
from pipeline.report import open_run, select

FILES = sorted(QUERIES.glob("*.sql"))
COUNTS = (pl.Int64, pl.Int32, pl.UInt64, pl.UInt32, pl.Decimal(28, 4))
KINDS = (pl.String, pl.Boolean, pl.Datetime("us"), pl.Float64, *COUNTS)
FRACTION = re.compile(r"^mean_|^median_|^stddev_|_ratio$|_ms$|_over_mean$")

FILES_OF = {"decisions": "all_decisions", "evictions": "all_evictions", "replicas": "replicas"}
SEEDS_OF = ("seed_decisions", "seed_replicas")

every_query = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def reads(sql: str) -> list[str]:
    """Return the views that the header names."""
    return sql.splitlines()[1].removeprefix("-- Reads: ").split(", ")


def code(sql: str) -> str:
    """Return a query without its comments."""
    return re.sub(r"--.*", "", sql)


def without_strings(sql: str) -> str:
    """Return a query without its comments and with empty strings."""
    return re.sub(r"'[^']*'", "''", code(sql))


@every_query
def test_a_query_begins_with_its_question_its_views_and_its_grain(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(r"-- Question: [a-z].*\?", lines[0])
    assert re.fullmatch(r"-- Reads: [a-z_]+(, [a-z_]+)*", lines[1])
    assert re.fullmatch(r"-- One row per .*[^.]", lines[2])
    assert lines[3].startswith(("with ", "select"))
    assert max(map(len, lines)) <= 100


@every_query
def test_a_query_is_lower_case_except_in_strings_and_comments(file: Path) -> None:
    bare = without_strings(file.read_text(encoding="utf-8"))
    assert bare == bare.lower()


@every_query
def test_a_query_is_one_ordered_statement(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.endswith(";\n")
    assert without_strings(text).count(";") == 1
    last_clause = code(text).rsplit("\nfrom ", 1)[1]
    assert "\norder by" in last_clause
    assert len(duckdb.connect().extract_statements(text)) == 1


@every_query
def test_a_query_reads_the_views_that_it_names_and_nothing_else(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert set(reads(text)) <= set(SCHEMAS)
    assert duckdb.connect().get_table_names(text) == set(reads(text))


@every_query
def test_a_query_says_which_policy_first_and_names_columns_by_their_unit(
    file: Path, run: Run
) -> None:
    answer = run.answer(file.stem)
    assert answer.columns[0] == "policy"
    for name, kind in answer.schema.items():
        fraction = FRACTION.search(name) is not None
        assert (kind == pl.Float64) == fraction, name
        assert kind in KINDS, name


@every_query
def test_no_answer_is_not_a_number(file: Path, run: Run) -> None:
    answer = run.answer(file.stem)
    for column in answer.select(pl.col(pl.Float64)):
        assert column.drop_nulls().is_finite().all(), column.name


@pytest.fixture(scope="module")
def nothing() -> Run:
    return Run({})


@every_query
def test_zero_rows_give_zero_rows(file: Path, nothing: Run) -> None:
    assert nothing.answer(file.stem).height == 0


@every_query
def test_zero_rows_have_the_columns_of_many_rows(file: Path, nothing: Run, run: Run) -> None:
    assert nothing.answer(file.stem).schema == run.answer(file.stem).schema


@pytest.fixture(scope="module")
def one_run_twice() -> tuple[Run, Run]:
    rows = random_run(7, Shape(400, warmup_ratio=0.2, failed_ratio=0.1, seeds=3))
    there = Run({name: table[::-1] for name, table in rows.items()}, threads=4)
    there.connection.execute("set timezone = 'Asia/Kolkata'").fetchall()
    return Run(rows, threads=1), there


@every_query
def test_an_answer_depends_neither_on_row_order_nor_on_threads_nor_on_the_time_zone(
    file: Path, one_run_twice: tuple[Run, Run]
) -> None:
    here, there = one_run_twice
    assert here.answer(file.stem).rows() == there.answer(file.stem).rows()


@pytest.fixture(scope="module")
def run_folder(
    one_run_twice: tuple[Run, Run], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Return a connection to the files of that run."""
    here, _ = one_run_twice
    rows = {name: here.frames[table].to_dicts() for name, table in FILES_OF.items()}
    rows |= {name: here.frames[name].filter(pl.col("seed") > 0).to_dicts() for name in SEEDS_OF}
    with open_run(write_run(tmp_path_factory.mktemp("run"), rows, ReplayConfig())) as connection:
        yield connection


@every_query
def test_an_answer_is_the_same_from_a_runs_files(
    file: Path, one_run_twice: tuple[Run, Run], run_folder: duckdb.DuckDBPyConnection
) -> None:
    answer = pl.DataFrame(select(run_folder, file.read_text(encoding="utf-8")))
    assert answer.equals(one_run_twice[0].answer(file.stem))
    assert answer.height > 0


@pytest.fixture(scope="module")
def with_and_without_warmup() -> tuple[Run, Run]:
    rows = random_run(5, Shape(60, warmup_ratio=0.5, seeds=2))
    counted = {
        name: [row for row in table if not row.get("is_warmup")] for name, table in rows.items()
    }
    return Run(rows), Run(counted)


@every_query
def test_the_warm_up_moves_no_answer_but_the_whole_runs_hit_ratio(
    file: Path, with_and_without_warmup: tuple[Run, Run]
) -> None:
    left, right = (run.answer(file.stem) for run in with_and_without_warmup)
    if file.stem == "hit_ratio_definitions":
        whole_run = pl.col("definition") == "tokens_whole_run"
        assert not left.filter(whole_run).equals(right.filter(whole_run))
        left, right = left.filter(~whole_run), right.filter(~whole_run)
    if file.stem == "evictions_by_tenant":  # the warm-up's requests have tenants, who lose tokens
        names = ["policy", "evicting_tenant", "evicted_tokens", "asked_again_tokens"]
        left, right = (
            answer.select(names).group_by(names[:2]).sum().sort(names) for answer in (left, right)
        )
    assert left.equals(right)


def test_refused_requests_change_no_ratio_and_no_percentile() -> None:
    rows = random_run(3, Shape(80, rejected_ratio=0.4, failed_ratio=0.2))
    served = [row for row in rows["decisions"] if row["outcome"] == "served"]
    kept = rows | {"decisions": served}
    with_refused, without = Run(rows), Run(kept)
    reports = ("cache_hit_ratio", "ttft", "policy_comparison", "miss_reasons", "seeds")
    routing = ("router_belief", "regret", "policy_disagreements", "hot_spots", "decided_by")
    for query in (*reports, "hit_ratio_definitions", *routing):
        counts = {"requests", "rejected", "failed", "missing"}
        left, right = with_refused.answer(query), without.answer(query)
        wanted = [name for name in left.columns if name not in counts]
        assert left.select(wanted).equals(right.select(wanted))
