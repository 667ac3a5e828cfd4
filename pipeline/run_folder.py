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


def foreign_names(folder: Path) -> list[str]:
    """Return the paths in a folder, from there, that no run of ours writes."""
    if not folder.is_dir():
        return []
    ours = {table_file(Path(), table, "*") for table in TABLES}
    files = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return sorted(
        str(path)
        for path in files
        if path != Path("run.json") and not any(path.match(str(own)) for own in ours)
    )
