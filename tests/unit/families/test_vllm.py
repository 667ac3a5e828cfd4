"""vLLM's lines: prompts as reprs, joined lines, answers, and times without a year."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest
from family_reading import one_record, read_lines

from pipeline.logs.families.vllm import FAMILY, NO_PROMPT
from pipeline.logs.records import BadLine, LogRecord, Skip

PARAMS = "SamplingParams(n=1, temperature=0.7, stop=[], max_tokens=16, guided_decoding=None)"
NO_LORA = {"namespace": None}


def _came(
    prompt: str = "'Hi'",
    ids: str | None = "None",
    params: str = PARAMS,
    lora: str = "None",
    at: str = "03-01 10:00:00",
) -> str:
    told = f"prompt: {prompt}, params: {params}"
    told += f", prompt_token_ids: {ids}, prompt_embeds shape: None" if ids is not None else ""
    return f"INFO {at} [logger.py:39] Received request chatcmpl-1: {told}, lora_request: {lora}."


_read = partial(read_lines, FAMILY)


_one = partial(one_record, FAMILY)


def _times(befores: Iterable[str]) -> list[Any]:
    lines = [_came().replace("INFO 03-01 10:00:00", before) for before in befores]
    return [record.time for record in _read(*lines) if isinstance(record, LogRecord)]


def test_a_line_up_to_0_11_0_holds_a_whole_request() -> None:
    expected = LogRecord("Hi", time="2000-03-01 10:00:00", request_id="chatcmpl-1", carried=NO_LORA)
    assert _one(_came()) == expected


@pytest.mark.parametrize(
    "text",
    ["Hi", "it's", 'a "b"', 'it\'s "x"', "\\", "a\\'b", "\n\t", "', params: X(", "中文", "\ud83d"],
)
def test_a_prompt_is_read_as_python_wrote_it(text: str) -> None:
    assert _one(_came(repr(text))).prompt == text
    assert _one(_came(ascii(text))).prompt == text


def test_token_ids_count_more_than_the_text() -> None:
    assert _one(_came("'Hi'", "[13048, 0]")).prompt == [13048, 0]
    assert _one(_came("None", "[13048]")).prompt == [13048]
    assert _one(_came("'Hi'", "[]")).prompt == "Hi"


def test_what_a_user_put_into_the_parameters_is_no_field() -> None:
    params = (
        "SamplingParams(stop=['), prompt_token_ids: [1], lora_request: LoRARequest(', \"it's\"])"
    )
    record = _one(_came(params=params))
    assert (record.prompt, record.carried) == ("Hi", NO_LORA)


@pytest.mark.parametrize(
    "told",
    [
        (
            "prompt: 'Hi', prefix_pos: None, sampling params: SamplingParams(n=1), "
            "prompt token ids: [1, 2]."
        ),
        (
            "prompt: 'Hi', sampling_params: SamplingParams(n=1), prompt_token_ids: [1, 2], "
            "lora_request: None."
        ),
        (
            "prompt: 'Hi', params: SamplingParams(n=1), prompt_token_ids: [1, 2], "
            "lora_request: None, prompt_adapter_request: None."
        ),
        (
            "prompt: 'Hi', params: BeamSearchParams(beam_width=2), prompt_token_ids: [1, 2], "
            "prompt_embeds shape: None, lora_request: None."
        ),
    ],
)
def test_lines_of_all_earlier_versions_are_read(told: str) -> None:
    assert _one(f"INFO 01-02 03:04:05 engine.py:3] Received request cmpl-1: {told}").prompt == [
        1,
        2,
    ]


def test_a_line_without_ids_is_read_by_its_text() -> None:
    assert _one(_came(ids=None)).prompt == "Hi"


def test_an_adapter_keeps_its_requests_apart() -> None:
    lora = "LoRARequest(lora_name='it\\'s', lora_int_id=1, lora_path='/m/fr', x=None)"
    assert _one(_came(lora=lora)).carried == {"namespace": "it's"}


def test_several_prompts_of_one_request_have_ids_of_their_own() -> None:
    lines = [_came().replace("chatcmpl-1", f"cmpl-9-{n}") for n in (0, 1)]
    assert [r.request_id for r in _read(*lines) if isinstance(r, LogRecord)] == [
        "cmpl-9-0",
        "cmpl-9-1",
    ]


def test_an_id_may_be_any_text_without_quotes() -> None:
    line = _came().replace("chatcmpl-1", "chatcmpl-user: 7, details")
    assert _one(line).request_id == "chatcmpl-user: 7, details"


def test_from_0_11_1_on_two_lines_tell_of_a_request() -> None:
    details = (
        "(APIServer pid=7) DEBUG 03-01 10:00:00 [logger.py:45] Request chatcmpl-1 details: "
        "prompt: 'Hi', prompt_token_ids: [13048], prompt_embeds shape: None."
    )
    came = (
        "(APIServer pid=7) INFO 03-01 10:00:00 [logger.py:52] Received request chatcmpl-1: "
        f"params: {PARAMS}, lora_request: LoRARequest(lora_name='fr', lora_int_id=1)."
    )
    time = "2000-03-01 10:00:00"
    assert _read(details, came) == [
        LogRecord([13048], time=time, request_id="chatcmpl-1", carried=NO_LORA),
        LogRecord(
            None, time=time, request_id="chatcmpl-1", carried={"namespace": "fr"}, again=True
        ),
    ]
    with pytest.raises(BadLine) as reason:
        _read(came)
    assert str(reason.value) == NO_PROMPT
    assert "VLLM_LOGGING_LEVEL=DEBUG" in NO_PROMPT


@pytest.mark.parametrize(
    ("told", "tokens", "answer", "ids"),
    [
        (": output: 'Yo', output_token_ids: [1, 2, 3], finish_reason: stop", 3, "Yo", [1, 2, 3]),
        (": output: 'Yo', output_token_ids: (1, 2), finish_reason: stop", 2, "Yo", [1, 2]),
        (": output: 'Yo', output_token_ids: None, finish_reason: stop", None, "Yo", None),
        (" (streaming complete): output: 'Yo', output_token_ids: None", None, "Yo", None),
        (" (streaming complete): output: '<streaming_complete: 12 tokens>'", 12, None, None),
        (": output: '', output_token_ids: array('q', [1]), finish_reason: stop", None, "", None),
        (": output: \"it's\", finish_reason: stop", None, "it's", None),
        (" details: output_token_ids: [1, 2]", 2, None, [1, 2]),
    ],
)  # fmt: skip
def test_an_answer_adds_to_its_request(
    told: str, tokens: int | None, answer: str | None, ids: list[int] | None
) -> None:
    line = f"INFO 03-01 10:00:09 [logger.py:80] Generated response chatcmpl-1{told}"
    assert _one(line) == LogRecord(
        None,
        request_id="chatcmpl-1",
        output_tokens=tokens,
        answer=answer,
        output_ids=ids,
        again=True,
    )


def test_parts_of_a_streamed_answer_are_skipped() -> None:
    line = (
        "INFO 03-01 10:00:09 [logger.py:80] Generated response chatcmpl-1 (streaming delta): "
        "output: 'Y', output_token_ids: [1], finish_reason: None"
    )
    assert _read(line) == [Skip("a part of an answer that comes whole")]


@pytest.mark.parametrize(
    "line",
    [
        _came(params="PoolingParams(task='embed')"),
        _came(params="None"),
        _came().replace("chatcmpl-1", "embd-1-0"),
        (
            "DEBUG 03-01 10:00:00 [logger.py:45] Request tokn-1 details: prompt: 'Hi', "
            "prompt_token_ids: [1], prompt_embeds shape: None."
        ),
    ],
)
def test_requests_that_generate_nothing_are_skipped(line: str) -> None:
    assert _read(line) == [Skip("another endpoint than chat and completions")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (_came("''"), "the prompt is empty"),
        (_came("None"), "the prompt is empty"),
        (_came("None").replace("shape: None", "shape: torch.Size([3, 64])"), "came as embeddings"),
        (_came("'Hi'", "[-1]"), "a token id is not a whole number"),
        (_came("'Hi'", "[1.5]"), "a token id is not a whole number"),
        (_came("'Hi'", "[1, x]"), "not the literal"),
        (_came("3"), "neither text nor token ids"),
        (_came("['a']"), "neither text nor token ids"),
        (_came("Hi"), "not the literal"),
        (_came("'\\d'"), "not the literal"),
        (_came("'Hi there")[:150], "cut by the logger"),
        (_came()[:110], "cut by the logger"),
    ],
)
def test_a_line_without_a_prompt_to_be_had_is_bad(line: str, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _read(line)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "INFO 03-01 10:00:00 [async_llm.py:269] Added request chatcmpl-1.",
        'INFO:     127.0.0.1:1 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "INFO Received request chatcmpl-1.",
        "INFO Received request chatcmpl-1: hello",
        "user said \"Received request chatcmpl-1: prompt: 'Hi'\"",
        "Receive: obj=GenerateReqInput(text='Received request 1: prompt: 2')",
        "x" * 1_000_000,
        "Request " * 200_000,
        "Received request " * 100_000,
        None,
        7,
        {"prompt": "Hi"},
        ["Received request 1: prompt: 'Hi'"],
    ],
)
def test_other_lines_are_not_taken_for_requests(line: Any) -> None:
    assert not FAMILY.recognises(line)


def test_years_begin_with_2000_and_count_up_when_december_is_over() -> None:
    befores = ["INFO 05-01 10:00:00", "INFO 12-31 23:59:59", "INFO 01-01 00:00:00", "INFO 02-01 1"]
    assert _times(befores[:3]) == [
        "2000-05-01 10:00:00",
        "2000-12-31 23:59:59",
        "2001-01-01 00:00:00",
    ]
    assert _times(befores[3:]) == [None]


def test_a_log_over_new_year_has_its_29_february_in_a_leap_year() -> None:
    assert _times(["INFO 11-30 10:00:00", "INFO 01-01 10:00:00", "INFO 02-29 10:00:00"]) == [
        "1999-11-30 10:00:00",
        "2000-01-01 10:00:00",
        "2000-02-29 10:00:00",
    ]


def test_lines_that_are_late_by_some_time_stay_in_their_year() -> None:
    befores = [
        "12-31 23:59:59",
        "01-01 00:00:01",
        "12-31 23:59:59",
        "01-01 00:00:02",
        "02-01 00:00:00",
    ]
    times = _times([f"INFO {before}" for before in befores])
    assert [time[:10] for time in times] == [
        "1999-12-31",
        "2000-01-01",
        "1999-12-31",
        "2000-01-01",
        "2000-02-01",
    ]
    assert _times(["INFO 06-01 00:00:00", "INFO 05-31 23:59:59"])[1] == "2000-05-31 23:59:59"


@pytest.mark.parametrize(
    ("before", "time"),
    [
        ("2026-03-01 10:00:01.102 | INFO 03-01 10:00:01", "2026-03-01 10:00:01.102"),
        ("2026-03-01T10:00:01.102345678Z INFO 03-01 09:00:01", "2026-03-01 10:00:01.102345678Z"),
        ("2026-03-01 10:00:01,102 INFO vllm", "2026-03-01 10:00:01.102"),
        ("2026-03-01T10:00:01+02:00 stderr F INFO 03-01 10:00:01", "2026-03-01 10:00:01+02:00"),
        ("vllm-1  | (APIServer pid=1) INFO 03-01 10:00:01", "2000-03-01 10:00:01"),
        ("INFO 03-01 10:00:01.250", "2000-03-01 10:00:01.250"),
        ("INFO", None),
    ],
)
def test_a_date_before_the_line_counts_more_than_one_without_a_year(
    before: str, time: str | None
) -> None:
    assert _times([before]) == [time]


def test_times_of_one_log_are_all_of_the_first_lines_kind() -> None:
    dated, plain = "2026-12-31 23:59:58 | INFO 12-31 23:59:58", "INFO 12-31 23:59:59"
    assert _times([dated, plain, "INFO 01-01 00:00:00", "2027-01-01 00:00:01 |"]) == [
        "2026-12-31 23:59:58",
        "2026-12-31 23:59:59",
        "2027-01-01 00:00:00",
        "2027-01-01 00:00:01",
    ]
    assert _times([plain, dated, "2027-01-01 00:00:01 |"]) == [
        "1999-12-31 23:59:59",
        "1999-12-31 23:59:58",
        "2000-01-01 00:00:01",
    ]


def test_each_file_has_a_clock_of_its_own() -> None:
    assert _times(["INFO 12-31 10:00:00", "INFO 01-01 10:00:00"])[1] == "2000-01-01 10:00:00"
    assert _times(["INFO 01-01 10:00:00"]) == ["2000-01-01 10:00:00"]
