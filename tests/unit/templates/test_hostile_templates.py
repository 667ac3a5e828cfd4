"""Templates that would not end, or fill the memory: they do end, as a rejected line."""

import resource
import time

import pytest
from template_samples import QUESTION, chat, template

from pipeline.logs.records import BadLine
from pipeline.templates import budget

RANGE = "{% set r = range(100000) %}"
GROW = "{% set ns = namespace(s='aa', l=[1], n=3) %}{% for i in range(60) %}"
LAUGHS = GROW + "{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
BIG = GROW.replace("60", "20") + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}"
KEEP = BIG + "{% for i in range(999) %}{% set ns.l = ns.l + [WHAT] %}{% endfor %}"
ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ messages.__class__.__mro__ }}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update(a=1) }}",
    "{{ raise_exception.__globals__ }}",
    "{{ strftime_now.__self__ }}",
    "{{ namespace.__init__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{% include 'x' %}",
    "{% import '/etc/passwd' as x %}",
    "{% extends 'x' %}",
]
ENDLESS = [
    "{{ range(10**12) }}",
    "{% for i in range(10**12) %}{% endfor %}",
    RANGE + "{% for a in r %}{% for b in r %}{% for c in r %}{% endfor %}{% endfor %}{% endfor %}",
    RANGE + "{% for a in r %}{% for b in r if false %}{% endfor %}{% endfor %}",
    RANGE
    + "{% for a in r %}{% for b in r|map('string')|select('in', 'x') %}{% endfor %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}",
    "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "{% for x in [1] recursive %}{{ loop([x]) }}{{ loop([x]) }}{% endfor %}",
    "{% block b %}{{ self.b() }}{% endblock %}",
    RANGE + BIG + "{% for a in r %}{% if 'x' in ns.s %}{% endif %}{% endfor %}",
    RANGE + BIG + "{% for a in r %}{% if ns.s.count('x') %}{% endif %}{% endfor %}",
]
HUGE = [
    "{{ 'a' * 10**10 }}",
    "{{ 10**10 * 'a' }}",
    "{{ [0] * 10**10 }}",
    "{{ (1, 2) * 10**10 }}",
    "{{ 10 ** (10 ** 10) }}",
    GROW + "{% set ns.n = ns.n * ns.n %}{% endfor %}",
    GROW + "{% set ns.l = ns.l + ns.l %}{% endfor %}",
    GROW + "{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}{% endfor %}",
    GROW + "{% macro f() %}{{ ns.s }}{{ ns.s }}{% endmacro %}{% set ns.s = f() %}{% endfor %}",
    GROW + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
    GROW + "{% set ns.s = ns.s + ns.s %}{% endfor %}",
    GROW + "{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}",
    GROW + "{% set ns.s = ns.s|replace('a', 'aa') %}{% endfor %}",
    GROW + "{% set ns.s = ns.s.join([ns.s, ns.s]) %}{% endfor %}",
    GROW + "{% set ns.s = [ns.s, ns.s]|join(ns.s) %}{% endfor %}",
    GROW + "{% set ns.s = '{0}{0}'.format(ns.s) %}{% endfor %}",
    GROW + "{% set ns.s = '%s%s' % (ns.s, ns.s) %}{% endfor %}",
    GROW + "{% set ns.s = '%s%s'|format(ns.s, ns.s) %}{% endfor %}",
    "{{ ('x' * 100000)|list|join('y' * 100000) }}",
    "{{ ('x' * 100000).replace('x', 'y' * 100000) }}",
    "{{ ('x' * 100000).replace('', 'y' * 100000) }}",
    "{{ ('x' * 100000).translate({120: 'y' * 100000}) }}",
    "{{ ('x\n' * 100000)|indent(100000) }}",
    "{{ ('\t' * 100000).expandtabs(100000) }}",
    "{{ ''.center(10**10) }}",
    "{{ ''.ljust(10**10) }}",
    "{{ '1'.zfill(10**10) }}",
    "{{ ''|center(10000000000) }}",
    "{{ (5).to_bytes(10**10, 'big') }}",
    "{{ '%10000000000d' % 5 }}",
    "{{ '%*d' % (10**10, 5) }}",
    "{{ '%10000000000d'|format(5) }}",
    "{{ '{:10000000000}'.format(5) }}",
    "{{ '{:{w}}'.format(5, w=10**10) }}",
    "{{ '{:{w}}'.format_map({'w': 10**10}) }}",
    "{{ messages|tojson(indent=10**10) }}",
    "{{ range(99999)|list|tojson(indent=99999) }}",
    "{{ [range(99999)|list, range(99999)|list]|sum(start=[]) }}",
    "{{ strftime_now('%c' * 10**7) }}",
    LAUGHS + "{{ ns.l }}",
    LAUGHS + "{{ ns.l|tojson }}",
    LAUGHS + "{{ ns.l|string }}",
    LAUGHS + "{{ ns.l|upper }}",
    LAUGHS + "{{ ns.l ~ 'x' }}",
    LAUGHS + "{{ ns.l|join }}",
    LAUGHS + "{{ '%s' % ns.l }}",
    LAUGHS + "{{ '{}'.format(ns.l) }}",
    LAUGHS + "{{ raise_exception(ns.l) }}",
    BIG + "{{ ns.s.split('a') }}",
    BIG + "{{ ns.s|list }}",
    BIG + "{% for i in range(100) %}{{ ns.s }}{% endfor %}",
    KEEP.replace("WHAT", "ns.s[1:]"),
    KEEP.replace("WHAT", "ns.s|upper"),
    KEEP.replace("WHAT", "ns.s.upper()"),
    "{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
]  # fmt: skip


FULL = [ENDLESS[2], HUGE[0], LAUGHS + "{{ ns.l|tojson }}"]


def check_end(source: str, seconds: float, kilobytes: int) -> None:
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BadLine) as rejected:
        template(source).render(chat(QUESTION))
    assert str(rejected.value).startswith("the chat template ")
    assert time.process_time() - began < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < kilobytes


@pytest.mark.parametrize("source", ESCAPES + ENDLESS + HUGE)
def test_it_ends_soon_and_in_little_memory(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundredth of the budget, so that the tests are soon done, too."""
    monkeypatch.setattr(budget, "STEPS", budget.STEPS // 100)
    monkeypatch.setattr(budget, "CHARACTERS", budget.CHARACTERS // 20)
    monkeypatch.setattr(budget, "LARGEST", budget.LARGEST // 20)
    check_end(source, 1, 100_000)


@pytest.mark.parametrize("source", FULL)
def test_it_ends_with_the_whole_budget(source: str) -> None:
    check_end(source, 20, 1_000_000)


def test_a_text_of_gigabytes_is_not_kept() -> None:
    check_end("{% for i in range(100000) %}{{ 'x' * 100000 }}{% endfor %}", 20, 500_000)


def test_what_a_large_chat_needs_is_allowed() -> None:
    source = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% if '</think>' in m.content %}"
        "{% set ns.n = ns.n + 1 %}{% endif %}<|im_start|>{{ m.role ~ '\n' ~ m.content|trim }}"
        "{{ m.content.split('</think>')[-1].lstrip('\n') }}{% endfor %}"
    )
    turns = [{"role": "user", "content": "word </think> " * 100}] * 5_000
    assert len(template(source).render(chat(*turns))) > 7_000_000
    [long] = [{"role": "user", "content": "ten chars " * 800_000}]
    assert len(template(source).render(chat(long))) > 15_000_000


def test_a_rendering_does_not_count_on_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "STEPS", 9_000)
    found = template("{% for i in range(90) %}{% for j in range(40) %}{% endfor %}{% endfor %}x")
    assert [found.render(chat(QUESTION)) for _ in range(3)] == ["x"] * 3
