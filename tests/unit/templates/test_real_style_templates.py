"""Templates in the style of those that models bring: the helpers that engines give them."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from template_samples import ANSWER, CALL, QUESTION, RESULT, SYSTEM, TOOL, chat, template

from pipeline.logs.records import BadLine, Chat

DATED = """
{%- if strftime_now is defined %}{% set today = strftime_now("%d %b %Y") %}{% endif %}
{{- bos_token }}[SYSTEM]Today is {{ today }}, {{ strftime_now("%H:%M") }}.[/SYSTEM]
{%- for message in messages %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('roles must alternate: ' + message['content']) }}
    {%- endif %}
    {{- '[' + message['role'] + ']' + message['content'] + eos_token }}
{%- endfor %}
"""
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
THINKING = """
{%- macro thought(text) -%}
    {{ text.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}
{%- endmacro %}
{%- set ns = namespace(last=messages|length - 1, seeking=true) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.seeking and message.role == "user" %}
        {%- set ns.seeking = false %}
        {%- set ns.last = index %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "tool" %}{% continue %}{% endif %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content or '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = thought(content) %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- generation %}
        {{- '<think>' ~ reasoning ~ '</think>' if loop.index0 > ns.last and reasoning }}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {%- for name, value in call.function.arguments|items %}
                {%- set value = value if value is string else value|tojson %}
                {{- '<' ~ name ~ '>' ~ value ~ '</' ~ name ~ '>' }}
            {%- endfor %}
        {%- endfor %}
        {%- endgeneration %}
    {%- else %}
        {{- message.role|upper ~ ':' ~ message.content|trim }}
    {%- endif %}
    {{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think></think>' }}{% endif %}
"""
TOOLS = """{% if tools is not none and documents is none -%}
{{ tools|tojson(indent=2) }}
{{ tools[0]|tojson(separators=(',', ':'), sort_keys=true) }}
{{ dict(a=1)|tojson }} {{ tools|map(attribute='function.name')|join(', ') }}
{% else %}
none
{% endif %}
"""


def test_a_template_that_writes_the_date_writes_that_of_the_request() -> None:
    found = template(DATED, TOKENS)
    assert found.uses_clock
    moment = datetime(2026, 3, 2, 23, 30, tzinfo=UTC)
    expected = "<s>[SYSTEM]Today is 02 Mar 2026, 23:30.[/SYSTEM][user]  Hello, 東京 \n</s>"
    assert found.render(chat(QUESTION), moment) == expected
    elsewhere = moment.astimezone(timezone(timedelta(hours=2)))
    assert "03 Mar 2026, 01:30" in found.render(chat(QUESTION), elsewhere)


def test_without_a_moment_the_date_is_always_the_same() -> None:
    assert "Today is 26 Jul 2024, 00:00." in template(DATED, TOKENS).render(chat(QUESTION))
    assert not template("x").uses_clock


def test_an_exception_that_a_template_raises_rejects_without_its_text() -> None:
    with pytest.raises(BadLine) as rejected:
        template(DATED, TOKENS).render(chat(QUESTION, {"role": "user", "content": "secret"}))
    assert str(rejected.value) == "the chat template failed: TemplateError"


def test_reasoning_loop_control_and_settings_work_as_in_engines() -> None:
    thought = {"role": "assistant", "content": "<think>\nold\n</think>\n\nyes"}
    found = template(THINKING)
    turns = [SYSTEM, QUESTION, thought, QUESTION]
    written = found.render(chat(*turns, enable_thinking=False))
    expected = (
        "SYSTEM:Be brief.\nUSER:Hello, 東京\nyes\nUSER:Hello, 東京\nASSISTANT:<think></think>"
    )
    assert written == expected
    answered = found.render(chat(*turns[:3], add_generation_prompt=False))
    assert answered == "SYSTEM:Be brief.\nUSER:Hello, 東京\n<think>old</think>yes\n"


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
def test_reasoning_is_found_under_each_of_its_names(key: str) -> None:
    written = template(THINKING).render(chat(QUESTION, ANSWER | {key: "because"}))
    assert "<think>because</think>Hi" in written


def test_arguments_of_a_call_are_an_object() -> None:
    written = template(THINKING).render(chat(QUESTION, CALL, RESULT, tools=[TOOL]))
    assert written == "USER:Hello, 東京\n<city>Zürich</city><n>3</n>\nASSISTANT:"


def test_tools_are_written_as_json_as_engines_do() -> None:
    compact = json.dumps(TOOL, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    indented = json.dumps([TOOL], ensure_ascii=False, indent=2)
    expected = f'{indented}\n{compact}\n{{"a": 1}} look_up\n'
    assert template(TOOLS).render(chat(QUESTION, tools=[TOOL])) == expected
    assert template(TOOLS).render(chat(QUESTION)) == "none\n"
    assert template(TOOLS).render(chat(QUESTION, tools=[])) == "none\n"


def test_another_source_may_be_used_for_chats_with_tools() -> None:
    found = template("default", source_with_tools="tools")
    assert found.render(chat(QUESTION)) == "default"
    assert found.render(chat(QUESTION, tools=[TOOL])) == "tools"
    assert found.sha256 != template("default").sha256


def test_a_variable_set_where_text_is_generated_stays_there() -> None:
    source = "{% set x = 1 %}{% generation %}{% set x = 2 %}{{ x }}{% endgeneration %}{{ x }}"
    assert template(source).render(chat(QUESTION)) == "21"


def test_a_line_break_after_a_block_and_spaces_before_it_are_left_out() -> None:
    source = "a\n  {% if true %}\nb\n  {% endif %}\nc\n"
    assert template(source).render(chat(QUESTION)) == "a\nb\nc"


def test_what_is_not_there_is_empty() -> None:
    source = "[{{ bos_token }}{{ nothing }}{{ messages[0].nothing }}{{ nothing ~ 'x' }}]"
    assert template(source).render(chat(QUESTION)) == "[x]"


@pytest.mark.parametrize(
    "expression",
    [
        "messages[9].role",
        "nothing.more",
        "messages + 1",
        "1 / 0",
        "nothing|tojson",
        "messages.items()",
    ],
)
def test_a_template_that_fails_rejects_the_line(expression: str) -> None:
    with pytest.raises(BadLine, match=r"^the chat template failed: [A-Za-z]+$"):
        template("{{ " + expression + " }}").render(chat(QUESTION))


def test_settings_of_the_request_come_last_but_leave_messages_and_tools_alone() -> None:
    source = "{{ eos_token }}{{ messages|length }}{{ tools }}"
    settings: dict[str, Any] = {"eos_token": "E", "messages": [], "tools": "T"}
    assert (
        template(source, {"eos_token": "</s>"}).render(Chat([QUESTION], None, settings)) == "E1None"
    )
