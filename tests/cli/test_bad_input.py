"""Bad input: one line on stderr that says what to do, 1 for data and 2 for usage, no output."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import Done, replay, replay_here
from samples import rows_of, write_log, write_tokens, write_trace

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a good trace, and everything that is wrong with others."""
    folder = tmp_path_factory.mktemp("bad")
    good = write_trace(folder / "good.parquet", [(1, 2, 3), (7,), (1, 2, 3, 4), (1, 2)])
    table = pq.ParquetFile(good).read()
    write_trace(folder / "none.parquet", [])
    (folder / "empty.parquet").touch()
    (folder / "text.parquet").write_text("seq,arrival\n0,0\n")
    content = good.read_bytes()
    (folder / "cut.parquet").write_bytes(content[: len(content) // 2])
    pq.write_table(pa.table({"user": ["a"], "prompt": ["hello"]}), folder / "other.parquet")
    pq.write_table(table.slice(1), folder / "filtered.parquet")
    times = pa.array([3, 2], pa.timestamp("us", "UTC"))
    write_tokens(folder / "unsorted.parquet", [[1], [2]], arrival=times)
    ids = pa.array([[1], None], pa.list_(pa.int64()))
    pq.write_table(pa.table({"prompt_token_ids": ids}), folder / "null.parquet")
    write_log(folder / "good.jsonl", [{"prompt": [1]}])
    write_log(folder / "bad.jsonl", [{"prompt": [1]}, "{", "["])
    (folder / "empty.jsonl").touch()
    (folder / "cut.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00\x00\x00")
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("years of work")
    return folder


def _state(folder: Path) -> dict[str, bytes | None]:
    return {str(p): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def _check(folder: Path, command: str, code: int, message: str) -> None:
    before = _state(folder)
    _check_end(replay_here(*command.split(), cwd=folder), code, message)
    assert _state(folder) == before


def _check_end(done: Done, code: int, message: str) -> None:
    assert done.stdout == ""
    assert done.stderr.startswith("replay: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert done.returncode == code


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("nowhere.parquet", "nowhere.parquet: no such file"),
        ("./mine", "is a folder: name a Parquet file in it"),
        ("empty.parquet", "empty.parquet: the file is empty"),
        ("text.parquet", "not a Parquet file; make a trace of request logs with: replay tokenize"),
        ("good.jsonl", "not a Parquet file; make a trace of request logs with: replay tokenize"),
        ("other.parquet", "not a trace: it has neither prompt_token_ids nor"),
        ("cut.parquet", "truncated or damaged Parquet: copy it again"),
        ("none.parquet", "the trace has no rows, so there is nothing to replay"),
        ("filtered.parquet", "make new links with: replay link filtered.parquet -o NEW.parquet"),
        ("unsorted.parquet", "row 1: it arrived before the row above it: sort by arrival"),
        ("null.parquet", "row 1: prompt_token_ids is null"),
        (
            "good.parquet -o mine",
            "mine: exists and is not a run folder: remove it, or name another",
        ),
        ("good.parquet -o good.jsonl", "good.jsonl: exists and is not a run folder"),
    ],
)
def test_a_trace_that_cannot_be_replayed(folder: Path, command: str, message: str) -> None:
    _check(folder, command, 1, message)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("link nowhere.parquet -o new.parquet", "nowhere.parquet: no such file"),
        ("link other.parquet -o new.parquet", "not a trace"),
        ("link good.parquet -o nowhere/new.parquet", "nowhere: no such folder"),
        ("drop-tokens cut.parquet -o new.parquet", "truncated or damaged"),
        ("tokenize nowhere.jsonl -o new.parquet", "nowhere.jsonl: no such file"),
        ("tokenize mine -o new.parquet", "mine: is a folder: name the log files in it"),
        ("tokenize empty.jsonl -o new.parquet", "empty.jsonl: no requests in it"),
        ("tokenize cut.jsonl.gz -o new.parquet", "cut.jsonl.gz: damaged or truncated"),
        (
            "tokenize bad.jsonl -o new.parquet",
            "2 of 3 lines rejected, more than --max-rejects 0.01",
        ),
        ("tokenize good.jsonl -o nowhere/new.parquet", "nowhere: no such folder"),
        ("tokenize good.jsonl -o mine", "mine: is a folder"),
        ("tokenize good.jsonl -o good.jsonl", "good.jsonl: is one of the logs"),
        ("report nowhere", "nowhere: no such run; make one with: replay TRACE -o nowhere"),
        ("report mine", "mine: not a run folder"),
        ("report good.parquet", "good.parquet: not a run folder"),
        ("sql nowhere select", "nowhere: no such run"),
        ("sql mine select", "mine: not a run folder"),
        ("views mine", "mine: not a run folder"),
    ],
)
def test_other_files_that_are_not_what_a_command_needs(
    folder: Path, command: str, message: str
) -> None:
    _check(folder, command, 1, message)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("good.parquet --policy cache_awar", "'cache_awar' (did you mean cache_aware?): choose"),
        ("good.parquet --policy x", "unknown policy 'x': choose from round_robin, pure_affinity"),
        (
            "good.parquet --policy round_robin --policy round_robin",
            "policy round_robin is named twice",
        ),
        ("good.parquet --capacity-tokens 0", "capacity-tokens is 0: give at least 1"),
        ("good.parquet --capacity-tokens -5", "capacity-tokens is -5: give at least 1"),
        ("good.parquet --capacity-tokens nan", "--capacity-tokens"),
        ("good.parquet --capacity-tokens 1e6", "--capacity-tokens"),
        ("good.parquet --replicas 0", "replicas is 0: give 1 to 4096"),
        ("good.parquet --replicas 5000", "replicas is 5000: give 1 to 4096"),
        ("good.parquet --prefill-ms-per-token nan", "prefill-ms-per-token is nan: give a number"),
        ("good.parquet --prefill-ms-per-token -1", "prefill-ms-per-token is -1.0"),
        ("good.parquet --lookup-ms-per-token inf", "lookup-ms-per-token is inf"),
        ("good.parquet --decay-ms-per-arrival nan", "decay-ms-per-arrival is nan"),
        ("good.parquet --decay-ms-per-arrival 0.00001", "give a multiple of 0.0001 ms"),
        ("good.parquet --batch-requests 0", "batch-requests is 0: give 1 to 100,000,000"),
        ("good.parquet --clock wall", "'wall' is not one of 'arrivals', 'timestamps'"),
        ("good.parquet --format yaml", "'yaml' is not one of 'table', 'json'"),
        ("good.parquet more.parquet", "more.parquet"),
        ("good.parquet --replica 3", "--replica"),
        ("--replicas 3", "Missing argument 'TRACE'"),
        ("run", "Missing argument 'TRACE'"),
        ("reprot runs/good", "'reprot' is neither a file nor a command (burst, describe,"),
        ("tokenise good.jsonl", "'tokenise' is neither a file nor a command (burst,"),
        ("nowhere", "'nowhere' is neither a file nor a command (burst,"),
        ("tokenize good.jsonl", "Missing option '-o'"),
        ("tokenize -o new.parquet", "Missing argument"),
        ("tokenize good.jsonl -o new.parquet --max-rejects 2", "--max-rejects"),
        ("tokenize good.jsonl -o new.parquet --max-rejects nan", "--max-rejects"),
        ("tokenize good.jsonl -o new.parquet --time-unit h", "'h' is not one of 's', 'ms'"),
        ("report", "Missing argument 'RUN'"),
        ("sql mine", "Missing argument 'SQL'"),
        ("views", "Missing argument 'RUN'"),
    ],
)
def test_wrong_usage(folder: Path, command: str, message: str) -> None:
    _check(folder, command, 2, message)


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        ("nowhere.parquet", 1, "no such file"),
        ("report mine", 1, "not a run folder"),
        ("good.parquet --policy x", 2, "unknown policy"),
        ("good.parquet --replicas 0", 2, "give 1 to 4096"),
        ("reprot runs/good", 2, "is neither a file nor a command"),
    ],
)
def test_a_process_ends_with_that_line_and_code(
    folder: Path, command: str, code: int, message: str
) -> None:
    _check_end(replay(*command.split(), cwd=folder), code, message)


def test_an_empty_name_is_neither_a_file_nor_a_command(folder: Path) -> None:
    _check_end(replay_here("", cwd=folder), 2, "'' is neither a file nor a command")


def test_a_file_is_no_folder_for_another(folder: Path) -> None:
    _check(folder, "good.parquet/inside.parquet", 1, "good.parquet/inside.parquet")


def test_a_request_longer_than_the_capacity_is_counted_and_no_failure(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.parquet", [(1, 2, 3, 4), range(50, 59), (1, 2, 3, 4, 5), ()])
    done = replay_here(trace, "--capacity-tokens", "8", "-o", tmp_path / "run")
    assert (done.returncode, done.stderr) == (0, "")
    [rejected] = [line for line in done.stdout.splitlines() if line.startswith("rejected")]
    assert rejected.split() == ["rejected", "2", "2", "2"]
    rows = rows_of(tmp_path / "run" / "decisions" / "policy=cache_aware" / "part-0.parquet")
    assert [row["outcome"] for row in rows] == [
        "served", "rejected_too_long", "served", "rejected_empty",
    ]  # fmt: skip
