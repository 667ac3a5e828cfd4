"""What log families make of lines and files, for tests."""

from pathlib import Path
from typing import Any

from pipeline.logs.reading import LogFile, read_log
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip


def read_lines(family: LogFamily, *lines: Any) -> list[Any]:
    """Return what the lines of one file give, all of which the family has to recognise."""
    reader = family.reader()
    found: list[Any] = []
    for line in lines:
        assert family.recognises(line)
        found += reader(line)
    return found


def one_record(family: LogFamily, line: Any) -> LogRecord:
    """Return the only thing that a line gives, which has to be a request."""
    [record] = read_lines(family, line)
    assert isinstance(record, LogRecord)
    return record


def read_file(path: Path, family: str) -> list[LogRecord | Skip | BadLine]:
    """Return what a file gives, all of which the named family has to have read."""
    log = LogFile(path)
    found = [one.what for one in read_log(log)]
    assert log.family is not None
    assert log.family.name == family
    assert set(log.families) == {family}
    return found
