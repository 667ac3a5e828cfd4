"""The SQL files of queries/: each a report, with what it says of itself in its header."""

import re
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import unknown

_PACKAGE = Path(__file__).parent.parent
_HEADER = re.compile(r"-- Question: (.+)\n-- Reads: (.+)\n-- (One row .+)\n")


@dataclass(frozen=True)
class Report:
    """A report: its name, the question it answers, the views it reads, what a row is, its SQL."""

    name: str
    question: str
    reads: str
    rows: str
    sql: str


def queries_folder() -> Path:
    """Return the folder of SQL files: in the wheel inside the package, else beside it."""
    inside = _PACKAGE / "queries"
    return inside if inside.is_dir() else _PACKAGE.parent / "queries"


def list_reports() -> list[Report]:
    """Return all reports by name."""
    return [_load(file) for file in sorted(queries_folder().glob("*.sql"))]


def find_report(name: str) -> Report:
    """Return the report of that name; UsageError, with the nearest name, if there is none."""
    reports = {report.name: report for report in list_reports()}
    if name not in reports:
        raise unknown("report", name, reports)
    return reports[name]


def _load(file: Path) -> Report:
    sql = file.read_text(encoding="utf-8")
    header = _HEADER.match(sql)
    assert header, f"{file}: its header is not Question, Reads, One row"
    question, reads, rows = header.groups()
    return Report(file.stem, question, reads, rows, sql)
