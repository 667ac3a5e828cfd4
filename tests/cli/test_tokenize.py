"""`replay tokenize`: what it says on stderr, and its progress bar, seen on a terminal alone."""

import json
import os
import pty
import subprocess
import zlib
from pathlib import Path

import pytest
from command import COMMAND, environment, replay, replay_here
from samples import column, names_in, rows_of, write_log

pytestmark = pytest.mark.usefixtures("compiled")

EPOCH_S = 1_735_689_600  # 2025-01-01


def _line(time: float | None, prompt: str = "Tell me a story") -> dict[str, object]:
    return {"timestamp": time, "tenant": "shop", "body": {"prompt": prompt}}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_log(tmp_path / "a.jsonl", [_line(EPOCH_S + 2), _line(EPOCH_S), _line(EPOCH_S + 1)])


def test_a_tokenize_says_what_it_made_and_prints_nothing(log: Path) -> None:
    done = replay("tokenize", "a.jsonl", "-o", "a.parquet", cwd=log.parent)
    assert (done.returncode, done.stdout) == (0, "")
    made, arrivals, times, step, lines = done.stderr.splitlines()
    assert made == (
        "replay: a.parquet: 3 requests, 12 prompt tokens,"
        " 66.7% of them a prefix of an earlier request"
    )
    assert arrivals == (
        "replay: arrivals from 2025-01-01 00:00:00.000+00:00 to 2025-01-01 00:00:02.000+00:00"
        " (0:00:02, 1.5 requests/s)"
    )
    assert times == "replay: a.jsonl: times in s, by their size"
    assert step == ("replay: not in order of time, by up to 0:00:02: sorted")
    assert lines == "replay: 3 lines: 3 openai"
    assert names_in(log.parent) == {"a.jsonl", "a.parquet"}


def test_requests_whose_answers_are_not_logged_are_counted_where_output_ids_are_asked_for(
    tmp_path: Path,
) -> None:
    answered = _line(1) | {"response": {"choices": [{"text": "Once upon a time"}]}}
    log = write_log(tmp_path / "a.jsonl", [answered, _line(2), _line(3)])
    done = replay_here("tokenize", log, "-o", tmp_path / "a.parquet", "--output-ids")
    assert done.returncode == 0
    assert "2 requests without output ids: their answers are not in the log" in done.stderr
    outputs = column(rows_of(tmp_path / "a.parquet"), "output_token_ids")
    assert [len(ids) for ids in outputs] == [4, 0, 0]


def test_two_clocks_in_one_log_end_it_with_the_lines_named(tmp_path: Path) -> None:
    times = (EPOCH_S + 2, (EPOCH_S + 1) * 1000, EPOCH_S * 1_000_000)
    log = write_log(tmp_path / "a.jsonl", [_line(time) for time in times])
    for unit, rejected in (("s", (2, 3)), (None, (1, 3))):
        options = ("--time-unit", unit) if unit else ()
        done = replay_here("tokenize", log, "-o", tmp_path / "a.parquet", *options)
        assert done.returncode == 1
        assert all(f"a.jsonl line {line}: its time " in done.stderr for line in rejected)
        assert done.stderr.count(" line ") == 2
    assert names_in(tmp_path) == {"a.jsonl"}


def test_rejected_lines_are_counted_and_their_list_is_named(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", [_line(1), "{", "[", _line(None)])
    trace = tmp_path / "a.parquet"
    done = replay_here("tokenize", log, "-o", trace, "--max-rejects", "0.75")
    assert done.returncode == 0
    assert "replay: rejected 2: not a JSON object\n" in done.stderr
    assert "replay: rejected 1: it has no time, but other lines have one\n" in done.stderr
    assert done.stderr.endswith(f"replay: rejected lines are listed in {trace}.rejects.jsonl\n")
    lines = Path(f"{trace}.rejects.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["line"] for line in lines] == [2, 3, 4]


def test_several_compressed_logs_become_one_trace(tmp_path: Path) -> None:
    for name, time in (("b", 1), ("a", 2)):
        text = json.dumps({"request_id": name, "timestamp": time, "prompt": [1]}).encode()
        packer = zlib.compressobj(wbits=31)
        (tmp_path / f"{name}.gz").write_bytes(packer.compress(text) + packer.flush())
    done = replay_here("tokenize", "a.gz", "b.gz", "-o", "day.parquet", cwd=tmp_path)
    assert done.returncode == 0
    assert column(rows_of(tmp_path / "day.parquet"), "request_id") == ["b", "a"]


def test_a_tokenized_trace_can_be_replayed_at_once(log: Path) -> None:
    assert replay_here("tokenize", log, "-o", log.with_name("day.parquet")).returncode == 0
    done = replay_here("day.parquet", cwd=log.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 requests over 4 replicas of 262,144 tokens; clock: timestamps")


def test_no_carriage_return_or_colour_goes_into_a_log_file(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", [_line(i, f"{i} {'x ' * 400}") for i in range(3000)])
    done = subprocess.run(
        [*COMMAND, "tokenize", str(log), "-o", str(tmp_path / "a.parquet")],
        env=environment(TERM="xterm-256color"),
        capture_output=True,
        check=True,
    )
    assert b"\r" not in done.stderr + done.stdout
    assert b"\x1b" not in done.stderr + done.stdout
    assert all(line.startswith(b"replay: ") for line in done.stderr.splitlines())


def test_on_a_terminal_a_bar_shows_how_far_it_is(log: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = [*COMMAND, "tokenize", str(log), "-o", str(log.with_name("a.parquet"))]
    done = subprocess.run(
        arguments, env=environment(TERM="xterm"), stdout=subprocess.PIPE, stderr=theirs, check=True
    )
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.stdout == b""
    assert "tokenize" in shown
    assert "100%" in shown
