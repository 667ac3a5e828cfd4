"""A run folder to SQL views, reports and text.

recorded  what run.json says of a run, as DuckDB views
views     the run's tables as DuckDB views, and those
reports   the SQL files of queries/ and what they say of themselves
render    rows as table, CSV, JSON or Parquet
"""

from pipeline.report.render import FORMATS, render, transposed
from pipeline.report.reports import find_report, list_reports
from pipeline.report.views import open_run, select, views_sql

__all__ = [
    "FORMATS",
    "find_report",
    "list_reports",
    "open_run",
    "render",
    "select",
    "transposed",
    "views_sql",
]
