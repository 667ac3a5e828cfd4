"""SGLang's request and crash dumps: pickles, whose rows are a request with its response."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.fields import mapping, moment
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip
from pipeline.logs.sglang import requests_of


def _recognises(row: Any) -> bool:
    return isinstance(row, dict) and {"obj", "out", "created", "finished"} == row.keys()


def _read(row: dict[str, Any]) -> Iterator[LogRecord | Skip | BadLine]:
    if not isinstance(row["obj"], dict):
        raise BadLine("obj is not an object")
    yield from requests_of(row["obj"], mapping(row["out"]), time=moment(row["created"]))


FAMILY = LogFamily(
    name="sglang-dump",
    written_by="SGLang: request dumps, as asked for at run time, and --crash-dump-folder",
    mark="a pickle; rows of obj, out, created and finished",
    recognises=_recognises,
    fields=("obj",),
    reader=lambda: _read,
)
