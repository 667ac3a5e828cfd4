"""Preble: the match if it is most of the prompt, else the least load, and balance before both."""

from policy_states import SECOND, Router, choose, spread, state

from pipeline.replay.policies import POLICIES

MS = SECOND // 1000


def after(*prompts: int, replicas: int, **parameters: float) -> Router:
    """Return a router that sent cold prompts of these lengths to 0, 1, 2 …, at time 0."""
    router = Router("preble", **parameters)
    for r, prompt in enumerate(prompts):
        assert router.choose(state(replicas, prompt=prompt)) == r
    return router


def test_cold_requests_go_to_the_replica_with_the_least_load() -> None:
    router = after(300, 200, 250, replicas=3)
    assert [router.choose(state(3, prompt=60)) for _ in range(3)] == [1, 2, 1]


def test_the_first_request_goes_by_the_tie_rule() -> None:
    assert choose("preble", state(4), tie="lowest") == 0
    assert spread("preble", state(1), range(5)) == {0: 5}
    told = {Router("preble", "random").choose(state(4), seq) for seq in range(60)}
    assert told == {0, 1, 2, 3}


def test_a_match_decides_if_the_rest_of_the_prompt_is_shorter() -> None:
    assert choose("preble", state(matched=[0, 51])) == 1
    assert choose("preble", state(matched=[0, 50])) == 0
    assert choose("preble", state(matched=[0, 2], prompt=3)) == 1
    assert choose("preble", state(matched=[0, 1], prompt=2)) == 0


def test_the_longest_match_decides() -> None:
    assert choose("preble", state(matched=[60, 90, 89])) == 1


def test_the_cheapest_of_those_with_the_longest_match_is_taken() -> None:
    assert after(300, 200, 250, replicas=3).choose(state(matched=[80, 60, 80])) == 2
    full = state(matched=[80, 0, 80], resident=[1000, 0, 500], capacity=[1000] * 3)
    assert choose("preble", full) == 2


def test_equally_cheap_matches_are_a_tie() -> None:
    tied = state(matched=[0, 80, 80])
    assert choose("preble", tied, tie="lowest") == 1
    assert {Router("preble", "random").choose(tied, seq) for seq in range(60)} == {1, 2}


def test_a_replica_that_has_to_evict_costs_more() -> None:
    room = {"capacity": [1000, 1000]}
    assert choose("preble", state(resident=[900, 0], **room)) == 0
    assert choose("preble", state(resident=[901, 0], **room)) == 1


def test_load_and_eviction_are_added() -> None:
    for resident, told in (([0, 999], 1), ([0, 1000], 0)):
        router = after(100, replicas=2)  # 100 tokens of load, against 99 or 100 to evict
        assert router.choose(state(resident=resident, capacity=[1000, 1000])) == told


def test_a_match_is_left_where_the_load_is_more_than_one_and_a_half_of_the_least() -> None:
    warm = state(matched=[100, 0])
    assert after(300, 200, replicas=2).choose(warm) == 0
    assert after(301, 200, replicas=2).choose(warm) == 1
    assert after(300, replicas=2).choose(warm) == 1


def test_the_bound_of_the_load_can_be_set() -> None:
    warm = state(matched=[100, 0])
    assert after(400, 200, replicas=2, rebalance_factor=2).choose(warm) == 0
    assert after(401, 200, replicas=2, rebalance_factor=2).choose(warm) == 1


def test_load_that_is_older_than_the_window_is_forgotten() -> None:
    for clock, told in ((0, 1), (900 * MS, 1), (2001 * MS, 0)):
        router = after(100, replicas=2, window_ms=1000)
        assert router.choose(state(2, clock=clock)) == told


def test_load_is_forgotten_once() -> None:
    router = Router("preble", window_ms=1000)
    for clock in range(0, 20 * SECOND, 5 * SECOND):
        cold = [state(2, prompt=prompt, clock=clock) for prompt in (100, 300, 10)]
        assert [router.choose(asked) for asked in cold] == [0, 1, 0]


def test_balance_is_kept_within_the_window_alone() -> None:
    warm = [state(matched=[100, 0], clock=clock) for clock in (900 * MS, 2001 * MS)]
    assert [after(300, replicas=2, window_ms=1000).choose(asked) for asked in warm] == [1, 0]


def test_load_stays_with_a_replica_while_another_is_away() -> None:
    router = after(300, 200, 250, replicas=3)
    assert router.choose(state(ids=[0, 2], prompt=10)) == 2
    assert router.choose(state(ids=[1, 2], prompt=10)) == 1


def test_the_bound_is_one_and_a_half_unless_it_is_set() -> None:
    defaults = {p.name: p.default for p in POLICIES["preble"].parameters}
    assert defaults["rebalance_factor"] == 1.5
