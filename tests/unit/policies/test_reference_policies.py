"""The reference's policies by hand, and what holds for every policy in the table."""

import inspect
import random

import numpy as np
import pytest
from policy_states import Router, State, choose, random_state, spread, state

from pipeline.config import TIES, find_view
from pipeline.replay.policies import POLICIES
from pipeline.replay.records import ACTIVE, LOAD, PREFIX, RECENCY, REPLICA, SESSION

STATES = [random_state(random.Random(n)) for n in range(1000)]  # noqa: S311 (fixed states)
SEEN = REPLICA.names[: REPLICA.names.index("score")]
"""Fields of a replica that a policy may read."""

FIELD = """
    round_robin pure_affinity cache_aware random least_loaded power_of_two session prefix_hash chwbl
    sglang sglang_python dynamo llm_d lmetric load_aware prefix_aware aibrix preble ray gorgo
    vllm_dp
"""

every_policy = pytest.mark.parametrize("policy", POLICIES)


def test_round_robin_takes_each_replica_in_turn() -> None:
    router = Router("round_robin")
    busy = state(queue=[9, 0, 0], queued=[9, 0, 0], matched=[0, 0, 100])
    assert [router.choose(busy) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_round_robin_goes_on_over_the_replicas_that_are_there() -> None:
    router = Router("round_robin")
    assert [router.choose(state(4)) for _ in range(2)] == [0, 1]
    assert [router.choose(state(ids=[0, 1, 3])) for _ in range(3)] == [3, 0, 1]


def test_pure_affinity_takes_the_longest_match_however_loaded() -> None:
    assert choose("pure_affinity", state(matched=[10, 60, 59], queue=[0, 10**9, 0])) == 1


def test_pure_affinity_takes_the_lowest_of_equal_matches() -> None:
    assert choose("pure_affinity", state(matched=[10, 60, 60], first_token_id=2)) == 1
    told = spread("pure_affinity", state(matched=[10, 60, 60]), tie="random")
    assert told.keys() == {1, 2}


def test_pure_affinity_takes_the_first_token_modulo_replicas_where_nothing_matches() -> None:
    told = [choose("pure_affinity", state(3, first_token_id=n)) for n in (0, 1, 5, 2**64 - 1)]
    assert told == [0, 1, 2, 0]
    assert choose("pure_affinity", state(ids=[2, 5, 7], first_token_id=128_000)) == 7


def test_pure_affinity_takes_a_match_of_one_token() -> None:
    assert choose("pure_affinity", state(matched=[0, 0, 1], first_token_id=0)) == 2


def test_cache_aware_takes_the_least_sum_of_queue_lookup_and_prefill() -> None:
    matched = [0, 60]  # 100 x 250 = 25,000 ticks; 60 x 15 + 40 x 250 = 10,900, so 14,100 less
    assert choose("cache_aware", state(matched=matched, queue=[0, 14_099])) == 1
    assert choose("cache_aware", state(matched=matched, queue=[0, 14_100])) == 0
    assert choose("cache_aware", state(matched=matched, queue=[0, 14_101])) == 0


def test_cache_aware_sends_cold_requests_to_the_lowest_idle_replica() -> None:
    assert choose("cache_aware", state(4)) == 0
    assert choose("cache_aware", state(queue=[7, 0, 0, 0])) == 1
    assert spread("cache_aware", state(queue=[7, 0, 5, 0]), tie="random").keys() == {1, 3}


def test_the_table_lists_the_policies_of_the_field() -> None:
    assert POLICIES.keys() == set(FIELD.split())


@every_policy
def test_the_only_replica_is_chosen(policy: str) -> None:
    router = Router(policy)
    for n, asked in enumerate(STATES[:200]):
        alone = State(asked.request, asked.replicas[:1])
        assert router.choose(alone, n) == asked.replicas["replica_id"][0]


@every_policy
@pytest.mark.parametrize("tie", TIES)
def test_any_state_is_answered_by_a_replica_that_is_there(policy: str, tie: str) -> None:
    router = Router(policy, tie)
    for n, asked in enumerate(STATES):
        assert router.choose(asked, n) in asked.replicas["replica_id"]
        assert 0 <= router.branch < len(router.policy.scores), n
        assert not np.isnan(router.scores).any(), n


@every_policy
def test_the_chosen_replica_has_the_best_score_of_what_decided(policy: str) -> None:
    router = Router(policy)
    for n, asked in enumerate(STATES):
        replica = router.choose(asked, n)
        score, decided = np.array(router.scores), router.policy.scores[router.branch]
        if not decided.best or (decided.without and not score.any()):
            continue
        best = score.min() if decided.best == "least" else score.max()
        assert score[asked.replicas["replica_id"] == replica] == best, (n, decided.name)


@every_policy
def test_a_policy_changes_scores_its_branch_and_its_own_memory_alone(policy: str) -> None:
    router = Router(policy)
    size, guard = len(router.memory), 999
    room = np.full(size + 2 * guard, -77, np.int64)
    room[guard:-guard] = router.memory
    router.memory, before = room[guard:-guard], router.parameters.copy()
    for n, asked in enumerate(STATES[:300]):
        router.choose(asked, n)
        for name in set(REPLICA.names) - {"score"}:
            assert (router.left.replicas[name] == asked.replicas[name]).all(), (n, name)
        for name in ("prompt_tokens", "clock_ticks", "prefix", "session"):
            assert router.left.request[name] == asked.request[name], (n, name)
    assert (room[:guard] == -77).all()
    assert (room[-guard:] == -77).all()
    assert (router.parameters == before).all()


@every_policy
def test_decisions_are_the_same_beside_any_other_policy(policy: str) -> None:
    alone, beside = Router(policy), Router(policy)
    others = [Router(other) for other in POLICIES]
    for n, asked in enumerate(STATES[:60]):
        for other in others:
            other.choose(asked, n)
        assert beside.choose(asked, n) == alone.choose(asked, n), n


@every_policy
def test_chance_decides_only_where_a_policy_draws_or_breaks_ties_at_random(policy: str) -> None:
    one, other = Router(policy, "lowest", seed=1), Router(policy, "lowest", seed=2)
    told = [(one.choose(asked, 5), other.choose(asked, n)) for n, asked in enumerate(STATES)]
    if policy in ("random", "power_of_two"):
        assert any(a != b for a, b in told)
    else:
        assert all(a == b for a, b in told)


@every_policy
def test_a_policy_goes_by_nothing_that_it_did_not_ask_for(policy: str) -> None:
    needs, looks_up = POLICIES[policy].needs, POLICIES[policy].looks_up
    hidden = [name for name in REPLICA.names if name not in (*SEEN, "score")]
    load = ["queued_requests", "running_requests", "prefill_tokens"]
    hidden += load * (not needs & LOAD) + ["matched_seq"] * (not needs & RECENCY)
    hidden += ["active_tokens", "active_matched_tokens"] * (not needs & ACTIVE)
    hidden += ["matched_tokens", "matched_seq", "exec_ticks"] * (not looks_up)
    hidden_of_request = ["prefix"] * (not needs & PREFIX) + ["session"] * (not needs & SESSION)
    seeing, blind = Router(policy), Router(policy)
    for n, asked in enumerate(STATES):
        covered = State(asked.request.copy(), asked.replicas.copy())
        other = STATES[n - 1]
        for name in hidden:
            covered.replicas[name] = other.replicas[name][0]
        for name in hidden_of_request:
            covered.request[name] = other.request[name]
        assert blind.choose(covered, n) == seeing.choose(asked, n), n


@every_policy
def test_the_docstring_gives_formula_ties_and_source(policy: str) -> None:
    told = inspect.getdoc(POLICIES[policy].rule) or ""
    assert [word for word in ("Formula", "Ties", "Source") if word not in told] == []
    assert POLICIES[policy].source


@every_policy
def test_the_source_of_a_rule_has_at_most_60_lines(policy: str) -> None:
    assert len(inspect.getsource(POLICIES[policy].rule).splitlines()) <= 60


@every_policy
def test_defaults_of_parameters_lie_within_their_ranges(policy: str) -> None:
    for parameter in POLICIES[policy].parameters:
        assert parameter.low <= parameter.default <= parameter.high, parameter
        assert not parameter.whole or parameter.default == int(parameter.default), parameter
        assert parameter.meaning, parameter
    names = [p.name for p in POLICIES[policy].parameters]
    assert len(set(names)) == len(names)


@every_policy
def test_what_is_known_of_a_policy_can_be_read(policy: str) -> None:
    known = POLICIES[policy]
    assert known.tie in (None, *TIES)
    assert str(find_view(known.view)) == known.view
    assert {score.best for score in known.scores} <= {"least", "most", ""}
    assert known.router_tokens >= 0
    assert known.memory(5).dtype == np.int64
