"""`replay report`, `sql` and `views`: reports and SQL on a run, here and in DuckDB's shell."""

import csv
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from command import COMMAND, replay, replay_here, replay_ok
from samples import write_trace

from pipeline.report import find_report, list_reports, open_run, render, select

NAMES = [report.name for report in list_reports()]
COUNTS = "select policy, count(*) as n, sum(prompt_tokens) as s_tokens from decisions group by 1"
TABLE = """\
policy         n  s_tokens
-------------  -  --------
cache_aware    6        24
pure_affinity  6        24
round_robin    6        24
"""


def test_all_reports_are_printed_with_their_questions(small_run: Path) -> None:
    assert len(NAMES) >= 8
    text = replay_ok("report", small_run)
    headings = [line for line in text.splitlines() if re.match(r"\w+: .+\?$", line)]
    assert headings == [f"{report.name}: {report.question}" for report in list_reports()]
    assert not text.startswith("\n")
    assert not text.endswith("\n\n")


def test_named_reports_come_in_the_order_in_which_they_are_named(small_run: Path) -> None:
    text = replay_ok("report", small_run, "ttft", "by_tenant")
    assert 0 <= text.index("ttft: ") < text.index("by_tenant: ")
    assert "cache_hit_ratio: " not in text


def test_one_report_is_printed_without_its_question(small_run: Path) -> None:
    lines = replay_ok("report", small_run, "ttft").splitlines()
    assert lines[0].split()[:4] == ["policy", "requests", "served", "missing"]
    assert lines[2].split()[:4] == ["cache_aware", "6", "4", "2"]


def test_a_report_can_be_read_by_programs(small_run: Path) -> None:
    rows = json.loads(replay_ok("report", small_run, "policy_comparison", "--format", "json"))
    assert [row["policy"] for row in rows] == ["cache_aware", "pure_affinity", "round_robin"]
    text = replay_ok("report", small_run, "policy_comparison", "--format", "csv")
    [header, *lines] = csv.reader(io.StringIO(text))
    assert header == list(rows[0])
    assert len(lines) == 3


def test_several_reports_have_only_one_format(small_run: Path) -> None:
    done = replay_here("report", small_run, "--format", "csv")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--format csv prints one report only: name one" in done.stderr


def test_an_unknown_report_is_answered_with_the_nearest(small_run: Path) -> None:
    done = replay_here("report", small_run, "polcy_comparison")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'polcy_comparison' (did you mean policy_comparison?): choose from" in done.stderr
    assert all(name in done.stderr for name in NAMES)
    assert done.stderr.count("\n") == 1


def test_sql_is_printed_as_a_table(small_run: Path) -> None:
    done = replay("sql", small_run, f"{COUNTS} order by 1")
    assert (done.returncode, done.stdout, done.stderr) == (0, TABLE, "")


def test_sql_is_printed_as_csv_json_or_parquet(small_run: Path, tmp_path: Path) -> None:
    query = "select seq, ttft_ms from decisions where policy = 'cache_aware' and seq < 2 order by 1"
    assert replay_ok("sql", small_run, query, "--format", "csv") == "seq,ttft_ms\n0,4.0\n1,\n"
    rows = [{"seq": 0, "ttft_ms": 4.0}, {"seq": 1, "ttft_ms": None}]
    assert json.loads(replay_ok("sql", small_run, query, "--format", "json")) == rows
    arguments = [*COMMAND, "sql", str(small_run), query, "--format", "parquet"]
    done = subprocess.run(arguments, capture_output=True, check=True)
    (tmp_path / "a.parquet").write_bytes(done.stdout)
    assert pq.read_table(tmp_path / "a.parquet").to_pylist() == rows


def test_the_views_are_there(small_run: Path) -> None:
    query = """
        select
            (select count(*) from decisions) as decisions,
            (select count(*) from replicas) as replicas,
            (select count(*) from settings) as settings,
            (select count(*) from trace) as trace,
            (select count(*) > 0 from evictions) as evictions,
            (select count(*) from all_decisions) as all_decisions,
            (select count(*) = (select count(*) from evictions) from all_evictions) as no_warmup
    """
    header, row = replay_ok("sql", small_run, query, "--format", "csv").splitlines()
    assert header == "decisions,replicas,settings,trace,evictions,all_decisions,no_warmup"
    assert row == "18,6,1,6,true,18,true"


def test_the_views_leave_out_the_warm_up_and_all_decisions_has_it(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.parquet", [(1, 2)] * 4)
    run = tmp_path / "run"
    options = ("--warmup-fraction", "0.5", "--policy", "round_robin")
    replay_ok(trace, "-o", run, *options)
    query = "select (select count(*) from decisions) as n, count(*) as n_all from all_decisions"
    assert replay_ok("sql", run, query, "--format", "csv") == "n,n_all\n2,4\n"
    settings = "select engine, warmup_fraction, warmup_trace, cache_output from settings"
    text = replay_ok("sql", run, settings, "--format", "csv")
    assert text.splitlines()[1] == "reference,0.5,,false"


def test_the_help_names_every_view(small_run: Path) -> None:
    with open_run(small_run) as connection:
        views = [name for (name,) in connection.sql("show tables").fetchall()]
    words = set(re.findall(r"\w+", replay_ok("sql", "--help")))
    assert len(views) == 11
    assert words.issuperset(views)


@pytest.mark.parametrize(
    "query", ["drop view decisions", "create table t as select 1", "select 1; select 2", "selct 1"]
)
def test_sql_that_is_wrong_or_does_more_than_read_is_one_line_and_exit_code_1(
    small_run: Path, query: str
) -> None:
    done = replay_here("sql", small_run, query)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("replay: ")
    assert done.stderr.count("\n") == 1


def test_sql_writes_no_file(small_run: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    for query in (
        f"copy (select 1) to '{target}'",
        f"explain analyze copy (select 1) to '{target}'",
    ):
        assert replay_here("sql", small_run, query).returncode == 1
        assert not target.exists()


def test_a_type_that_a_format_does_not_have_is_one_line_and_exit_code_1(small_run: Path) -> None:
    done = replay_here("sql", small_run, "select interval 1 day as i", "--format", "parquet")
    assert done.returncode == 1
    assert done.stderr.startswith("replay: ")
    assert done.stderr.count("\n") == 1


def test_a_run_is_found_from_anywhere(small_run: Path, tmp_path: Path) -> None:
    relative = replay_ok("views", small_run.name, cwd=small_run.parent)
    assert relative == replay_ok("views", small_run, cwd=tmp_path)


@pytest.mark.parametrize("name", ["bob's run", "day[1] ä", "a*b?"])
def test_a_run_folder_may_have_any_name(small_run: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(small_run, tmp_path / name)
    assert replay_ok("sql", tmp_path / name, f"{COUNTS} order by 1") == TABLE


def test_looking_at_a_run_compiles_no_kernel(small_run: Path, tmp_path: Path) -> None:
    done = replay("sql", small_run, "select 1", REPLAY_CACHE_DIR=str(tmp_path / "cache"))
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.rglob("*.nbi")) == []


def test_a_run_that_lost_a_table_says_so(small_run: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(small_run, broken)
    shutil.rmtree(broken / "decisions")
    done = replay_here("report", broken, "ttft")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"replay: {broken}: the run can't be read" in done.stderr
    assert done.stderr.count("\n") == 1


def _shell() -> str:
    beside = Path(sys.executable).with_name("duckdb")
    shell = str(beside) if beside.exists() else shutil.which("duckdb")
    if shell is None:
        pytest.skip("no duckdb shell: pip install duckdb-cli")
    return shell


@pytest.fixture(scope="module")
def views(small_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what `replay views` prints, as a file."""
    file = tmp_path_factory.mktemp("views") / "views.sql"
    file.write_text(replay_ok("views", small_run), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_the_same_in_the_duckdb_shell(small_run: Path, views: Path, name: str) -> None:
    query = Path(__file__).parents[2] / "queries" / f"{name}.sql"
    done = subprocess.run(
        [_shell(), "-init", str(views), "-bail", "-csv", "-nullvalue", "", "-f", str(query)],
        env={"PATH": "/usr/bin:/bin", "HOME": str(views.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shell = list(csv.DictReader(io.StringIO(done.stdout)))
    with open_run(small_run) as connection:
        table = select(connection, find_report(name).sql)
    ours = csv.DictReader(io.StringIO(b"".join(render(table, "csv")).decode()))
    for theirs, row in zip(shell, ours, strict=True):
        assert {k: _number(v) for k, v in theirs.items()} == {k: _number(v) for k, v in row.items()}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
