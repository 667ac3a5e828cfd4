"""The `replay` command as tests start it: a process of its own, with both streams captured."""

import os
import subprocess
import sys
from pathlib import Path

COMMAND = (sys.executable, "-m", "pipeline.cli")
_KEPT = ("PATH", "PYTHONPATH", "REPLAY_CACHE_DIR", "SYSTEMROOT")


def environment(**more: str) -> dict[str, str]:
    """Return an environment without HOME or locale: what cron gives, and where the package is."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ} | more


def replay(
    *arguments: str | Path, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `replay` and return how it ended."""
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


def replay_ok(*arguments: str | Path, cwd: Path | None = None) -> str:
    """Run `replay`, see that it is done without a word on stderr, and return its output."""
    done = replay(*arguments, cwd=cwd)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
