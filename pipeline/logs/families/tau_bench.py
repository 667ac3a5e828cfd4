"""tau-bench trajectories: OpenAI messages in traj, where each answer was a request."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import carried_of
from pipeline.logs.fields import text_or_none
from pipeline.logs.records import LogFamily, LogRecord, Skip
from pipeline.logs.turns import requests_of


def _recognises(line: Any) -> bool:
    return isinstance(line, dict) and "task_id" in line and isinstance(line.get("traj"), list)


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    parts = [text_or_none(line.get(key)) for key in ("task_id", "trial")]
    name = "-".join(part for part in parts if part) or None
    return requests_of(line["traj"], name, carried_of(line) | {"session_id": name})


FAMILY = LogFamily(
    name="tau-bench",
    written_by="tau-bench: trajectories",
    mark="task_id and traj",
    recognises=_recognises,
    fields=("traj",),
    reader=lambda: _read,
)
