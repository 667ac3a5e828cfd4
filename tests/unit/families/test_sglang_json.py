"""SGLang's JSON log: requests that came, that ended, and as OpenAI bodies; what level 2 cuts."""

from functools import partial
from typing import Any

import pytest
from family_reading import one_record, read_lines

from pipeline.logs.families.sglang_json import FAMILY
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

CAME = "2026-03-01T10:00:00.250000"
NOTHING = {"namespace": None, "tenant": None, "session_id": None}
OUT = {
    "text": "Yo",
    "output_ids": [1, 2],
    "meta_info": {
        "finish_reason": {"type": "stop"},
        "prompt_tokens": 3000,
        "completion_tokens": 2,
        "cached_tokens": 1,
        "e2e_latency": 0.75,
    },
}
CUT_TEXT = "a" * 1024 + "..." + "z" * 1024
CUT_IDS = [*range(1024), "...", *range(1024)]


def _line(event: str = "request.received", *, at: Any = CAME, **more: Any) -> dict[str, Any]:
    return {"timestamp": at, "event": event, **more}


def _came(**obj: Any) -> dict[str, Any]:
    return _line(rid="r", obj={"rid": "r", **obj})


def _ended(out: Any = OUT, **obj: Any) -> dict[str, Any]:
    at = "2026-03-01T10:00:01.000000"
    return _line("request.finished", at=at, rid="r", obj={"rid": "r", **obj}, out=out)


def _openai(**obj: Any) -> dict[str, Any]:
    return _line("request.received.openai", obj=obj)


_read = partial(read_lines, FAMILY)


_one = partial(one_record, FAMILY)


def _reason(line: dict[str, Any]) -> str:
    try:
        [found] = _read(line)
    except BadLine as reason:
        return str(reason)
    assert isinstance(found, BadLine)
    return str(found)


def test_a_request_that_came_is_its_token_ids_else_its_text() -> None:
    expected = LogRecord([1, 2], time=CAME, request_id="r", carried=NOTHING)
    assert _one(_came(text="Hi", input_ids=[1, 2])) == expected
    assert _one(_came(text=None, input_ids=[1, 2])).prompt == [1, 2]
    assert _one(_came(text="Hi", input_ids=None)).prompt == "Hi"
    assert _one(_came(text="Hi")).prompt == "Hi"
    assert _one(_came(text="Hi", input_ids=[])).prompt == "Hi"


def test_what_keeps_kv_apart_and_whose_it_is_is_carried() -> None:
    line = _came(text="Hi", lora_path="fr", extra_key="salt", session_id="s", routing_key="k")
    assert _one(line).carried == {"namespace": "fr/salt", "tenant": "k", "session_id": "s"}
    line["headers"] = {"x-smg-routing-key": "h"}
    assert _one(line).carried["tenant"] == "h"
    assert _one(_came(text="Hi", session_params={"id": "t"})).carried["session_id"] == "t"


def test_a_request_that_ended_is_told_again_with_its_answer_from_when_it_came() -> None:
    assert _read(_ended(text="Hi", input_ids=[1, 2])) == [
        LogRecord(
            [1, 2],
            time=CAME,
            request_id="r",
            carried=NOTHING,
            output_tokens=2,
            answer="Yo",
            output_ids=[1, 2],
            observed_cached_tokens=1,
            again=True,
        )
    ]


@pytest.mark.parametrize("latency", [None, -1, "x", True, float("nan"), 1e300, [1]])
def test_without_a_latency_a_request_has_the_time_of_its_end(latency: Any) -> None:
    out = {"meta_info": {"e2e_latency": latency}}
    assert _one(_ended(out, text="Hi")).time == "2026-03-01T10:00:01.000000"


@pytest.mark.parametrize("at", [None, "", True, [CAME], {}])
def test_a_line_without_a_time_has_none(at: Any) -> None:
    assert _one(_line(at=at, rid="r", obj={"text": "Hi"})).time is None
    ended = _line("request.finished", at=at, rid="r", obj={"text": "Hi"}, out=OUT)
    assert _one(ended).time is None


def test_outputs_are_counted_where_they_are_not_reported() -> None:
    assert _one(_ended({"output_ids": [7, 8, 9]}, text="Hi")).output_tokens == 3
    assert _one(_ended({"text": "Yo"}, text="Hi")).output_tokens is None


def test_an_output_that_the_logger_cut_is_none() -> None:
    record = _one(_ended({"text": CUT_TEXT, "output_ids": CUT_IDS}, text="Hi"))
    assert (record.answer, record.output_ids) == (None, None)


@pytest.mark.parametrize(
    "out", [None, [], "x", 3, {"meta_info": []}, {"text": 1, "output_ids": {}}]
)
def test_an_answer_of_another_form_is_no_reason_to_lose_a_request(out: Any) -> None:
    record = _one(_ended(out, text="Hi"))
    assert (record.prompt, record.output_tokens, record.answer) == ("Hi", None, None)


def test_a_batch_is_one_request_for_each_prompt() -> None:
    line = _line(obj={"rid": ["a", "b"], "text": ["A", "B"], "lora_path": [None, "fr"]})
    records = [record for record in _read(line) if isinstance(record, LogRecord)]
    assert [(r.request_id, r.prompt, r.carried["namespace"]) for r in records] == [
        ("a", "A", None),
        ("b", "B", "fr"),
    ]
    line = _line(rid="r", obj={"input_ids": [[1], [2, 3]]})
    records = [record for record in _read(line) if isinstance(record, LogRecord)]
    assert [(r.request_id, r.prompt) for r in records] == [("r-0", [1]), ("r-1", [2, 3])]


def test_a_bad_prompt_of_a_batch_does_not_take_the_others_with_it() -> None:
    found = _read(_line(rid="r", obj={"text": ["A", "", CUT_TEXT, 3]}))
    assert [f.prompt for f in found if isinstance(f, LogRecord)] == ["A", "a" * 1024]
    assert [str(f) for f in found if isinstance(f, BadLine)] == [
        "the prompt is empty",
        "a prompt is neither text nor token ids",
    ]


def test_of_ids_that_were_cut_the_true_head_is_left() -> None:
    record = _one(_came(text=CUT_TEXT, input_ids=CUT_IDS))
    assert (record.prompt, record.cut, record.length) == (list(range(1024)), True, None)
    record = _one(_ended(text=CUT_TEXT, input_ids=CUT_IDS))
    assert (record.prompt, record.cut, record.length) == (list(range(1024)), True, 3000)


def test_of_a_text_that_was_cut_the_head_is_left_if_there_are_no_ids() -> None:
    record = _one(_came(text=CUT_TEXT))
    assert (record.prompt, record.cut, record.length) == ("a" * 1024, True, None)
    record = _one(_came(text=CUT_TEXT, input_ids=[1, 2]))
    assert (record.prompt, record.cut) == ([1, 2], False)


@pytest.mark.parametrize("text", ["Well...", "...", "a" * 1024 + "..." + "z" * 1023, "a..." * 600])
def test_a_text_with_dots_elsewhere_is_whole(text: str) -> None:
    record = _one(_came(text=text))
    assert (record.prompt, record.cut) == (text, False)


def test_a_prompt_that_was_cut_to_nothing_is_bad() -> None:
    assert _reason(_came(input_ids=["...", 1])) == "cut by the logger"
    batch = [*["A"] * 1024, "...", *["Z"] * 1024]
    assert _reason(_came(text=batch)) == "cut by the logger"


def test_a_cut_prompt_of_a_request_whose_whole_one_is_known_only_adds() -> None:
    whole, cut = _came(input_ids=[1, 2]), _ended(input_ids=[1, "...", 2])
    assert _read(whole, cut)[1] == LogRecord(
        None,
        time=CAME,
        request_id="r",
        carried=NOTHING,
        output_tokens=2,
        answer="Yo",
        output_ids=[1, 2],
        observed_cached_tokens=1,
        again=True,
    )
    assert [r.cut for r in _read(_came(input_ids=[1, "..."]), cut) if isinstance(r, LogRecord)] == [
        True,
        True,
    ]


def test_an_openai_body_counts_only_if_nothing_else_does() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    line = _openai(model="m", messages=messages, lora_path="fr", cache_salt="s", user="u")
    line["headers"] = {"x-smg-routing-key": "k"}
    carried = {"namespace": "m/fr/s", "model": "m", "tenant": "k", "session_id": None}
    expected = LogRecord(Chat(messages), time=CAME, carried=carried, fallback=True)
    assert _read(line) == [expected]
    found = _read(_openai(prompt=["A", "B"]))
    assert [f.prompt for f in found if isinstance(f, LogRecord) and f.fallback] == ["A", "B"]


def test_an_openai_body_that_was_cut_is_left_to_the_lines_that_tell_it_again() -> None:
    skip = [Skip("cut by the logger, but told again by request.received")]
    assert _read(_openai(messages=[{"role": "user", "content": CUT_TEXT}])) == skip
    parts = [{"type": "text", "text": CUT_TEXT}]
    assert _read(_openai(messages=[{"role": "user", "content": parts}])) == skip
    tools = [{"type": "function", "function": {"name": "f", "description": CUT_TEXT}}]
    assert _read(_openai(messages=[{"role": "user", "content": "x"}], tools=tools)) == skip
    assert _read(_openai(prompt=CUT_IDS)) == skip


def test_health_checks_and_other_endpoints_are_skipped() -> None:
    check = [Skip("health check or other path")]
    assert _read(_line(obj={"rid": "HEALTH_CHECK_1", "input_ids": [0]})) == check
    assert _read(_line(rid="HEALTH_CHECK_1", obj={"input_ids": [0]})) == check
    assert _read(_line(obj={"rid": ["HEALTH_CHECK_1"], "input_ids": [[0]]})) == check
    other = [Skip("another endpoint than chat and completions")]
    assert _read(_came(text="Hi", is_cross_encoder_request=False)) == other
    assert _read(_openai(input="Hi", model="m")) == other
    assert _read(_line("request.aborted", obj={})) == [Skip("an event of another kind")]


def test_a_refused_request_failed_and_an_aborted_one_did_not() -> None:
    def out(reason: dict[str, Any], tokens: int) -> dict[str, Any]:
        return {"meta_info": {"finish_reason": reason, "completion_tokens": tokens}}

    refused = {"type": "abort", "message": "queue is full", "status_code": 503}
    assert _one(_ended(out(refused, 0), text="Hi")).failed
    assert not _one(_ended(out(refused, 4), text="Hi")).failed
    assert not _one(_ended(out({"type": "abort"}, 4), text="Hi")).failed


@pytest.mark.parametrize("event", ["request.received", "request.finished"])
def test_a_log_without_prompts_says_which_level_has_them(event: str) -> None:
    reason = _reason(_line(event, rid="r", obj={"rid": "r", "sampling_params": {}}))
    assert reason == "no prompt in it: SGLang logs it from --log-requests-level 2 on"


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        ({"text": ""}, "the prompt is empty"),
        ({"text": None, "input_ids": None}, "the prompt is empty"),
        ({"text": []}, "the prompt is empty"),
        ({"input_ids": [[]]}, "the prompt is empty"),
        ({"text": None, "input_embeds": [[0.5]]}, "the prompt came as embeddings"),
        ({"text": "Hi", "session_params": {"id": "s", "rid": "q"}}, "it goes on with a session"),
        ({"text": 3}, "a prompt is neither text nor token ids"),
        ({"text": {"a": 1}}, "a prompt is neither text nor token ids"),
        ({"input_ids": [1, None]}, "a token id is not a whole number"),
        ({"input_ids": [1, -1]}, "a token id is not a whole number"),
        ({"input_ids": [True]}, "a token id is not a whole number"),
        ({"input_ids": [2**31]}, "a token id is not a whole number"),
    ],
)
def test_a_request_without_a_prompt_to_be_had_is_bad(obj: dict[str, Any], reason: str) -> None:
    assert _reason(_line(rid="r", obj=obj)).startswith(reason)


@pytest.mark.parametrize("obj", [None, [], "x", 3])
def test_an_object_of_another_form_is_bad(obj: Any) -> None:
    assert _reason(_line(obj=obj)) == "obj is not an object"
    assert _read(_line("request.received.openai", obj=obj)) == [
        Skip("another endpoint than chat and completions")
    ]


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"obj": {}},
        {"event": "request.received"},
        {"event": 1, "obj": {}},
        {"event": {"event_type": "request_end"}, "obj": {}},
        {"event": "tool", "obj": {}},
        "request.received",
        None,
        [],
    ],
)
def test_other_objects_are_not_taken_for_requests(line: Any) -> None:
    assert not FAMILY.recognises(line)
