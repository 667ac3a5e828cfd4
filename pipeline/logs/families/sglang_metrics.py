"""SGLang's --export-metrics-to-file: a row for each request that ended, by hour, without a time."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.fields import mapping
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip
from pipeline.logs.sglang import requests_of


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict) or "id" not in line:
        return False
    return isinstance(line.get("request_parameters"), str | dict)


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip | BadLine]:
    obj = mapping(line["request_parameters"])
    if not obj:
        raise BadLine("request_parameters is not an object")
    yield from requests_of({**obj, "rid": line["id"]}, {"meta_info": line})


FAMILY = LogFamily(
    name="sglang-metrics",
    written_by="SGLang: --export-metrics-to-file",
    mark="request_parameters and id",
    recognises=_recognises,
    fields=("request_parameters",),
    reader=lambda: _read,
)
