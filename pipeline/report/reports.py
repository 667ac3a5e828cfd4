"""The reports on a run: the SQL files of queries/."""

from pipeline.errors import unknown
from pipeline.sql_files import SqlFile, queries_folder, read_sql_file


def list_reports() -> list[SqlFile]:
    """Return all reports by name."""
    return [read_sql_file(file) for file in sorted(queries_folder().glob("*.sql"))]


def find_report(name: str) -> SqlFile:
    """Return the report of that name; UsageError, with the nearest name, if there is none."""
    reports = {report.name: report for report in list_reports()}
    if name not in reports:
        raise unknown("report", name, reports)
    return reports[name]
