"""The SQL files of queries/, each with what it says of itself in its header."""

import re
from dataclasses import dataclass
from pathlib import Path

_PACKAGE = Path(__file__).parent
_HEADER = re.compile(r"-- Question: (.+)\n-- Reads: (.+)\n-- (One row .+)\n")


@dataclass(frozen=True)
class SqlFile:
    """A statement: its name, question, the views it reads, what a row is, its SQL."""

    name: str
    question: str
    reads: str
    rows: str
    sql: str


def queries_folder() -> Path:
    """Return the folder of SQL files: in the wheel inside the package, else beside it."""
    inside = _PACKAGE / "queries"
    return inside if inside.is_dir() else _PACKAGE.parent / "queries"


def quoted(value: object) -> str:
    """Return a path or another value as SQL text, None as null."""
    return "null" if value is None else "'" + str(value).replace("'", "''") + "'"


def one_line(error: Exception) -> str:
    """Return what DuckDB says, without its line breaks."""
    return " ".join(str(error).split())


def read_sql_file(file: Path) -> SqlFile:
    """Read a SQL file with its header."""
    sql = file.read_text(encoding="utf-8")
    header = _HEADER.match(sql)
    assert header, f"{file}: its header is not Question, Reads, One row"
    question, reads, rows = header.groups()
    return SqlFile(file.stem, question, reads, rows, sql)
