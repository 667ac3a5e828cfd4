"""The `replay` command as tests start it, with both streams captured."""

import contextlib
import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

from pipeline.cli import main

COMMAND = (sys.executable, "-m", "pipeline.cli")
_KEPT = ("PATH", "PYTHONPATH", "REPLAY_CACHE_DIR", "SYSTEMROOT")

Done = subprocess.CompletedProcess[str]


def environment(**more: str) -> dict[str, str]:
    """Return an environment without HOME or locale: what cron gives, and where the package is."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | more


def replay(*arguments: str | Path, cwd: Path | None = None, **variables: str) -> Done:
    """Run `replay` as a process of its own and return how it ended."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def replay_here(*arguments: str | Path, cwd: Path | None = None) -> Done:
    """Run `replay` in this process, which saves the time of all imports."""
    argv = ["replay", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    handler = signal.getsignal(signal.SIGTERM)
    try:
        with (
            mock.patch.object(sys, "argv", argv),
            contextlib.chdir(cwd or Path.cwd()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            main()
    except SystemExit as end:
        printed = [stream.buffer.getvalue().decode() for stream in (out, err)]  # type: ignore[attr-defined]
        return Done(argv, int(end.code or 0), *printed)
    finally:
        signal.signal(signal.SIGTERM, handler)
    raise AssertionError("main always ends with an exit code")


def replay_ok(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Run `replay` here, see that it is done without a word on stderr, and return its output."""
    done = replay_here(*arguments, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
