"""The best score, ties, and chance that depends on seed and seq alone."""

import random
from collections import Counter

import numpy as np
import pytest
from policy_states import Router, bare, chance_of, chi_square, mixed, spread, state

from pipeline.kernel import kernel
from pipeline.replay.policies import choice
from pipeline.replay.policies.choice import below, least, most, uniform


@kernel
def told_mixed(word):  # noqa: ANN001, ANN201 (numba infers both)
    return choice.mixed(word)


@kernel
def told_chance(seed, seq):  # noqa: ANN001, ANN201
    return choice.chance_of(seed, seq)


def by_least(request, replicas, parameters, memory):  # noqa: ANN001, ANN201, ARG001
    return least(request, replicas)


def by_most(request, replicas, parameters, memory):  # noqa: ANN001, ANN201, ARG001
    return most(request, replicas)


def by_draws(request, replicas, parameters, memory):  # noqa: ANN001, ANN201, ARG001
    replicas[0].score = uniform(request, 1)
    replicas[1].score = uniform(request, 2)
    return below(request, 3, len(replicas))


LEAST, MOST, DRAWS = bare(by_least), bare(by_most), bare(by_draws)


def test_words_are_mixed_as_by_the_published_splitmix64() -> None:
    golden = 0x9E3779B97F4A7C15
    stream = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    words = [golden * n % 2**64 for n in (1, 2, 3)]
    assert [mixed(word) for word in words] == stream
    assert [told_mixed(np.uint64(word)) for word in words] == stream


def test_the_chance_of_a_request_is_made_of_seed_and_seq() -> None:
    rng = random.Random(5)  # noqa: S311 (a fixed choice)
    pairs = [(0, 0), (0, 1), (1, 0), (2**63 - 1, 2**32 - 1)]
    pairs += [(rng.getrandbits(63), rng.getrandbits(32)) for _ in range(200)]
    for seed, seq in pairs:
        assert told_chance(np.int64(seed), np.int64(seq)) == chance_of(seed, seq), (seed, seq)


def test_seeds_and_requests_do_not_share_their_chances() -> None:
    chances = {chance_of(seed, seq) for seed in range(100) for seq in range(100)}
    assert len(chances) == 100 * 100


def test_the_numbers_of_a_request_are_those_of_its_chance() -> None:
    router = Router(DRAWS, seed=7)
    for seq in range(50):
        words = [
            mixed((chance_of(7, seq) + n * 0x9E3779B97F4A7C15) % 2**64) >> 11 for n in range(4)
        ]
        told = router.choose(state(3), seq)
        assert router.scores[:2] == [words[1] / 2**53, words[2] / 2**53]
        assert told == words[3] * 3 // 2**53


def test_numbers_lie_evenly_from_0_to_below_1() -> None:
    router = Router(DRAWS)
    tenths: Counter[int] = Counter()
    for seq in range(5000):
        router.choose(state(2), seq)
        tenths.update(int(10 * x) for x in router.scores)
    assert chi_square(tenths, dict.fromkeys(range(10), 1)) < 27.9  # 9 degrees, p = 0.001


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_integers_below_a_count_are_drawn_evenly(count: int) -> None:
    drawn = spread(DRAWS, state(max(count, 2)), range(7000))
    assert chi_square(drawn, dict.fromkeys(range(max(count, 2)), 1)) < 22.5  # 6 degrees, p = 0.001


@pytest.mark.parametrize("tie", ["lowest", "random", "rotate"])
def test_one_best_replica_is_chosen_whatever_breaks_ties(tie: str) -> None:
    assert spread(LEAST, state(score=[3, -1, 2]), range(50), tie=tie) == {1: 50}
    assert spread(MOST, state(score=[3, -1, 2]), range(50), tie=tie) == {0: 50}


def test_the_lowest_of_equals_is_chosen() -> None:
    assert spread(LEAST, state(score=[5, 2, 7, 2]), range(20), tie="lowest") == {1: 20}
    assert spread(MOST, state(score=[5, 7, 2, 7]), range(20), tie="lowest") == {1: 20}


def test_random_ties_are_spread_evenly_over_equals_and_never_go_to_another() -> None:
    for policy, score in ((LEAST, [5, 2, 7, 2, 2, 9]), (MOST, [5, 7, 2, 7, 7, 0])):
        told = spread(policy, state(score=score), range(3000), tie="random")
        assert told.keys() == {1, 3, 4}
        assert chi_square(told, {1: 1, 3: 1, 4: 1}) < 13.8  # 2 degrees, p = 0.001


def test_rotating_ties_go_to_the_next_of_the_equals_and_start_again() -> None:
    router = Router(LEAST, "rotate")
    tied = state(score=[2, 5, 2, 2, 7])
    assert [router.choose(tied) for _ in range(7)] == [0, 2, 3, 0, 2, 3, 0]


def test_rotating_ties_go_on_after_the_replica_that_was_chosen_last_for_any_reason() -> None:
    router = Router(MOST, "rotate")
    assert router.choose(state(score=[0, 0, 1, 0])) == 2
    assert router.choose(state(score=[1, 1, 1, 1])) == 3
    assert router.choose(state(score=[1, 1, 1, 0])) == 0


def test_rotating_ties_go_by_replica_id_where_replicas_are_away() -> None:
    router = Router(LEAST, "rotate")
    here = state(ids=[1, 4, 6])
    assert [router.choose(here) for _ in range(4)] == [1, 4, 6, 1]
    router.turn = 5
    assert router.choose(here) == 6
    router.turn = 7
    assert router.choose(here) == 1


def test_the_score_is_the_same_after_the_choice_as_before() -> None:
    for policy in (LEAST, MOST):
        router = Router(policy)
        router.choose(state(score=[3, -1.5, 2]))
        assert router.scores == [3, -1.5, 2]


def test_one_replica_is_chosen_by_every_tie_rule() -> None:
    for tie in ("lowest", "random", "rotate"):
        assert spread(LEAST, state(score=[4]), range(10), tie=tie) == {0: 10}
