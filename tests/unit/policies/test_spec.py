"""A policy as it is asked for: forms of the text, which setting goes first, and what is refused."""

import math
from pathlib import Path

import pytest

from pipeline.config import RouterView, RoutingConfig
from pipeline.errors import UsageError
from pipeline.replay.policies.rule import FOREVER
from pipeline.replay.policies.spec import every_policy, find_policy
from pipeline.replay.policies.table import POLICIES
from pipeline.replay.records import LOWEST, RANDOM, ROTATE

FIRST = """
def first(request, replicas, parameters, memory):
    return 0
"""


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        find_policy(text)
    return str(caught.value)


def test_a_name_alone_means_the_policy_with_its_own_defaults() -> None:
    spec = find_policy("sglang")
    assert (spec.text, spec.policy) == ("sglang", POLICIES["sglang"])
    assert spec.parameters == (0.5, 32.0, 1.1)
    assert spec.view == RouterView("routed")
    assert (spec.router_tokens, spec.router_ttl_ms, spec.tie) == (2**24, None, LOWEST)
    assert find_policy("cache_aware").router_tokens == FOREVER
    assert find_policy("aibrix").router_ttl_ms == 1_200_000


def test_parameters_take_their_place_in_the_policy_s_table() -> None:
    spec = find_policy("sglang:imbalance_abs=64,match_threshold=0.3")
    assert spec.parameters == (0.3, 64.0, 1.1)
    assert spec.text == "sglang:imbalance_abs=64,match_threshold=0.3"
    assert find_policy("ray").parameters[0] == math.inf
    assert find_policy("ray:threshold=inf").parameters == find_policy("ray").parameters


def test_the_label_is_the_text_without_white_space_around_its_pieces() -> None:
    spec = find_policy("  sglang : match_threshold = 0.30 ,\trouter_view=lag:50 ")
    assert spec.text == "sglang:match_threshold=0.30,router_view=lag:50"
    assert find_policy(spec.text) == spec


def test_a_value_may_hold_a_colon() -> None:
    spec = find_policy("dynamo:router_view=lag:50,tie=lowest")
    assert (spec.view, spec.tie) == (RouterView("lag", 50.0), LOWEST)


def test_a_setting_of_the_text_goes_before_the_run_s_and_that_before_the_policy_s() -> None:
    run = RoutingConfig("lag:20", router_capacity_tokens=0, router_ttl_ms=5.0, tie="rotate")
    of_run = find_policy("sglang", run)
    assert (of_run.view, of_run.router_tokens) == (RouterView("lag", 20.0), 0)
    assert (of_run.router_ttl_ms, of_run.tie) == (5.0, ROTATE)
    text = "sglang:router_view=routed,router_capacity_tokens=96,router_ttl_ms=7.5,tie=random"
    own = find_policy(text, run)
    assert (own.view, own.router_tokens) == (RouterView("routed"), 96)
    assert (own.router_ttl_ms, own.tie) == (7.5, RANDOM)


@pytest.mark.parametrize(
    ("text", "tie", "at_random"),
    [
        ("round_robin", None, False),
        ("round_robin", "random", False),  # it leaves no tie open
        ("cache_aware", None, False),
        ("cache_aware", "random", True),
        ("cache_aware:tie=random", None, True),
        ("cache_aware:tie=rotate", "random", False),
        ("random", None, True),
        ("random", "lowest", True),  # it draws
        ("prefix_aware", None, True),
        ("prefix_aware", "lowest", False),
    ],
)
def test_a_policy_chooses_at_random_if_it_draws_or_its_ties_are_drawn(
    text: str, tie: str | None, *, at_random: bool
) -> None:
    assert find_policy(text, RoutingConfig(tie=tie)).chooses_at_random is at_random


def test_a_policy_without_ties_has_the_lowest_whatever_the_run_says() -> None:
    assert POLICIES["round_robin"].tie is None
    assert find_policy("round_robin", RoutingConfig(tie="random")).tie == LOWEST


@pytest.mark.parametrize("text", ["round_robin:router_view=lag:50", "random:router_view=routed"])
def test_a_policy_that_sees_nothing_may_be_given_any_view(text: str) -> None:
    assert f"{text.partition(':')[0]}:router_view={find_policy(text).view}" == text


@pytest.mark.parametrize(
    ("text", "module_and_function", "view"),
    [
        ("spec_mine:first", "spec_mine:first", "exact"),
        ("spec_mine : first ", "spec_mine:first", "exact"),
        ("spec_mine:first:router_view=lag:5", "spec_mine:first", "lag:5"),
    ],
)
def test_what_has_a_colon_and_no_built_in_name_is_the_user_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, module_and_function: str, view: str
) -> None:
    (tmp_path / "spec_mine.py").write_text(FIRST, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    spec = find_policy(text)
    assert spec.text == text.replace(" ", "")
    assert spec.text.startswith(module_and_function)
    assert str(spec.view) == view
    assert refusal("spec_mine:first:beta=1").startswith(
        "policy spec_mine:first: unknown parameter 'beta': choose from "
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sglagn", "unknown policy 'sglagn' (did you mean sglang?): choose from round_robin, "),
        ("sglagn:match_threshold=1", "unknown policy 'sglagn' (did you mean sglang?)"),
        ("sglagn:", "unknown policy 'sglagn' (did you mean sglang?)"),
        ("", "unknown policy '': choose from"),
        (":f", "unknown policy '': choose from"),
        ("sglang:match_treshold=1",
         ("policy sglang: unknown parameter 'match_treshold' (did you mean match_threshold?):"
          " choose from match_threshold, imbalance_abs, imbalance_rel, router_view,"
          " router_capacity_tokens, router_ttl_ms, tie")),
        ("random:match_threshold=1", "policy random: unknown parameter 'match_threshold': "),
        ("sglang:match_threshold=half",
         "policy sglang: match_threshold is 'half': give a number from 0 to 1"),
        ("sglang:match_threshold=1.01", "match_threshold is '1.01': give a number from 0 to 1"),
        ("sglang:match_threshold=-0.1", "match_threshold is '-0.1': give a number from 0 to 1"),
        ("sglang:match_threshold=nan", "match_threshold is 'nan': give a number from 0 to 1"),
        ("sglang:imbalance_abs=inf", "imbalance_abs is 'inf': give a number from 0 to"),
        ("prefix_aware:chunk_tokens=2.5",
         "policy prefix_aware: chunk_tokens is '2.5': give a whole number from 1 to"),
        ("sglang:match_threshold=1,match_threshold=1",
         "policy sglang: match_threshold is given twice: give it once"),
        ("sglang:", "policy sglang: '' is no setting: write NAME=VALUE, and a comma between two"),
        ("sglang:match_threshold=1,", "policy sglang: '' is no setting"),
        ("sglang:match_threshold", "policy sglang: 'match_threshold' is no setting"),
        ("sglang:match_threshold=", "policy sglang: 'match_threshold=' is no setting"),
        ("sglang:=1", "policy sglang: '=1' is no setting"),
        ("sglang:first", "policy sglang: 'first' is no setting"),
        ("sglang:router_view=late", "policy sglang: router-view is 'late': give exact, lag:MS or"),
        ("sglang:router_view=lag:x", "policy sglang: router-view is 'lag:x': give lag:MS"),
        ("sglang:router_capacity_tokens=1.5",
         "policy sglang: router_capacity_tokens is '1.5': give a whole number of tokens"),
        ("sglang:router_capacity_tokens=-1", "policy sglang: router-capacity-tokens is -1: give"),
        ("sglang:router_ttl_ms=soon", "policy sglang: router_ttl_ms is 'soon': give"),
        ("sglang:router_ttl_ms=0", "policy sglang: router-ttl-ms is 0.0: give"),
        ("sglang:tie=highest", "policy sglang: tie is 'highest': give one of lowest, random,"),
        ("round_robin:tie=random", "policy round_robin: it leaves no tie open: leave tie out"),
        ("cache_aware:router_ttl_ms=5",
         ("policy cache_aware: router_ttl_ms says nothing where the router sees exact: leave it"
          " out, or add router_view=routed")),
        ("sglang:router_view=lag:5,router_capacity_tokens=9",
         "policy sglang: router_capacity_tokens says nothing where the router sees lag:5"),
    ],
)  # fmt: skip
def test_what_can_not_be_is_refused_with_what_to_do(text: str, message: str) -> None:
    assert refusal(text).startswith(message) or f": {message}" in refusal(text)


def test_a_router_s_memory_of_the_whole_run_is_no_error_for_a_policy_that_sees_more() -> None:
    spec = find_policy("cache_aware", RoutingConfig(router_capacity_tokens=9, router_ttl_ms=5.0))
    assert spec.view == RouterView("exact")
    routed = RoutingConfig("routed")
    assert find_policy("cache_aware:router_capacity_tokens=9", routed).router_tokens == 9


def test_all_built_in_policies_can_be_asked_for_by_name_alone() -> None:
    names = every_policy()
    assert names == list(POLICIES)
    assert names[:3] == ["round_robin", "pure_affinity", "cache_aware"]
    for name in names:
        spec = find_policy(name)
        assert spec.text == name
        assert spec.parameters == tuple(float(p.default) for p in spec.policy.parameters)
        assert all(p.low <= p.default <= p.high for p in spec.policy.parameters)
