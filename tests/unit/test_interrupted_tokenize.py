"""A tokenize that is killed: the old trace or none, and the next run goes on and gives the same."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from command import environment
from samples import names_in, write_log

from pipeline.errors import LogError
from pipeline.tokenize import Summary, TokenizeSettings, tokenize_logs
from pipeline.tokenize.parts import PartWriter, is_whole
from pipeline.tokenize.workshop import open_workshop
from pipeline.trace import TraceWriter

LOGS = 3
_KILLED = """
import os, signal, sys
from pathlib import Path
from pipeline import files
from pipeline.tokenize import logs_to_trace, parts, rejects
from pipeline.trace import writer

def deadly(owner, name, at):
    plain, calls = getattr(owner, name), []
    def counted(*values, **named):
        calls.append(1)
        if len(calls) == at:
            os.kill(os.getpid(), int(os.environ["SIGNAL"]))
        return plain(*values, **named)
    setattr(owner, name, counted)

owners = {"add": parts.PartWriter, "finish": parts.PartWriter, "write": writer.TraceWriter,
          "_flush": files, "read_prompts": logs_to_trace, "write_ndjson": rejects.pl.DataFrame}
deadly(owners[sys.argv[1]], sys.argv[1], int(sys.argv[2]))
logs_to_trace.tokenize_logs([Path(log) for log in sys.argv[4:]], Path(sys.argv[3]))
"""


def _logs(folder: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    logs = []
    for number in range(LOGS):
        lines = [
            {"request_id": f"{number}-{i}", "timestamp": 100 + i, "prompt": [number, *range(i % 9)]}
            for i in range(200)
        ]
        logs.append(write_log(folder / f"{number}.jsonl", [*lines, "{"]))
    return logs


def _run(trace: Path, logs: Sequence[Path], where: str, at: int, number: int) -> int:
    script = [sys.executable, "-c", _KILLED, where, str(at), str(trace), *map(str, logs)]
    return subprocess.run(script, env=environment(SIGNAL=str(number)), check=False).returncode


def _expected(folder: Path) -> tuple[bytes, bytes]:
    folder.mkdir()
    tokenize_logs(_logs(folder / "logs"), folder / "t.parquet")
    rejects = folder / "t.parquet.rejects.jsonl"
    return (folder / "t.parquet").read_bytes(), rejects.read_bytes()


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("where", "at", "resumed"),
    [
        ("add", 50, 0),
        ("add", 450, 2),
        ("finish", 2, 1),
        ("read_prompts", 1, LOGS),
        ("write", 1, LOGS),
        ("_flush", 1, LOGS),
        ("write_ndjson", 1, LOGS),
    ],
)
def test_killed_at_any_moment_it_leaves_the_old_trace_or_the_new_one(
    tmp_path: Path, where: str, at: int, resumed: int
) -> None:
    logs, trace = _logs(tmp_path / "logs"), tmp_path / "t.parquet"
    trace.write_bytes(b"old")
    assert _run(trace, logs, where, at, signal.SIGKILL) == -signal.SIGKILL
    whole, _ = _expected(tmp_path / "undisturbed")
    assert trace.read_bytes() == (whole if where == "write_ndjson" else b"old")
    summary = tokenize_logs(logs, trace)
    assert summary.resumed == resumed
    assert trace.read_bytes() == whole
    assert not (tmp_path / ".t.parquet.parts").exists()


@pytest.mark.usefixtures("compiled")
def test_a_signal_keeps_the_logs_that_were_read_and_nothing_else(tmp_path: Path) -> None:
    logs, trace = _logs(tmp_path / "logs"), tmp_path / "t.parquet"
    assert _run(trace, logs, "add", 450, signal.SIGINT) != 0
    left = names_in(tmp_path / ".t.parquet.parts")
    assert sorted(name.partition(".")[2] for name in left) == sorted(
        2 * ["rows", "rejects", "ids", "arrival", "note"]
    )
    assert names_in(tmp_path) == {"logs", ".t.parquet.parts"}
    assert tokenize_logs(logs, trace).resumed == 2
    assert names_in(tmp_path) == {"logs", "t.parquet", "t.parquet.rejects.jsonl"}


def _interrupted(trace: Path, logs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(TraceWriter, "write", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tokenize_logs(logs, trace)


def _again(trace: Path, logs: list[Path], **settings: object) -> Summary:
    return tokenize_logs(logs, trace, TokenizeSettings(**settings))  # type: ignore[arg-type]


def test_a_log_that_changed_and_other_settings_are_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, trace = _logs(tmp_path / "logs"), tmp_path / "t.parquet"
    _interrupted(trace, logs, monkeypatch)
    with logs[1].open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"timestamp": 400, "prompt": [7]}) + "\n")
    summary = _again(trace, logs, max_rejects=1)
    assert (summary.resumed, summary.requests) == (0, LOGS * 200 + 1)
    _interrupted(trace, logs, monkeypatch)
    os.utime(logs[0], ns=(0, 0))
    assert tokenize_logs(logs, trace).resumed == LOGS - 1


def test_two_runs_do_not_make_one_trace_at_the_same_time(tmp_path: Path) -> None:
    logs, trace = _logs(tmp_path / "logs"), tmp_path / "t.parquet"
    with (
        open_workshop(trace, TokenizeSettings()),
        pytest.raises(LogError, match=r"\.t\.parquet\.parts: another run is making this trace"),
    ):
        tokenize_logs(logs, trace)
    assert tokenize_logs(logs, trace).requests == LOGS * 200


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    logs = _logs(tmp_path / "logs")
    with pytest.raises(LogError, match="no such file"):
        tokenize_logs([*logs, tmp_path / "gone.jsonl"], tmp_path / "t.parquet")
    assert names_in(tmp_path) == {"logs"}


def test_a_part_that_is_made_anew_is_not_whole_before_its_end(tmp_path: Path) -> None:
    for _ in range(2):
        writer = PartWriter(tmp_path / "part")
        assert not is_whole(tmp_path / "part")
        writer.finish(np.zeros(0, np.int64), {})
        assert is_whole(tmp_path / "part")
