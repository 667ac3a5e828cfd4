"""Counting changes nothing: templates write what jinja2 writes as transformers sets it up."""

import json
from importlib import resources
from typing import Any

import pytest
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from template_samples import CHATS, bare_vocabulary, chat, template

from pipeline.logs.records import Chat
from pipeline.templates import BUILT_IN, find_template

SOURCES = """
{{ 'a' ~ 1 ~ none ~ nothing ~ [1, 'x'] ~ 2.5 ~ true }}

{{ 'abc'[1:] }}{{ 'abc'[::-1] }}{{ messages[1:]|length }}{{ messages[:-1][0].role }}

{{ 'b' in 'abc' }}{{ 'x' not in ['y'] }}{{ 'k' in {'k': 1} }}{{ 1 < 2 <= 2 }}

{{ 7 + 3 }}{{ 7 * 3 }}{{ 2 ** 10 }}{{ 7 % 3 }}{{ 7 // 2 }}{{ 7 / 2 }}{{ -7 }}{{ 'a' * 3 }}

{{ '%s-%05d' % ('a', 7) }}{{ '%(a)s' % {'a': 1} }}{{ '{:>5}{x}'.format(3, x='y') }}

{{ '%s'|format('a') }}{{ ['a', 1, none]|join(', ') }}{{ ', '.join(['a', 'b']) }}

{{ messages|map(attribute='role')|join('|') }}{{ [3, 1, 2]|sort|list }}{{ [1, 2]|sum }}

{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ range(3)|list }}

{{ 'a b'|replace(' ', '__')|upper|indent(4, true) }}{{ 'x'|center(5) }}{{ ' a '|trim }}

{{ 'a-b-c'.split('-', 1)[-1] }}{{ 'aXbX'.rsplit('X') }}{{ 'a
b'.splitlines()|last }}

{{ {'b': 1, 'a': 2}|dictsort }}{{ {'a': 1}|items|list }}{{ {'a': 1}.items()|list }}

{{ messages|tojson }}{{ {'b': 'é<>&', 'a': 1}|tojson(indent=2, sort_keys=true) }}

{{ 'x'|default('y') }}{{ nothing|default('y') }}{{ none|string }}{{ 3.0|int }}{{ '4'|int + 1 }}

{% for m in messages if m.role != 'system' %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}
{{ loop.previtem is defined }};{% else %}none{% endfor %}

{% for x in [] %}x{% else %}none{% endfor %}{% for k, v in {'a': 1}.items() %}{{ k ~ v }}
{% endfor %}

{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}
{% endif %}{% endfor %}

{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}
{% endif %}{{ x }}{% endfor %}

{% macro f(a, b='-') %}{{ a ~ b ~ varargs ~ kwargs }}{% endmacro %}{{ f(1) }}
{{ f(1, 2, 3, c=4) }}

{% macro f() %}<{{ caller('x') }}>{% endmacro %}{% call(a) f() %}{{ a }}{% endcall %}

{% set x %}a{{ 1 }}{% endset %}{{ x }}{% set x = x ~ x %}{{ x }}{% filter upper %}
b{% endfilter %}

{% set ns = namespace(a=1, b=[]) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}
{{ ns.a }}

{% if messages is sequence and messages[0] is mapping and 'a' is string %}yes{% endif %}

{{ 'yes' if messages else 'no' }}{{ ('a', 'b')[0] }}{{ {'a': {'b': 1}}.a['b'] }}

{% with a = 1 %}{{ a }}{% endwith %}{% raw %}{{ x }}{% endraw %}{# nothing #}

{% block b %}{{ messages|length }}{% endblock %}{% set c = cycler('a', 'b') %}
{{ c.next() ~ c.next() }}

  {%- generation -%} g {{ 1 }} {%- endgeneration %}
{% if true %}
  x
{% endif %}

""".strip().split("\n\n")


class Generation(Extension):
    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(line)

    def _same(self, caller: Any) -> Any:
        return caller()


def plainly(source: str, chats: Chat) -> str:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(
        value, ensure_ascii=False, **options
    )
    return environment.from_string(source).render(
        messages=chats.messages, tools=chats.tools, documents=None, add_generation_prompt=True
    )


@pytest.mark.parametrize("source", SOURCES)
def test_a_template_writes_what_it_writes_without_counting(source: str) -> None:
    messages, _ = CHATS["turns"]
    assert template(source).render(chat(*messages)) == plainly(source, chat(*messages))


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("case", ["system", "turns", "tools"])
def test_so_does_a_built_in_one(name: str, case: str) -> None:
    source = resources.files("pipeline.templates").joinpath(f"{name}.jinja").read_text("utf-8")
    messages, tools = CHATS[case]
    chats = Chat(list(messages), tools)
    found = find_template(name, bare_vocabulary("v")).render(chats)
    assert found == plainly(source, chats)
