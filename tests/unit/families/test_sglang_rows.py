"""SGLang's metrics files and dumps: a row is a whole request."""

import json
from typing import Any

import pytest

from pipeline.logs.families import sglang_dump, sglang_metrics
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip

DUMP, METRICS = sglang_dump.FAMILY, sglang_metrics.FAMILY
NOTHING = {"namespace": None, "tenant": None, "session_id": None}


def _one(family: LogFamily, row: dict[str, Any]) -> LogRecord | Skip | BadLine:
    assert family.recognises(row)
    [found] = family.reader()(row)
    return found


def _metrics(parameters: Any, **more: Any) -> dict[str, Any]:
    if not isinstance(parameters, str):
        parameters = json.dumps(parameters)
    return {"request_parameters": parameters, "id": "r", **more}


def _dumped(obj: Any, out: Any = None, created: Any = 1.5) -> dict[str, Any]:
    return {"obj": obj, "out": out, "created": created, "finished": 2.5}


def test_a_row_of_metrics_is_a_request_without_a_time() -> None:
    parameters = {"rid": "r", "text": "Hi", "input_ids": [1, 2], "lora_path": "fr"}
    row = _metrics(parameters, prompt_tokens=2, completion_tokens=3, cached_tokens=1)
    assert _one(METRICS, row) == LogRecord(
        [1, 2],
        request_id="r",
        carried=NOTHING | {"namespace": "fr"},
        output_tokens=3,
        observed_cached_tokens=1,
    )


def test_a_row_of_metrics_counts_by_the_id_of_its_own_request() -> None:
    found = _one(METRICS, _metrics({"rid": ["r", "s"], "text": "Hi"}))
    assert isinstance(found, LogRecord)
    assert found.request_id == "r"


@pytest.mark.parametrize("parameters", ["", "x", "[1]", "{", "null", "{}"])
def test_parameters_that_are_no_object_are_bad(parameters: str) -> None:
    with pytest.raises(BadLine, match="request_parameters is not an object"):
        _one(METRICS, _metrics(parameters))


def test_metrics_without_prompts_say_which_level_has_them() -> None:
    with pytest.raises(BadLine, match="from --log-requests-level 2 on"):
        _one(METRICS, _metrics({"rid": "r"}))


def test_metrics_of_a_refused_request_are_of_one_that_failed() -> None:
    reason = {"type": "abort", "status_code": 400}
    found = _one(METRICS, _metrics({"text": "Hi"}, finish_reason=reason, completion_tokens=0))
    assert isinstance(found, LogRecord)
    assert found.failed


def test_a_row_of_a_dump_is_a_request_at_the_time_it_was_made() -> None:
    obj = {"rid": "r", "text": None, "input_ids": (1, 2), "session_id": "s"}
    out = {"text": "Yo", "meta_info": {"completion_tokens": 3, "cached_tokens": 0}}
    assert _one(DUMP, _dumped(obj, out)) == LogRecord(
        [1, 2],
        time=1.5,
        request_id="r",
        carried=NOTHING | {"session_id": "s"},
        output_tokens=3,
        answer="Yo",
        observed_cached_tokens=0,
    )


@pytest.mark.parametrize("out", [None, {}, [], "x", {"meta_info": None}])
def test_a_request_of_a_dump_needs_no_response(out: Any) -> None:
    found = _one(DUMP, _dumped({"rid": "r", "text": "Hi"}, out))
    assert found == LogRecord("Hi", time=1.5, request_id="r", carried=NOTHING)


@pytest.mark.parametrize("created", [None, "", True, [1], float("nan")])
def test_a_time_of_another_form_is_none(created: Any) -> None:
    found = _one(DUMP, _dumped({"rid": "r", "text": "Hi"}, {}, created))
    assert isinstance(found, LogRecord)
    assert found.time is None


@pytest.mark.parametrize("obj", [None, [], "x", 3])
def test_a_dumped_object_of_another_form_is_bad(obj: Any) -> None:
    with pytest.raises(BadLine, match="obj is not an object"):
        _one(DUMP, _dumped(obj))


@pytest.mark.parametrize("ids", [(), ((),), (None,), ("x", 1), {1, 2}, object()])
def test_dumped_ids_of_another_form_are_bad(ids: Any) -> None:
    found = list(DUMP.reader()(_dumped({"rid": "r", "text": None, "input_ids": ids})))
    assert any(isinstance(one, BadLine) for one in found)


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"obj": {}, "out": {}, "created": 1},
        {"obj": {}, "out": {}, "created": 1, "finished": 2, "event": "request.received"},
        {"request_parameters": "{}"},
        {"request_parameters": 1, "id": "r"},
        {"model_parameters": "{}", "id": "r"},
        "x",
        None,
        [],
    ],
)
def test_other_rows_are_not_taken_for_requests(row: Any) -> None:
    assert not DUMP.recognises(row)
    assert not METRICS.recognises(row)
