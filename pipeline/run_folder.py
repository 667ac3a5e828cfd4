"""What a run folder is: run.json, which marks it as ours, and where its tables lie."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipeline.errors import UsageError

FORMAT = "replay-run"
TABLES = ("decisions", "evictions", "replicas")
_LONGEST_NAME = 255


def read_run(folder: Path) -> dict[str, Any] | None:
    """Return what a folder's run.json holds, or None if the folder is no run of ours."""
    try:
        run = json.loads(Path(folder, "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return run if isinstance(run, dict) and run.get("format") == FORMAT else None


def table_file(run: Path, table: str, policy: str) -> Path:
    """Return the place of one policy's rows of a table; "*" for all policies.

    What a folder's name can't hold is written as %XX, which readers of hive partitions undo.
    """
    name = f"policy={policy if policy == '*' else quote(policy, safe='')}"
    if len(name) > _LONGEST_NAME:
        raise UsageError(
            f"policy {policy!r} is too long to name a folder, which has at most {_LONGEST_NAME}"
            " characters: leave out parameters that are the defaults"
        )
    return run / table / name / "part-0.parquet"


def seed_folder(run: Path, seed: int | str) -> Path:
    """Return where the tables of a further seed lie, as the first one's in `run`; "*" for all."""
    return run / "seeds" / f"seed={seed}"


def foreign_names(folder: Path) -> list[str]:
    """Return the paths in a folder, from there, that no run of ours writes."""
    if not folder.is_dir():
        return []
    places = (Path(), seed_folder(Path(), "*"))
    ours = [table_file(place, table, "*") for place in places for table in TABLES]
    files = (path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir())
    return sorted(
        str(path)
        for path in files
        if path != Path("run.json") and not any(_matches(path, own) for own in ours)
    )


def _matches(path: Path, pattern: Path) -> bool:
    """Tell whether a whole path matches; match alone looks at its end."""
    return len(path.parts) == len(pattern.parts) and path.match(str(pattern))
