"""Policies that go by load alone: random, least_loaded, power_of_two, vllm_dp."""

import pytest
from policy_states import Router, chi_square, choose, spread, state

LOAD_POLICIES = ["random", "least_loaded", "power_of_two", "vllm_dp"]
LESS_OF_TWO = {0: 3 / 6, 1: 2 / 6, 2: 1 / 6}
"""Shares of 4 replicas by load, of the 6 pairs: the least loaded wins in 3, the fullest in none."""


def test_random_is_uniform() -> None:
    told = spread("random", state(5), range(10_000))
    assert chi_square(told, dict.fromkeys(range(5), 1)) < 18.5  # 4 degrees, p = 0.001


def test_random_goes_by_neither_load_nor_match() -> None:
    idle = state(4)
    busy = state(queued=[9, 0, 0, 0], queue=[900, 0, 0, 0], matched=[0, 0, 100, 0], prompt=500)
    router = Router("random")
    assert [router.choose(idle, n) for n in range(50)] == [
        router.choose(busy, n) for n in range(50)
    ]


def test_random_takes_none_that_is_away() -> None:
    told = spread("random", state(ids=[1, 4, 6]), range(3000))
    assert chi_square(told, {1: 1, 4: 1, 6: 1}) < 13.8  # 2 degrees, p = 0.001


@pytest.mark.parametrize("policy", ["random", "power_of_two"])
def test_a_draw_depends_on_seed_and_seq_alone(policy: str) -> None:
    asked = state(queued=[3, 2, 1, 0], queue=[30, 20, 10, 0])
    forward, backward = Router(policy, seed=3), Router(policy, seed=3)
    told = [forward.choose(asked, seq) for seq in range(200)]
    assert told == [backward.choose(asked, seq) for seq in reversed(range(200))][::-1]
    assert told != [Router(policy, seed=4).choose(asked, seq) for seq in range(200)]


def test_least_loaded_takes_the_shortest_wait() -> None:
    assert choose("least_loaded", state(queue=[30, 10, 20])) == 1


def test_least_loaded_goes_by_the_wait_unless_it_is_asked_for_requests() -> None:
    asked = state(queue=[30, 10, 20], queued=[0, 2, 1], running=[2, 2, 0], matched=[100, 0, 0])
    assert choose("least_loaded", asked) == 1
    assert choose("least_loaded", asked, by_requests=0) == 1
    assert choose("least_loaded", asked, by_requests=1) == 2


def test_requests_in_flight_are_those_that_wait_and_those_that_run() -> None:
    told = [
        choose("least_loaded", state(queued=queued, running=running), by_requests=1)
        for queued, running in (([3, 1], [0, 1]), ([0, 1], [3, 1]), ([1, 0], [1, 3]))
    ]
    assert told == [1, 1, 0]


def test_a_wait_that_is_longer_by_the_least_unit_decides() -> None:
    assert choose("least_loaded", state(queue=[10_000_001, 10_000_000])) == 1


def test_least_loaded_takes_the_lowest_of_equals() -> None:
    assert choose("least_loaded", state(queue=[20, 10, 30, 10])) == 1
    assert choose("least_loaded", state(queued=[2, 1, 1], running=[0, 1, 0]), by_requests=1) == 2
    assert choose("least_loaded", state(queued=[2, 1, 0], running=[0, 1, 2]), by_requests=1) == 0


def test_least_loaded_breaks_ties_as_it_is_told() -> None:
    tied = state(queue=[20, 10, 30, 10])
    told = spread("least_loaded", tied, range(1000), tie="random")
    assert chi_square(told, {1: 1, 3: 1}) < 10.8  # 1 degree, p = 0.001
    router = Router("least_loaded", "rotate")
    assert [router.choose(tied) for _ in range(4)] == [1, 3, 1, 3]


def test_power_of_two_takes_the_less_loaded_of_two_different_replicas() -> None:
    asked = state(queue=[20, 10], queued=[2, 1])
    assert spread("power_of_two", asked) == {1: 300}


@pytest.mark.parametrize(
    ("by_requests", "load"),
    [
        (0, {"queue": [1, 20, 300, 4000], "queued": [9, 2, 1, 0]}),
        (1, {"queue": [9, 2, 1, 0], "queued": [0, 1, 1, 2], "running": [0, 0, 1, 1]}),
    ],
)
def test_power_of_two_draws_every_pair_as_often(
    by_requests: int, load: dict[str, list[int]]
) -> None:
    told = spread("power_of_two", state(**load), range(6000), by_requests=by_requests)
    assert told.keys() == {0, 1, 2}
    assert chi_square(told, LESS_OF_TWO) < 13.8  # 2 degrees, p = 0.001


def test_power_of_two_spreads_over_an_idle_fleet() -> None:
    told = spread("power_of_two", state(4), range(4000))
    assert chi_square(told, dict.fromkeys(range(4), 1)) < 16.3  # 3 degrees, p = 0.001


def test_power_of_two_takes_none_that_is_away() -> None:
    told = spread("power_of_two", state(ids=[1, 4, 6], queue=[5, 9, 7], queued=[5, 9, 7]))
    assert told.keys() == {1, 6}


def test_vllm_dp_counts_a_request_that_waits_four_times() -> None:
    assert choose("vllm_dp", state(queued=[1, 0], running=[0, 3])) == 1
    assert choose("vllm_dp", state(queued=[1, 0], running=[0, 5])) == 0
    assert choose("vllm_dp", state(queued=[0, 1, 2], running=[9, 5, 0])) == 2


def test_vllm_dp_takes_the_lowest_of_equals() -> None:
    assert choose("vllm_dp", state(queued=[2, 1, 0], running=[0, 0, 4]), tie="lowest") == 1
    told = spread("vllm_dp", state(queued=[2, 1, 0], running=[0, 0, 4]), tie="random")
    assert told.keys() == {1, 2}


def test_vllm_dp_does_not_go_by_what_matches() -> None:
    assert choose("vllm_dp", state(running=[1, 0], matched=[100, 0], queue=[0, 99])) == 1


@pytest.mark.parametrize("policy", ["least_loaded", "vllm_dp"])
def test_the_first_replica_takes_the_first_request(policy: str) -> None:
    assert choose(policy, state(4), tie="lowest") == 0


@pytest.mark.parametrize("policy", LOAD_POLICIES)
def test_the_only_replica_is_chosen_however_loaded(policy: str) -> None:
    asked = state(ids=[3], queued=[50], running=[50], queue=[10**12])
    assert spread(policy, asked, range(20)) == {3: 20}
