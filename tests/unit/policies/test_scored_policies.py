"""Policies that add up a score: dynamo, llm_d, lmetric, load_aware, gorgo."""

import math
from typing import Any

import pytest
from policy_states import SECOND, Router, State, chi_square, choose, spread, state

from pipeline.replay.policies import POLICIES

SCORED = ["dynamo", "llm_d", "lmetric", "load_aware", "gorgo"]
TTL_MS = 120_000


def defaults(policy: str) -> dict[str, float]:
    return {p.name: p.default for p in POLICIES[policy].parameters}


def share(policy: str, asked: State, **parameters: float) -> set[int]:
    """Return the replicas that random ties are spread over."""
    return set(spread(policy, asked, range(60), tie="random", **parameters))


@pytest.mark.parametrize("policy", SCORED)
def test_the_only_replica_is_chosen(policy: str) -> None:
    for matched in (0, 50, 100):
        asked = state(ids=[4], matched=[matched], queued=[9], prefill=[900], active=[1000])
        assert spread(policy, asked, range(10)) == {4: 10}


@pytest.mark.parametrize("policy", SCORED)
def test_a_match_decides_where_nothing_is_in_flight(policy: str) -> None:
    assert spread(policy, state(matched=[40, 80, 60]), range(20)) == {1: 20}


@pytest.mark.parametrize("policy", SCORED)
def test_the_idle_replica_is_taken_where_nothing_matches(policy: str) -> None:
    load = {"queued": [1, 0, 2], "prefill": [100, 0, 150], "active": [100, 0, 300]}
    assert spread(policy, state(**load), range(20)) == {1: 20}


@pytest.mark.parametrize(
    ("policy", "tied"),
    [
        ("dynamo", {0, 1, 2}),
        ("llm_d", {0, 1, 2}),
        ("lmetric", {0}),
        ("load_aware", {0}),
        ("gorgo", {0}),
    ],
)
def test_a_cold_request_to_an_idle_fleet_is_a_tie(policy: str, tied: set[int]) -> None:
    assert spread(policy, state(3), range(60)).keys() == tied


def test_dynamo_has_the_defaults_of_its_product() -> None:
    told = defaults("dynamo")
    assert (told["overlap_weight"], told["temperature"], told["queue_threshold"]) == (1, 0, 0)
    assert (POLICIES["dynamo"].view, POLICIES["dynamo"].router_ttl_ms) == ("exact", TTL_MS)


def test_dynamo_adds_blocks_to_prefill_and_active_blocks() -> None:
    # 100 tokens are 10 blocks. 0: (0 + 10 - 0) + (0 + 10) = 20. 1: (10 + 10 - 6) + (10 + 10)
    busy = state(matched=[0, 60], prefill=[0, 100], active=[0, 100])
    assert choose("dynamo", busy) == 0
    router = Router("dynamo")
    router.choose(busy)
    assert router.scores == [20, 34]


def test_dynamo_weighs_a_matching_block_as_much_as_a_block_to_prefill() -> None:
    told = [choose("dynamo", state(matched=[40, 0], prefill=[n, 0])) for n in (39, 41)]
    assert told == [0, 1]
    assert share("dynamo", state(matched=[40, 0], prefill=[40, 0])) == {0, 1}


def test_dynamo_counts_whole_blocks_that_match() -> None:
    assert share("dynamo", state(matched=[50, 59])) == {0, 1}
    assert share("dynamo", state(matched=[50, 60])) == {1}


def test_dynamo_counts_a_block_that_is_active_already_once() -> None:
    assert choose("dynamo", state(active=[100, 100], active_matched=[0, 80])) == 1
    router = Router("dynamo", "lowest")
    assert router.choose(state(active=[0, 100], active_matched=[0, 100])) == 0
    assert router.scores == [20, 20]  # 10 + 10, and 10 + 10 + 10 - 10


def test_dynamo_counts_no_prefill_below_0() -> None:
    asked = state(matched=[50, 100])
    assert share("dynamo", asked, overlap_weight=2) == {0, 1}
    assert share("dynamo", asked, overlap_weight=1.9) == {1}
    assert share("dynamo", asked, overlap_weight=0) == {0, 1}


def test_dynamo_without_temperature_never_takes_another_than_the_best() -> None:
    asked = state(matched=[0, 80, 80, 0], prefill=[0, 10, 10, 0])
    told = spread("dynamo", asked, range(2000))
    assert chi_square(told, {1: 1, 2: 1}) < 10.8  # 1 degree, p = 0.001


@pytest.mark.parametrize("temperature", [0.5, 1, 3])
def test_dynamo_with_temperature_draws_by_the_softmax_of_costs(temperature: float) -> None:
    # costs 12, 16, 20: 0, a half and 1 of the way from the least to the most
    shares = {r: math.exp(-way / temperature) for r, way in enumerate((0, 0.5, 1))}
    asked = state(matched=[80, 40, 0])
    told = spread("dynamo", asked, range(6000), temperature=temperature)
    assert chi_square(told, shares) < 13.8  # 2 degrees, p = 0.001


def test_dynamo_with_temperature_is_uniform_where_costs_are_equal() -> None:
    told = spread("dynamo", state(4), range(4000), temperature=1)
    assert chi_square(told, dict.fromkeys(range(4), 1)) < 16.3  # 3 degrees, p = 0.001


def blocks(**fields: Any) -> State:
    """Return a state with a prompt of 10 blocks of llm_d's index."""
    used = fields.pop("used", None)
    if used:
        fields |= {"resident": used, "active": used}
    return state(prompt=640, block=64, **fields)


def test_llm_d_has_the_defaults_of_its_product() -> None:
    told = defaults("llm_d")
    assert [told[f"{name}_weight"] for name in ("prefix", "queue", "kv")] == [3, 2, 2]
    assert (told["block_tokens"], told["affinity_threshold"]) == (64, 0)
    assert told["max_penalty_ms"] == 18_000
    assert POLICIES["llm_d"].router_tokens == 64 * 31_250


def test_llm_d_adds_weighted_shares() -> None:
    router = Router("llm_d")
    told = blocks(matched=[320, 640, 0], queued=[0, 5, 4], running=[0, 5, 1], used=[0, 0, 500_000])
    assert router.choose(told) == 0
    # 3 x 0.5 + 2 x 1 + 2; 3 x 1 + 0 + 2; 0 + 2 x 0.5 + 2 x 0.5
    assert router.scores == pytest.approx([5.5, 5, 2])


def test_llm_d_weighs_a_match_of_two_thirds_as_much_as_an_empty_queue() -> None:
    busy = {"prompt": 192, "block": 64, "queued": [1, 0]}
    assert share("llm_d", state(matched=[128, 0], **busy)) == {0, 1}
    assert share("llm_d", state(matched=[127, 0], **busy)) == {1}
    assert share("llm_d", state(matched=[192, 0], **busy)) == {0}


def test_llm_d_takes_equal_queues_for_empty_ones() -> None:
    router = Router("llm_d", "lowest")
    assert router.choose(blocks(queued=[3, 1], running=[0, 2])) == 0
    assert router.scores == pytest.approx([4, 4])


def test_llm_d_takes_the_replica_with_more_free_kv() -> None:
    assert choose("llm_d", blocks(used=[500, 499], capacity=[1000, 1000])) == 1
    assert choose("llm_d", blocks(used=[500, 900], capacity=[1000, 2000])) == 1


def test_llm_d_keeps_replicas_that_match_enough_if_it_is_asked_to() -> None:
    # 0: 3 x 0.8 + 0 + 2 x 0.5 = 3.4; 1: 0 + 2 + 2
    asked = blocks(matched=[512, 0], queued=[1, 0], used=[500_000, 0])
    assert choose("llm_d", asked) == 1
    assert choose("llm_d", asked, affinity_threshold=0.8) == 0
    assert choose("llm_d", asked, affinity_threshold=0.81) == 1


def test_llm_d_leaves_replicas_that_match_at_more_than_18_seconds_of_wait() -> None:
    for wait, told in ((18 * SECOND, 0), (18 * SECOND + 1, 1)):
        asked = blocks(
            matched=[512, 0], queued=[1, 0], used=[500_000, 0], queue=[wait, 0], exec_ticks=[0, 0]
        )
        assert choose("llm_d", asked, affinity_threshold=0.8) == told


def test_lmetric_takes_the_least_product_of_new_tokens_and_load() -> None:
    assert choose("lmetric", state(matched=[0, 51, 0], queued=[0, 1, 3])) == 1  # 98 below 100
    assert choose("lmetric", state(matched=[0, 49, 0], queued=[0, 1, 3])) == 0  # 102 above 100
    assert choose("lmetric", state(matched=[100, 99], queued=[50, 0])) == 0  # 0 below 1


def test_lmetric_breaks_ties_by_load_then_new_tokens_then_place() -> None:
    assert choose("lmetric", state(matched=[90, 50, 0], queued=[9, 1, 0])) == 2  # 100 each
    assert choose("lmetric", state(matched=[100, 100], queued=[3, 0], running=[0, 1])) == 1
    assert choose("lmetric", state(matched=[9, 50, 50], queued=[2, 0, 0])) == 1
    assert POLICIES["lmetric"].parameters == ()


def test_load_aware_subtracts_the_relative_load_from_the_share_that_matches() -> None:
    assert choose("load_aware", state(matched=[50, 0], queued=[1, 1])) == 0
    assert choose("load_aware", state(matched=[50, 0], queued=[2, 0])) == 1  # -0.5 and 1
    router = Router("load_aware")
    assert router.choose(state(matched=[100, 0, 25], queued=[4, 1, 0], running=[0, 1, 0])) == 2
    assert router.scores == pytest.approx([0, 0, 1.25])
    assert defaults("load_aware") == {"beta": 1}


def test_load_aware_takes_a_mean_below_one_request_for_one() -> None:
    # mean 0.5: 1 - 0.5 / 1 and 0 + 0.5 / 1
    assert choose("load_aware", state(matched=[100, 0], queued=[1, 0])) == 0
    assert choose("load_aware", state(matched=[99, 0], queued=[1, 0])) == 1


def test_load_aware_goes_by_its_factor() -> None:
    asked = state(matched=[50, 0], queued=[2, 0])
    assert choose("load_aware", asked, beta=0) == 0
    assert choose("load_aware", asked, beta=0.25) == 0  # 0.25 each
    assert choose("load_aware", asked, beta=0.26) == 1


def test_gorgo_adds_new_tokens_and_queued_tokens() -> None:
    told = [choose("gorgo", state(matched=[0, 60], prefill=[0, n])) for n in (59, 60, 61)]
    assert told == [1, 0, 0]
    assert share("gorgo", state(matched=[0, 60, 0], prefill=[0, 60, 1])) == {0, 1}
    assert set(defaults("gorgo").values()) == {1}


def test_gorgo_goes_by_its_weights() -> None:
    asked = state(matched=[0, 60], prefill=[0, 100])
    assert choose("gorgo", asked) == 0
    assert choose("gorgo", asked, load_weight=0.59) == 1
    assert choose("gorgo", asked, prefill_weight=1.7) == 1
