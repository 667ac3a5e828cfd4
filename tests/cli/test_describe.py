"""`replay describe`: its tables, its JSON, its SQL in DuckDB's shell, and how it ends."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pyarrow.parquet as pq
import pytest
from command import replay_here, replay_ok
from samples import write_tokens, write_trace

from pipeline.cli.commands import cli
from pipeline.cli.describe import describe
from pipeline.describe import statements

pytestmark = pytest.mark.usefixtures("compiled", "command")

SECTIONS = [
    "overview",
    "lengths",
    "names",
    "top_names",
    "unlimited_cache",
    "prefixes_by_requests",
    "prefixes_by_tokens",
    "reuse_distance",
]
TEXT = """\
overview: how much is in the trace, and when did it come?

trace                 chats.parquet
--------------------  -------------------
requests              4
empty_prompts         0
prompt_tokens         1,014
requests_with_output  1
output_tokens         9
first_arrival         1970-01-01 00:00:00
last_arrival          1970-01-01 00:00:04
span_s                4.0
requests_per_s        1.0
tokenizer
tokenizer_sha256
block_tokens
partial_block
sources
time_note

lengths: how long are prompts, outputs and sessions?

quantity              counted   mean   p0  p10  p50    p90     p99    p100
--------------------  -------  -----  ---  ---  ---  -----  ------  ------
prompt_tokens               4  253.5  2.0  2.6  6.0  702.4  970.24  1000.0
output_tokens               1    9.0  9.0  9.0  9.0    9.0     9.0     9.0
requests_per_session        1    2.0  2.0  2.0  2.0    2.0     2.0     2.0

names: how many models, tenants, namespaces and sessions are there, and who names them?

kind        names  requests  requests_ratio
----------  -----  --------  --------------
model           0         0             0.0
tenant          0         0             0.0
namespace       0         0             0.0
session_id      1         2             0.5

top_names: which models, tenants, namespaces and sessions bring the most prompt tokens?

kind        position  name  requests  prompt_tokens  shared_tokens  shared_ratio
----------  --------  ----  --------  -------------  -------------  ------------
session_id         1  chat         2             12              4        0.3333

unlimited_cache: how much of the prompt work would a cache without limit save?

scope            prompt_tokens  requests_with_hit  hit_tokens  hit_ratio
---------------  -------------  -----------------  ----------  ---------
within_session           1,014                  1           4   0.003945
across_sessions          1,014                  1           2   0.001972
total                    1,014                  2           6   0.005917

prefixes_by_requests: which prefixes do most requests share?

requests  prefix_tokens  edge_tokens  saved_tokens  sessions  tenants  first_arrival        last_arrival         first_request_id
--------  -------------  -----------  ------------  --------  -------  -------------------  -------------------  ----------------
       3              2            2             4         1        0  1970-01-01 00:00:00  1970-01-01 00:00:04  r0
       2              4            2             2         1        0  1970-01-01 00:00:00  1970-01-01 00:00:02  r0

prefixes_by_tokens: which prefixes save most tokens?

requests  prefix_tokens  edge_tokens  saved_tokens  sessions  tenants  first_arrival        last_arrival         first_request_id
--------  -------------  -----------  ------------  --------  -------  -------------------  -------------------  ----------------
       3              2            2             4         1        0  1970-01-01 00:00:00  1970-01-01 00:00:04  r0
       2              4            2             2         1        0  1970-01-01 00:00:00  1970-01-01 00:00:02  r0

reuse_distance: how long ago was the prefix that a request finds last used: how much must a cache hold?

quantity      counted    mean      p0     p10     p50     p90     p99    p100
------------  -------  ------  ------  ------  ------  ------  ------  ------
age_ms              2  2000.0  2000.0  2000.0  2000.0  2000.0  2000.0  2000.0
age_requests        2     1.5     1.0     1.1     1.5     1.9    1.99     2.0
age_tokens          2   506.0     8.0   107.6   506.0   904.4  994.04  1004.0
"""  # noqa: E501 - as it is printed


@pytest.fixture(scope="module")
def command() -> Iterator[None]:
    """Have the command, even before it is one of those that `replay` has."""
    with mock.patch.dict(cli.commands, {"describe": describe}):
        yield


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("describe") / "chats.parquet"
    prompts = [(1, 2, 3, 4), range(1000, 2000), (1, 2, 3, 4, 5, 6, 7, 8), (1, 2)]
    session = ["chat", None, "chat", None]
    times = [0, 1_000_000, 2_000_000, 4_000_000]
    return write_trace(
        path, prompts, times, session_id=session, output_tokens=[None, 9, None, None]
    )


def test_the_tables_are_printed_under_their_questions(chats: Path) -> None:
    assert replay_ok("describe", chats.name, cwd=chats.parent) == TEXT


def test_the_json_has_a_list_of_rows_for_each_table(chats: Path) -> None:
    told = json.loads(replay_ok("describe", chats, "--format", "json"))
    assert list(told) == SECTIONS
    assert told["overview"]["trace"] == str(chats)
    assert told["overview"]["sources"] == []
    assert told["unlimited_cache"][2] == {
        "scope": "total",
        "prompt_tokens": 1014,
        "requests_with_hit": 2,
        "hit_tokens": 6,
        "hit_ratio": 0.005917,
    }
    assert [row["quantity"] for row in told["reuse_distance"]] == [
        "age_ms",
        "age_requests",
        "age_tokens",
    ]


def test_nothing_is_null_and_never_nan(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.parquet", [()])
    text = replay_ok("describe", path, "--format", "json")
    assert "NaN" not in text
    assert json.loads(text)["unlimited_cache"][2]["hit_ratio"] is None
    assert json.loads(text)["overview"]["requests_per_s"] is None


def test_blocks_are_only_hit_when_they_are_full(chats: Path) -> None:
    told = json.loads(replay_ok("describe", chats, "--block-tokens", "4", "--format", "json"))
    assert [row["hit_tokens"] for row in told["unlimited_cache"]] == [4, 0, 4]


def _shell() -> str:
    beside = Path(sys.executable).with_name("duckdb")
    shell = str(beside) if beside.exists() else shutil.which("duckdb")
    if shell is None:
        pytest.skip("no duckdb shell: pip install duckdb-cli")
    return shell


@pytest.mark.parametrize("block_tokens", ["1", "4"])
def test_the_sql_gives_the_same_rows_in_the_duckdb_shell(chats: Path, block_tokens: str) -> None:
    options = ("--block-tokens", block_tokens)
    told = json.loads(replay_ok("describe", chats, *options, "--format", "json"))
    done = subprocess.run(
        [_shell(), "-bail", "-json"],
        input=replay_ok("describe", chats, *options, "--sql"),
        env={"PATH": "/usr/bin:/bin", "HOME": str(chats.parent), "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    decoder, answers, rest = json.JSONDecoder(), [], done.stdout.strip()
    while rest:
        rows, end = decoder.raw_decode(rest)
        answers.append(rows)
        rest = rest[end:].strip()
    by_name = dict(zip([s.name for s in statements()], answers, strict=True))
    [overview] = by_name.pop("overview")
    assert overview.items() <= told["overview"].items()
    total = {"scope": "total"} | by_name.pop("unlimited_cache")[0]
    assert total == told["unlimited_cache"][2]
    for name, rows in by_name.items():
        assert rows == told[name]


def test_the_sql_of_a_file_without_links_reads_those_made_beside_it(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "a.parquet", [(1, 2), (1, 2, 3)])
    [links] = [
        line
        for line in replay_ok("describe", path, "--sql").splitlines()
        if line.startswith("from read_parquet")
    ]
    assert links.startswith(f"from read_parquet('{path}.links-")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.parquet", "no such file"),
        ("text.parquet", "not a Parquet file"),
        ("empty.parquet", "the trace has no rows"),
    ],
)
@pytest.mark.parametrize("option", [(), ("--sql",), ("--format", "json")], ids=str)
def test_a_trace_that_is_none_is_one_line_and_exit_code_1(
    chats: Path, tmp_path: Path, name: str, message: str, option: tuple[str, ...]
) -> None:
    (tmp_path / "text.parquet").write_text("seq,tokens\n")
    pq.write_table(pq.read_table(chats).slice(0, 0), tmp_path / "empty.parquet")
    done = replay_here("describe", tmp_path / name, *option)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"replay: {tmp_path / name}: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "options", [("--block-tokens", "0"), ("--block-tokens", "x"), ("--format", "csv"), ("more",)]
)
def test_wrong_usage_is_one_line_and_exit_code_2(chats: Path, options: tuple[str, ...]) -> None:
    done = replay_here("describe", chats, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("replay: ")
    assert done.stderr.count("\n") == 1


def test_the_help_tells_what_it_does_and_ends_with_an_example() -> None:
    text = replay_ok("describe", "--help")
    assert "Tell what is in TRACE before any replay." in text
    assert "Example: replay describe traces/day1.parquet" in text
    assert "[default: 1]" in text
