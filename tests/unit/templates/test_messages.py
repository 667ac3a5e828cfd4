"""Messages as templates get to see them."""

from typing import Any

import pytest
from template_samples import ANSWER, QUESTION, chat, template

from pipeline.logs.records import BadLine

KEYS = "{{ messages[-1]|list|sort|join(' ') }}"
LAST = "messages[-1].content"
MACRO = "{% macro show(content) %}"
CONTENT = "{{ messages[-1].content }}"
PARTS = "{% for part in messages[-1].content %}<{{ part.type }}:{{ part.text }}>{% endfor %}"
TEXT = {"type": "text", "text": "one"}
MORE = {"type": "input_text", "text": "two"}


def rendered(source: str, message: dict[str, Any]) -> str:
    return template(source).render(chat(QUESTION, message))


def test_keys_without_a_value_are_left_out() -> None:
    message = {"role": "assistant", "content": None, "name": None, "tool_calls": None, "x": 0}
    assert rendered(KEYS, message) == "role x"


def test_reasoning_is_not_overwritten() -> None:
    message = ANSWER | {"reasoning_content": "a", "reasoning": "b"}
    assert rendered("{{ messages[-1].reasoning_content }}", message) == "a"
    assert rendered(KEYS, ANSWER | {"reasoning": {"effort": "low"}}) == "content reasoning role"


def test_parts_are_joined_by_lines_for_a_template_that_wants_a_text() -> None:
    assert rendered(CONTENT, {"role": "user", "content": [TEXT, "bare", MORE]}) == "one\nbare\ntwo"
    assert rendered(CONTENT, {"role": "user", "content": []}) == ""
    refusal = {"type": "refusal", "refusal": "no"}
    assert rendered(CONTENT, {"role": "assistant", "content": [refusal]}) == "no"


@pytest.mark.parametrize(
    "source",
    [
        PARTS,
        PARTS.replace(".content", "['content']"),
        PARTS.replace(LAST, LAST + "|list"),
        "{% set content = messages[-1]['content'] %}" + PARTS.replace(LAST, "content"),
        "{% set a = messages[-1].content[:9] %}{% set b = a %}" + PARTS.replace(LAST, "b"),
        MACRO + PARTS.replace(LAST, "content") + "{% endmacro %}{{ show(messages[-1].content) }}",
    ],
)
def test_parts_stay_parts_for_a_template_that_loops_over_them(source: str) -> None:
    expected = "<text:one><text:bare><text:two>"
    assert rendered(source, {"role": "user", "content": [TEXT, "bare", MORE]}) == expected
    assert rendered(source, {"role": "user", "content": "one"}) == "<text:one>"


def test_a_text_stays_a_text_for_a_template_that_asks() -> None:
    source = "{% if messages[-1].content is string %}text{% else %}" + PARTS + "{% endif %}"
    assert rendered(source, {"role": "user", "content": "one"}) == "text"
    assert rendered(source, {"role": "user", "content": [TEXT]}) == "<text:one>"


@pytest.mark.parametrize(
    "source",
    [
        "{% for line in messages[-1].content.split('n') %}{{ line }};{% endfor %}",
        "{% for message in messages %}{{ message.content }};{% endfor %}",
        "{% for items in messages[-1].tool_calls or [] %}{% endfor %}{{ messages[-1].content }};",
    ],
)
def test_other_loops_do_not_ask_for_parts(source: str) -> None:
    assert rendered(source, {"role": "user", "content": [TEXT]}).endswith(("e;", "one;"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (7, "the content of a message is neither text nor parts"),
        (True, "the content of a message is neither text nor parts"),
        ({"text": "x"}, "the content of a message is neither text nor parts"),
        ([7], "a part of a message is neither text nor an object"),
        ([None], "a part of a message is neither text nor an object"),
        ([{"type": "text"}], "a text part of a message has no text"),
        ([{"type": "text", "text": ["secret"]}], "a text part of a message has no text"),
    ],
)
def test_content_that_is_no_text_rejects_the_line(content: object, reason: str) -> None:
    with pytest.raises(BadLine) as rejected:
        rendered(CONTENT, {"role": "user", "content": content})
    assert str(rejected.value) == reason


def test_a_message_that_is_no_object_rejects_the_line() -> None:
    messages: list[Any] = ["secret"]
    with pytest.raises(BadLine, match=r"^one of its messages is no object$"):
        template("x").render(chat(*messages))


def test_messages_nested_without_end_reject_the_line() -> None:
    nested: Any = "x"
    for _ in range(5_000):
        nested = [nested]
    with pytest.raises(BadLine, match="nested too deep"):
        rendered(CONTENT, {"role": "user", "content": nested})


def call_with(arguments: object) -> dict[str, Any]:
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"a": {"b": [1, "ü"]}}', '{"a": {"b": [1, "ü"]}}'),
        ("", "{}"),
        (" \n", "{}"),
        ({"a": 1}, '{"a": 1}'),
        ("[1]", '"[1]"'),
        ("not JSON", '"not JSON"'),
        ('{"a":', '"{\\"a\\":"'),
        (7, "7"),
    ],
)
def test_arguments_become_an_object_if_they_are_one(arguments: object, expected: str) -> None:
    source = "{{ messages[-1].tool_calls[0].function.arguments|tojson }}"
    assert rendered(source, call_with(arguments)) == expected


def test_a_template_that_wants_arguments_as_text_gets_them_so() -> None:
    source = "{{ 'call:' + messages[-1].tool_calls[0].function.arguments }}"
    assert rendered(source, call_with('{"a":1}')) == 'call:{"a":1}'
    test = "messages[-1].tool_calls[0].function.arguments is mapping"
    raising = "{% if " + test + " %}{{ raise_exception() }}{% endif %}ok"
    assert rendered(raising, call_with('{"a":1}')) == "ok"


@pytest.mark.parametrize("calls", [[7], [{}], [{"function": "f"}], "text", {"a": 1}])
def test_a_call_of_another_shape_is_left_as_it_is(calls: object) -> None:
    message = {"role": "assistant", "tool_calls": calls}
    assert rendered("{{ messages[-1].tool_calls|tojson }}", message)


def test_the_chat_itself_is_not_changed() -> None:
    message = call_with("{}") | {"content": None, "thinking": "x"}
    before = repr(message)
    rendered(CONTENT, message)
    assert repr(message) == before
