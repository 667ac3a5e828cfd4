"""What a run folder is: run.json, which marks it as ours, and where its tables lie."""

import json
from pathlib import Path
from typing import Any

FORMAT = "replay-run"
TABLES = ("decisions", "evictions", "replicas")


def read_run(folder: Path) -> dict[str, Any] | None:
    """Return what a folder's run.json holds, or None if the folder is no run of ours."""
    try:
        run = json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return run if isinstance(run, dict) and run.get("format") == FORMAT else None


def table_file(run: Path, table: str, policy: str) -> Path:
    """Return the place of one policy's rows of a table; "*" for all policies."""
    return run / table / f"policy={policy}" / "part-0.parquet"
