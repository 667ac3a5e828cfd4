"""SGLang's text log: the request and response of a line as Python reprs, whole and cut."""

from functools import partial
from typing import Any

import pytest
from family_reading import one_record, read_lines

from pipeline.logs.families.sglang_text import FAMILY
from pipeline.logs.records import BadLine, LogRecord, Skip

AT = "[2026-03-01 10:00:00] "
NOTHING = {"namespace": None, "tenant": None, "session_id": None}
OUT = (
    "{'text': 'Yo', 'output_ids': [1, 2], 'meta_info': {'id': 'r', 'finish_reason': "
    "{'type': 'stop', 'matched': None}, 'prompt_tokens': 3000, 'completion_tokens': 2, "
    "'cached_tokens': 1, 'e2e_latency': 1.5}}"
)


def _came(obj: str, before: str = AT, after: str = "") -> str:
    return f"{before}Receive: obj=GenerateReqInput(rid='r', {obj}, stream=True){after}"


def _ended(obj: str, out: str = OUT) -> str:
    return f"{AT}Finish: obj=GenerateReqInput(rid='r', {obj}, stream=True), out={out}"


_read = partial(read_lines, FAMILY)


_one = partial(one_record, FAMILY)


def test_a_request_that_came_is_its_token_ids_else_its_text() -> None:
    expected = LogRecord([1, 2], time="2026-03-01 10:00:00", request_id="r", carried=NOTHING)
    assert _one(_came("text='Hi', input_ids=[1, 2]")) == expected
    assert _one(_came("text='Hi', input_ids=None")).prompt == "Hi"
    assert _one(_came("text=None, input_ids=(1, 2)")).prompt == [1, 2]


@pytest.mark.parametrize(
    "text",
    [
        "Hi",
        "it's",
        'it\'s "x"',
        "\\",
        "\n",
        "), out={'text': 'x'}",
        "', input_ids=[9]",
        "中",
        " ... ",
    ],
)
def test_a_text_is_read_as_python_wrote_it(text: str) -> None:
    assert _one(_came(f"text={text!r}, input_ids=None")).prompt == text


def test_fields_that_do_not_count_may_hold_anything() -> None:
    obj = (
        "text='Hi', input_ids=None, image_data=[<PIL.Image at 0x7f>], x=Tensor(shape=(1,)), "
        "sampling_params={'stop': ['text=', ')'], 'n': 1}, custom=Y(text='no', z={'a': [1, (2)]})"
    )
    assert _one(_came(obj)).prompt == "Hi"


def test_what_keeps_kv_apart_and_whose_it_is_is_carried() -> None:
    obj = "text='Hi', lora_path='fr', extra_key='salt', session_id='s', session_params=None"
    record = _one(_came(obj, after=", headers={'x-smg-routing-key': 'k', 'x': 'y'}"))
    assert record.carried == {"namespace": "fr/salt", "tenant": "k", "session_id": "s"}
    record = _one(_came("text='Hi', session_params={'id': 't', 'rid': None}, routing_key='r'"))
    assert record.carried == {"namespace": None, "tenant": "r", "session_id": "t"}


def test_a_request_that_ended_is_told_again_with_its_answer_from_when_it_came() -> None:
    assert _read(_ended("text='Hi', input_ids=[1, 2]")) == [
        LogRecord(
            [1, 2],
            time="2026-03-01T09:59:58.500000",
            request_id="r",
            carried=NOTHING,
            output_tokens=2,
            answer="Yo",
            output_ids=[1, 2],
            observed_cached_tokens=1,
            again=True,
        )
    ]


def test_an_answer_may_be_cut_missing_or_of_another_form() -> None:
    cut = "{'text': 'Y' ... 'o', 'output_ids': [1] ... [2], 'meta_info': {'completion_tokens': 9}}"
    record = _one(_ended("text='Hi'", cut))
    assert (record.output_tokens, record.answer) == (9, None)
    for out in (
        "None",
        "[1]",
        "{}",
        "{'meta_info': None}",
        "{'meta_info': {'completion_tokens': x}}",
    ):
        record = _one(_ended("text='Hi'", out))
        assert (record.prompt, record.output_tokens, record.answer) == ("Hi", None, None)
    assert _one(_came("text='Hi'").replace("Receive", "Finish")).again


@pytest.mark.parametrize(
    ("said", "head"),
    [
        ("text='ab' ... 'yz', input_ids=[1, 2] ... [8, 9]", [1, 2]),
        ("text='ab' ... 'yz', input_ids=(1, 2) ... (8, 9)", [1, 2]),
        ("text='ab' ... \"y'z\", input_ids=None", "ab"),
    ],
)
def test_of_a_prompt_that_was_cut_the_true_head_is_left(said: str, head: Any) -> None:
    record = _one(_came(said))
    assert (record.prompt, record.cut, record.length) == (head, True, None)
    record = _one(_ended(said))
    assert (record.prompt, record.cut, record.length) == (head, True, 3000)


def test_whole_ids_beside_a_text_that_was_cut_are_whole() -> None:
    record = _one(_came("text='ab' ... 'yz', input_ids=[1, 2]"))
    assert (record.prompt, record.cut) == ([1, 2], False)


def test_a_cut_prompt_of_a_request_whose_whole_one_is_known_only_adds() -> None:
    found = _read(_came("text='abyz'"), _ended("text='ab' ... 'yz'"))[1]
    assert isinstance(found, LogRecord)
    assert (found.prompt, found.cut, found.again, found.output_tokens) == (None, False, True, 2)


def test_a_batch_is_one_request_for_each_prompt() -> None:
    line = f"{AT}Receive: obj=GenerateReqInput(rid=['a', 'b'], text=['A', 'B' ... 'Z'], n=1)"
    records = [record for record in _read(line) if isinstance(record, LogRecord)]
    assert [(r.request_id, r.prompt, r.cut) for r in records] == [
        ("a", "A", False),
        ("b", "B", True),
    ]
    line = f"{AT}Receive: obj=GenerateReqInput(rid='r', text=None, input_ids=[[1], [2, 3]])"
    records = [record for record in _read(line) if isinstance(record, LogRecord)]
    assert [(r.request_id, r.prompt) for r in records] == [("r-0", [1]), ("r-1", [2, 3])]


@pytest.mark.parametrize(
    ("before", "time"),
    [
        ("[2026-03-01 10:00:00 TP0] ", "2026-03-01 10:00:00"),
        ("sglang-1  | [2026-03-01 10:00:00] ", "2026-03-01 10:00:00"),
        ("2026-03-01T10:00:00.123456789Z ", "2026-03-01T10:00:00.123456789Z"),
        ("2026-03-01 10:00:00,123 - INFO - ", "2026-03-01 10:00:00.123"),
        ("", None),
        ("[TokenizerManager] ", None),
    ],
)
def test_the_time_stands_before_the_line(before: str, time: str | None) -> None:
    assert _one(_came("text='Hi'", before)).time == time


def test_without_it_the_engine_may_have_noted_one() -> None:
    assert _one(_came("text='Hi', received_time=1772359200.25", "")).time == 1772359200.25
    assert _one(_came("text='Hi', received_time=1772359200.25")).time == "2026-03-01 10:00:00"


def test_lines_that_are_no_requests_to_generate_are_skipped() -> None:
    other = [Skip("another endpoint than chat and completions")]
    assert _read(f"{AT}Receive: obj=EmbeddingReqInput(rid='r', text='Hi')") == other
    openai = f"{AT}Receive OpenAI: obj={{'messages': [{{'role': 'user', 'content': 'Hi'}}]}}"
    assert _read(openai) == [Skip("told again by its Receive line")]
    check = _came("text=None, input_ids=[0]").replace("rid='r'", "rid='HEALTH_CHECK_1'")
    assert _read(check) == [Skip("health check or other path")]


def test_a_log_without_prompts_says_which_level_has_them() -> None:
    for line in (_came("n=1"), _ended("n=1")):
        with pytest.raises(BadLine, match="SGLang logs it from --log-requests-level 2 on"):
            _read(line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (_came("text='Hi")[:-8], "cut by the logger"),
        (_came("text='Hi', input_ids=[1, 2"), "cut by the logger"),
        (_came("text=Hi, input_ids=None"), "not the literal"),
        (_came("text='\\d', input_ids=None"), "not the literal"),
        (_came("text='a' + 'b', input_ids=None"), "not the literal"),
        (_came("text=f(1), input_ids=None"), "not the literal"),
        (_came("text=None, input_ids=None, input_embeds=[[0.5]]"), "came as embeddings"),
        (_came("text='Hi', session_params={'id': 's', 'rid': 'q'}"), "goes on with a session"),
    ],
)
def test_a_line_without_a_prompt_to_be_had_is_bad(line: str, reason: str) -> None:
    with pytest.raises(BadLine, match=reason):
        _read(line)


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        ("text='', input_ids=None", "the prompt is empty"),
        ("text=None, input_ids=None", "the prompt is empty"),
        ("text=3", "a prompt is neither text nor token ids"),
        ("input_ids=[1, -2]", "a token id is not a whole number below 2**31"),
        ("input_ids=[] ... [1]", "cut by the logger"),
    ],
)
def test_a_prompt_that_can_not_be_is_a_bad_one(obj: str, reason: str) -> None:
    [found] = _read(_came(obj))
    assert isinstance(found, BadLine)
    assert str(found) == reason


@pytest.mark.parametrize(
    "line",
    [
        "",
        f"{AT}The server is fired up and ready to roll!",
        f"{AT}Receive request r",
        "INFO Received request r: prompt: 'Receive: obj=GenerateReqInput(text=1)'",
        "Receive: obj" * 100_000,
        "x" * 1_000_000,
        None,
        3,
        {"obj": {}},
    ],
)
def test_other_lines_are_not_taken_for_requests(line: Any) -> None:
    assert not FAMILY.recognises(line)
