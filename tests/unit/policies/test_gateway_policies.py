"""Policies of gateways: sglang, sglang_python, prefix_aware, aibrix, ray."""

import math
from typing import Any

import pytest
from policy_states import Router, chi_square, choose, spread, state

from pipeline.replay.policies import POLICIES

SGLANG = ["sglang", "sglang_python"]
GATEWAYS = [*SGLANG, "prefix_aware", "aibrix", "ray"]

every_sglang = pytest.mark.parametrize("policy", SGLANG)


@pytest.mark.parametrize(
    ("policy", "defaults"),
    [
        ("sglang", {"match_threshold": 0.5, "imbalance_abs": 32, "imbalance_rel": 1.1}),
        ("sglang_python", {"match_threshold": 0.3, "imbalance_abs": 64, "imbalance_rel": 1.5}),
        ("prefix_aware", {"chunk_tokens": 32}),
        ("aibrix", {"imbalance_abs": 8, "std_factor": 1}),
        ("ray", {"threshold": math.inf, "match_rate": 0.1}),
    ],
)
def test_defaults_are_those_of_the_products(policy: str, defaults: dict[str, float]) -> None:
    assert {p.name: p.default for p in POLICIES[policy].parameters} == defaults


def test_gateways_remember_what_they_routed_as_long_as_their_products_do() -> None:
    assert {POLICIES[policy].view for policy in GATEWAYS} == {"routed"}
    assert POLICIES["sglang_python"].router_tokens == 2**26 // 4  # characters
    assert POLICIES["prefix_aware"].router_tokens >= 2**60
    assert POLICIES["aibrix"].router_ttl_ms == 20 * 60 * 1000
    assert POLICIES["prefix_aware"].router_ttl_ms is None


@pytest.mark.parametrize("policy", GATEWAYS)
def test_the_only_replica_is_chosen(policy: str) -> None:
    for matched, queued in ((0, 0), (100, 0), (0, 500), (100, 500)):
        asked = state(ids=[2], matched=[matched], queued=[queued], touched=[5])
        assert spread(policy, asked, range(10)) == {2: 10}


@pytest.mark.parametrize(
    ("policy", "threshold"), [("sglang", 50), ("sglang_python", 30), ("ray", 9)]
)
def test_a_match_counts_beyond_its_threshold(policy: str, threshold: int) -> None:
    load: dict[str, Any] = {"resident": [9, 500], "queued": [0, 5]}
    assert choose(policy, state(matched=[0, threshold], **load)) == 0
    assert choose(policy, state(matched=[0, threshold + 1], **load)) == 1


@every_sglang
def test_sglang_takes_the_best_match(policy: str) -> None:
    asked = state(matched=[60, 80, 70], touched=[9, 1, 5], queued=[0, 20, 0])
    assert choose(policy, asked) == 1


@every_sglang
def test_sglang_takes_the_owner_that_used_the_match_last(policy: str) -> None:
    asked = state(matched=[80, 80, 80, 60], touched=[5, 9, 7, 99], queued=[0, 20, 0, 0])
    assert choose(policy, asked) == 1


@every_sglang
def test_sglang_takes_the_least_loaded_where_nothing_matches(policy: str) -> None:
    assert choose(policy, state(queued=[2, 0, 1], running=[0, 1, 3], resident=[0, 9, 9])) == 1
    assert choose(policy, state(4), tie="lowest") == 0
    assert spread(policy, state(queued=[1, 0, 0]), tie="random").keys() == {1, 2}
    router = Router(policy, "rotate")
    assert [router.choose(state(queued=[1, 0, 0])) for _ in range(3)] == [1, 2, 1]


@pytest.mark.parametrize(("policy", "bound"), [("sglang", 32), ("sglang_python", 64)])
def test_sglang_leaves_affinity_beyond_the_absolute_bound(policy: str, bound: int) -> None:
    assert choose(policy, state(matched=[100, 0], queued=[bound, 0])) == 0
    assert choose(policy, state(matched=[100, 0], queued=[bound, 1], running=[1, 1])) == 0
    assert choose(policy, state(matched=[100, 0], queued=[bound, 0], running=[1, 0])) == 1


@pytest.mark.parametrize(
    ("policy", "least", "bound"), [("sglang", 400, 440), ("sglang_python", 200, 300)]
)
def test_sglang_leaves_affinity_only_beyond_the_relative_bound_too(
    policy: str, least: int, bound: int
) -> None:
    assert choose(policy, state(matched=[100, 0], queued=[bound, least])) == 0
    assert choose(policy, state(matched=[100, 0], queued=[bound + 1, least])) == 1


@every_sglang
def test_sglang_out_of_balance_takes_the_least_loaded_whatever_matches(policy: str) -> None:
    asked = state(matched=[100, 90, 0, 60], queued=[100, 3, 2, 50])
    assert choose(policy, asked) == 2
    tied = state(matched=[100, 90, 0, 60], queued=[100, 2, 2, 50])
    assert choose(policy, tied, tie="lowest") == 1
    assert spread(policy, tied, tie="random").keys() == {1, 2}


@every_sglang
def test_sglang_goes_by_its_parameters(policy: str) -> None:
    asked = state(matched=[40, 0], queued=[5, 1])
    assert choose(policy, asked, match_threshold=0.39) == 0
    assert choose(policy, asked, match_threshold=0.4) == 1
    assert choose(policy, asked, match_threshold=0, imbalance_abs=3, imbalance_rel=5) == 0
    assert choose(policy, asked, match_threshold=0, imbalance_abs=3, imbalance_rel=4.9) == 1


def test_prefix_aware_takes_the_longest_chain_of_whole_chunks() -> None:
    assert spread("prefix_aware", state(matched=[31, 32, 0])) == {1: 300}
    assert spread("prefix_aware", state(matched=[64, 95, 96], prompt=200)) == {2: 300}


def test_prefix_aware_draws_among_equal_chains() -> None:
    told = spread("prefix_aware", state(matched=[70, 40, 95, 64]), range(3000))
    assert chi_square(told, {0: 1, 2: 1, 3: 1}) < 13.8  # 2 degrees, p = 0.001


def test_prefix_aware_draws_among_all_where_no_chunk_matches() -> None:
    for matched in ([0, 0, 0, 0], [31, 0, 9, 1]):
        told = spread("prefix_aware", state(matched=matched), range(4000))
        assert chi_square(told, dict.fromkeys(range(4), 1)) < 16.3  # 3 degrees, p = 0.001


def test_prefix_aware_does_not_go_by_load() -> None:
    assert spread("prefix_aware", state(matched=[32, 0], queued=[999, 0], queue=[999, 0])) == {
        0: 300
    }


def test_aibrix_leaves_affinity_beyond_a_difference_of_8_requests() -> None:
    assert choose("aibrix", state(matched=[100, 0], queued=[8, 0])) == 0  # 4 + 1 x 4 = 8
    assert choose("aibrix", state(matched=[100, 0], queued=[8, 0], running=[1, 0])) == 1
    assert choose("aibrix", state(matched=[100, 0], queued=[9, 0], running=[0, 1])) == 0


def test_aibrix_out_of_balance_takes_the_best_match_of_the_least_loaded() -> None:
    asked = state(matched=[100, 20, 50, 80], queued=[9, 0, 0, 1])
    assert spread("aibrix", asked) == {2: 300}
    tied = state(matched=[100, 50, 50, 80], queued=[9, 0, 0, 1])
    assert choose("aibrix", tied, tie="lowest") == 1
    assert spread("aibrix", tied, tie="random").keys() == {1, 2}


def test_aibrix_takes_the_highest_match_then_the_fewest_in_flight() -> None:
    assert spread("aibrix", state(matched=[60, 50], queued=[2, 0])) == {0: 300}  # 1 + 1 x 1 = 2
    assert spread("aibrix", state(matched=[50, 50, 50], queued=[2, 1, 3])) == {1: 300}


def test_aibrix_passes_over_a_match_beyond_mean_and_deviation() -> None:
    # mean 1.5, deviation 2.6
    assert spread("aibrix", state(matched=[100, 50, 40, 0], queued=[6, 0, 0, 0])) == {1: 300}
    # mean 2, deviation 2: at the bound
    assert spread("aibrix", state(matched=[100, 50, 40, 0], queued=[4, 0, 4, 0])) == {0: 300}


def test_aibrix_takes_the_fewest_in_flight_where_no_match_may_be_used() -> None:
    # mean 2.75, deviation 1.92
    assert spread("aibrix", state(matched=[100, 0, 0, 0], queued=[6, 2, 1, 2])) == {2: 300}


def test_aibrix_takes_the_fewest_in_flight_where_nothing_matches() -> None:
    assert spread("aibrix", state(queued=[2, 1, 0], running=[0, 0, 2])) == {1: 300}
    assert choose("aibrix", state(4), tie="lowest") == 0
    assert spread("aibrix", state(queued=[1, 0, 0]), tie="random").keys() == {1, 2}


def test_ray_takes_the_longest_match_then_the_shortest_queue() -> None:
    assert spread("ray", state(matched=[10, 9], queued=[1000, 0])) == {0: 300}
    assert spread("ray", state(matched=[50, 50, 40], queued=[2, 1, 0])) == {1: 300}
    assert spread("ray", state(matched=[50, 50], queued=[2, 1], running=[0, 2])) == {0: 300}


def test_ray_takes_the_smallest_tree_where_too_little_matches() -> None:
    for matched in ([0, 0, 0], [9, 0, 0]):
        asked = state(matched=matched, resident=[50, 40, 41], queued=[0, 90, 0])
        assert spread("ray", asked) == {1: 300}


def test_ray_out_of_balance_takes_the_less_loaded_of_two() -> None:
    assert spread("ray", state(matched=[50, 0], queued=[5, 0]), threshold=5) == {0: 300}
    assert spread("ray", state(matched=[50, 0], queued=[6, 0]), threshold=5) == {1: 300}
    asked = state(matched=[0, 0, 0, 100], queued=[0, 1, 2, 9])
    told = spread("ray", asked, range(6000), threshold=5)
    assert chi_square(told, {0: 3, 1: 2, 2: 1}) < 13.8  # 2 degrees, p = 0.001


def test_ray_breaks_ties_as_it_is_told() -> None:
    match, tree = state(matched=[50, 50, 9]), state(resident=[9, 5, 5])
    assert choose("ray", match, tie="lowest") == 0
    assert spread("ray", match, tie="random").keys() == {0, 1}
    assert choose("ray", tree, tie="lowest") == 1
    assert spread("ray", tree, tie="random").keys() == {1, 2}
