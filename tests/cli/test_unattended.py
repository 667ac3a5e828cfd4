"""Unattended use: signals, closed pipes, cron's bare environment."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import COMMAND, environment, replay_here
from samples import names_in, parquet_bytes, write_large_trace, write_log

pytestmark = pytest.mark.usefixtures("compiled")

SIGNALS = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]
_SIGNAL_WHEN_WRITING = """
import os
from pipeline.trace.writer import TraceWriter
write = TraceWriter.write
def write_and_die(self, requests):
    write(self, requests)
    os.kill(os.getpid(), int(os.environ["SIGNAL"]))
TraceWriter.write = write_and_die
from pipeline.cli import main
main()
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_large_trace(tmp_path_factory.mktemp("large") / "day.parquet", 300_000)


def _start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*COMMAND, *arguments], cwd=cwd, env=environment(), stdout=pipe, stderr=pipe, text=True
    )


def _wait_for_decisions(runs: Path, process: subprocess.Popen[str]) -> None:
    while process.poll() is None:
        partial = list(runs.glob(".*/decisions/*/*.partial"))
        if any(path.stat().st_size > 4 for path in partial):
            return
        time.sleep(0.005)


@pytest.mark.parametrize(("sent", "code"), SIGNALS)
def test_a_replay_that_is_told_to_end_leaves_the_old_run_and_no_temporary_files(
    large: Path, tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    small = write_large_trace(tmp_path / "small.parquet", 100)
    runs = tmp_path / "runs"
    assert replay_here(small, "-o", runs / "day").returncode == 0
    before = parquet_bytes(runs / "day")
    arguments = (str(large), "-o", str(runs / "day"), "--batch-requests", "100")
    with _start(*arguments, cwd=tmp_path) as process:
        _wait_for_decisions(runs, process)
        process.send_signal(sent)
        out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (code, "")
    assert errors.strip() == "" or errors.startswith("replay: ")
    assert names_in(runs) == {"day"}
    assert parquet_bytes(runs / "day") == before


@pytest.mark.parametrize(("sent", "code"), SIGNALS)
def test_a_tokenize_that_is_told_to_end_leaves_the_old_trace_and_what_it_has_read(
    tmp_path: Path, sent: signal.Signals, code: int
) -> None:
    log = write_log(tmp_path / "a.jsonl", [{"prompt": [i]} for i in range(9000)])
    (tmp_path / "a.parquet").write_text("old")
    script = [sys.executable, "-c", _SIGNAL_WHEN_WRITING, "tokenize", str(log)]
    done = subprocess.run(
        [*script, "-o", str(tmp_path / "a.parquet")],
        env=environment(SIGNAL=str(int(sent))),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
    assert names_in(tmp_path) == {"a.jsonl", "a.parquet", ".a.parquet.parts"}
    assert (tmp_path / "a.parquet").read_text() == "old"
    again = replay_here("tokenize", log, "-o", tmp_path / "a.parquet")
    assert "replay: 1 log had been read by a run that was interrupted" in again.stderr
    assert names_in(tmp_path) == {"a.jsonl", "a.parquet"}


@pytest.mark.parametrize("form", ["csv", "json", "table"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough_is_no_failure(
    small_run: Path, form: str, unbuffered: str
) -> None:
    query = "select range as n from range(200000)"
    script = 'set -o pipefail; "$@" | head -1'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND, "sql", str(small_run), query, "--format", form],
        env=environment(PYTHONUNBUFFERED=unbuffered),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.strip() == {"csv": "n", "json": "[", "table": "n"}[form]
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.mark.parametrize(
    "command", ["-h", "burst", "run small.parquet", "report run", "views run", "--version"]
)
def test_output_that_nobody_reads_is_no_traceback(
    small_run: Path, tmp_path: Path, command: str
) -> None:
    arguments = command.replace("small.parquet", "small.parquet -o new").split()
    (tmp_path / "small.parquet").symlink_to(small_run.with_name("small.parquet"))
    (tmp_path / "run").symlink_to(small_run)
    script = 'set -o pipefail; "$@" | true'
    done = subprocess.run(
        ["bash", "-c", script, "bash", *COMMAND, *arguments],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode in (0, 141)


def test_a_full_disk_for_the_output_is_one_line_and_exit_code_1(small_run: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full on this system")
    for command in (["burst"], ["sql", str(small_run), "select 1"], ["views", str(small_run)]):
        with full.open("w") as out:
            done = subprocess.run(
                [*COMMAND, *command],
                env=environment(),
                stdout=out,
                stderr=-1,
                text=True,
                check=False,
            )
        assert done.returncode == 1
        assert done.stderr.startswith("replay: ")
        assert done.stderr.count("\n") == 1


def test_crons_bare_environment_is_enough(small_run: Path, tmp_path: Path) -> None:
    kept = [f"{name}={value}" for name, value in environment().items() if name != "PATH"]
    script = ["env", "-i", "PATH=/usr/bin:/bin", *kept, *COMMAND]
    trace = small_run.with_name("small.parquet")
    for arguments in ([str(trace), "-o", "run"], ["report", "run"], ["burst"]):
        done = subprocess.run(
            [*script, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout
    assert names_in(tmp_path) == {"run"}


def test_names_and_rows_that_are_not_ascii_are_printed_without_a_locale(
    small_run: Path, tmp_path: Path
) -> None:
    (tmp_path / "größe").symlink_to(small_run)
    done = subprocess.run(
        [*COMMAND, "sql", "größe", "select 'ä → 東京' as t", "--format", "csv"],
        cwd=tmp_path,
        env=environment(LC_ALL="C"),
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == "t\nä → 東京\n"
