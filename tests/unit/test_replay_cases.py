"""The kernels by example: cases that other tools reported, with values worked out beforehand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine import Engine, EngineRun, Links, random_trace, replay_engine, seeded
from oracle import Decision, Eviction
from strategies import POLICIES, Tokens

from pipeline import build_burst_workload
from pipeline.links import LinkFinder

every_policy = pytest.mark.parametrize("policy", POLICIES)


def run(trace: list[Tokens], policy: str = "cache_aware", **knobs: Any) -> EngineRun:
    """Replay on four roomy replicas at the usual prices, except for what is said otherwise."""
    return replay_engine(
        trace, policy=policy, **{"replicas": 4, "capacity_tokens": 16_384, "drain_ms": 12.0} | knobs
    )


def rows(told: EngineRun) -> list[tuple[int | None, int | None, float | None]]:
    return [(one.replica_id, one.matched_tokens, one.ttft_ms) for one in told.decisions]


def column(told: EngineRun, name: str) -> list[Any]:
    return [getattr(one, name) for one in told.decisions]


def loads(told: EngineRun) -> list[int]:
    chosen = column(told, "replica_id")
    return [chosen.count(replica) for replica in range(4)]


def span(start: int, tokens: int) -> Tokens:
    return tuple(range(start, start + tokens))


def test_eviction_takes_the_tail_of_a_chain_and_the_same_tail_every_time() -> None:
    trace = [span(1, 3), span(1, 6), span(1, 9), (20, 21, 22), span(1, 9)]
    for _ in range(200):
        told = run(trace, replicas=1, capacity_tokens=9)
        assert told.evictions[0] == Eviction(3, 0, 3, 6, last_used_seq=2, asked_again_seq=4)
        assert column(told, "evicted_tokens") == [0, 0, 0, 3, 3]
        assert column(told, "resident_tokens") == [3, 6, 9, 9, 9]
        assert told.decisions[4].matched_tokens == 6


def test_a_conversation_of_400_turns_matches_all_but_the_last_token() -> None:
    trace = [span(0, turn) for turn in range(1, 401)]
    told = run(trace, replicas=1, capacity_tokens=1_000_000)
    assert column(told, "matched_tokens") == list(range(400))
    assert column(told, "resident_tokens") == list(range(1, 401))
    told = run([*trace, (9999,), span(0, 400)], replicas=1, capacity_tokens=400)
    assert column(told, "evicted_tokens")[400:] == [1, 1]
    assert told.decisions[401].matched_tokens == 399


def test_a_conversation_of_5000_turns_is_no_deeper_than_memory() -> None:
    turns = [range(turn) for turn in range(1, 5001)]
    tokens = np.concatenate([np.arange(len(turn), dtype=np.uint32) for turn in turns])
    lengths = np.arange(1, 5001, dtype=np.uint32)
    prefix_seq, prefix = LinkFinder().link(tokens, np.cumsum([0, *lengths], dtype=np.int64))
    assert prefix_seq.tolist() == list(range(-1, 4999))
    assert prefix.tolist() == list(range(5000))
    told = replay_engine(
        turns,
        links=Links(lengths, prefix_seq, prefix),
        policy="cache_aware",
        replicas=2,
        capacity_tokens=5000,
        batch_requests=1000,
    )
    assert column(told, "matched_tokens") == list(range(5000))
    assert told.evictions == []


@pytest.mark.parametrize(
    ("policy", "replica"), [("round_robin", 0), ("cache_aware", 0), ("pure_affinity", 1)]
)
def test_a_request_larger_than_the_cache_is_one_rejected_row(policy: str, replica: int) -> None:
    trace = [(1, 2, 3, 4), span(50, 9), (1, 2, 3, 4, 5)]
    told = run(trace, policy, replicas=2, capacity_tokens=8)
    assert rows(told) == [(replica, 0, 0.1), (None, None, None), (replica, 4, 0.03)]
    assert told.decisions[1] == Decision(1, "rejected_too_long", None, 9)


@every_policy
def test_a_fully_cached_prompt_matches_whole(policy: str) -> None:
    told = run([span(0, 1000)] * 3, policy, replicas=1)
    assert rows(told) == [(0, 0, 25.0), (0, 1000, 14.5), (0, 1000, 4.0)]
    assert column(told, "queue_wait_ms") == [0.0, 13.0, 2.5]
    assert sum(column(told, "matched_tokens")) / sum(column(told, "prompt_tokens")) == 2 / 3


def test_a_parent_is_not_merged_with_its_only_child() -> None:
    trace = [span(1, 6), (1, 2, 3, 7, 8, 9), span(20, 6), (30, 31, 32), (1, 2, 3, 7, 8, 9)]
    told = run(trace, replicas=1, capacity_tokens=12)
    assert column(told, "evicted_tokens")[:4] == [0, 0, 3, 3]
    assert column(told, "resident_tokens")[2:4] == [12, 12]
    assert told.decisions[4].matched_tokens == 3


@every_policy
def test_the_pool_of_edges_follows_what_is_resident_and_not_the_trace(policy: str) -> None:
    prompts = np.random.default_rng(7).integers(0, 4, (200_000, 16)).tolist()
    engine = Engine(prompts, policy=policy, replicas=3, capacity_tokens=9216, drain_ms=0.1)
    used, room = [], []
    while engine.done < len(prompts):
        decisions, _ = engine.raw_step(10_000)
        assert decisions["resident_tokens"].max() <= 9216
        fleet = engine.replayer.fleet
        pool = fleet.pools[0]
        used.append(int(pool["used"]))
        room.append(len(fleet.edges))
        assert used[-1] - pool["free"] == np.count_nonzero(fleet.slots["key"] != -1) <= 3 * 9216
    assert used[-1] <= 1.05 * used[1]
    assert len(set(room[2:])) == 1


def test_a_cold_fleet_under_light_load_sends_everything_to_replica_0() -> None:
    told = run([span(1000 * i, 100) for i in range(1, 13)])
    assert rows(told) == [(0, 0, 2.5)] * 12
    assert told.decisions[-1].resident_tokens == 1200


def test_a_cold_fleet_under_heavier_load_takes_the_lowest_idle_replica() -> None:
    told = run([span(2000 * i, 1000) for i in range(1, 9)])
    assert rows(told) == [(replica, 0, 25.0) for replica in (0, 1, 2, 0, 1, 2, 0, 1)]
    assert loads(told) == [3, 3, 2, 0]


def test_a_first_token_that_everyone_shares_makes_pure_affinity_a_single_replica_policy() -> None:
    bodies = [span(101 * i, 7) for i in range(1, 9)]
    told = run([(128_000, *body) for body in bodies], "pure_affinity")
    assert (loads(told), column(told, "matched_tokens")) == ([8, 0, 0, 0], [0] + [1] * 7)
    told = run(bodies, "pure_affinity")
    assert (loads(told), column(told, "matched_tokens")) == ([2, 2, 2, 2], [0] * 8)


def test_a_matching_middle_is_not_a_matching_prefix() -> None:
    trace = [(1, 2, 3, 4), (6, 7, 8, 9), (6, 7, 8, 9, 1, 2, 3, 4)]
    told = run(trace, "pure_affinity", replicas=2, capacity_tokens=64)
    assert rows(told) == [(1, 0, 0.1), (0, 0, 0.1), (0, 4, 0.11)]
    assert (told.decisions[2].computed_tokens, told.decisions[2].exec_ms) == (4, 0.106)


PROBED = (3, [(1, 2), (4, 5, 6, 21), (1, 2, 3), (10, 11, 12), (4, 5, 6)])
PROBED_IN_PART = (2, [(1, 2, 3, 11), (4, 5, 6), (7, 8, 9), (1, 2, 3, 10), (7, 8, 9)])


@pytest.mark.parametrize(
    ("fleet", "refreshes", "expected", "evicted"),
    [
        (PROBED, True, [(0, 0, 2.0), (0, 0, 4.0), (1, 0, 3.0), (0, 0, 3.0), (1, 0, 3.0)], 4),
        (PROBED, False, [(0, 0, 2.0), (0, 0, 4.0), (1, 0, 3.0), (0, 0, 3.0), (0, 3, 1.3)], 2),
        (PROBED_IN_PART, True, [(0, 0, 4), (1, 0, 3), (0, 0, 3), (0, 3, 2.3), (1, 0, 3)], 3),
        (PROBED_IN_PART, False, [(0, 0, 4), (1, 0, 3), (0, 0, 3), (0, 3, 2.3), (0, 3, 0.6)], 1),
    ],
)
def test_scoring_a_replica_refreshes_what_it_holds_unless_that_is_turned_off(
    fleet: tuple[int, list[Tokens]], refreshes: bool, expected: Any, evicted: int
) -> None:
    knobs = {"prefill_ms_per_token": 1.0, "lookup_ms_per_token": 0.1, "drain_ms": 2.0}
    knobs |= {"replicas": fleet[0], "capacity_tokens": 7, "probe_refreshes_recency": refreshes}
    told = run(fleet[1], **knobs)
    assert rows(told) == expected
    assert sum(column(told, "evicted_tokens")) == evicted


@pytest.mark.parametrize(("refreshes", "last_used"), [(True, 1), (False, 0)])
def test_a_look_up_that_ends_inside_an_edge_refreshes_all_of_it(
    refreshes: bool, last_used: int
) -> None:
    too_long = (1, *range(50, 60))
    trace = [(1, 2, 3, 4), (5, 6, 7, 8), too_long, (9, 10, 11, 12)]
    told = run(trace, replicas=1, capacity_tokens=10, probe_refreshes_recency=refreshes)
    assert told.evictions == [Eviction(3, 0, 4, 0, last_used, asked_again_seq=None)]


def test_the_hit_ratio_divides_sums_of_tokens() -> None:
    told = run([span(1, 100), (*span(1, 90), *span(500, 10)), span(700, 10)], replicas=1)
    assert column(told, "matched_tokens") == [0, 90, 0]
    assert column(told, "prompt_tokens") == [100, 100, 10]


def test_equal_arrivals_are_served_in_the_order_of_the_trace() -> None:
    a, b, c = (1, 2, 3, 4), (1, 2, 9, 9), (7, 7, 7, 7)
    price = {"prefill_ms_per_token": 1.0, "lookup_ms_per_token": 0.1}
    knobs = {"replicas": 2, "capacity_tokens": 6, "drain_ms": 1.0} | price
    told = run([a, b, c], **knobs)
    assert [row[:2] for row in rows(told)] == [(0, 0), (1, 0), (0, 0)]
    assert sum(column(told, "evicted_tokens")) == 4
    told = run([a, c, b], **knobs)
    assert column(told, "matched_tokens") == [0, 0, 2]
    assert told.evictions == []


@every_policy
def test_an_empty_prompt_is_a_rejected_row_and_changes_no_other(policy: str) -> None:
    tenants = [span(0, 100), (*span(0, 90), *span(500, 10)), ()]
    told = run(tenants, policy, replicas=1)
    assert column(told, "matched_tokens") == [0, 90, None]
    assert told.decisions[2] == Decision(2, "rejected_empty", None, 0)
    trace = random_trace(seeded(11), 300, vocabulary=3)
    knobs = {"replicas": 3, "capacity_tokens": 20, "drain_ms": 0.1}
    told, filled = run(trace, policy, **knobs), run([p for p in trace if p], policy, **knobs)
    others = [replace(one, seq=0) for one in told.decisions if one.prompt_tokens]
    assert others == [replace(one, seq=0) for one in filled.decisions]


@pytest.mark.parametrize(
    ("policy", "hit_ratio", "mean_ms", "max_ms", "most", "evicted"),
    [
        ("round_robin", 0.7353, 47.19, 108.8, 8, 3072),
        ("pure_affinity", 0.4412, 1217.24, 1625.6, 32, 69632),
        ("cache_aware", 0.8235, 32.34, 108.8, 20, 0),
    ],
)
def test_the_burst_comparison_gives_the_known_numbers(
    policy: str, hit_ratio: float, mean_ms: float, max_ms: float, most: int, evicted: int
) -> None:
    told = run(build_burst_workload(), policy, capacity_tokens=9216, drain_ms=14.0)
    ttfts, matched = column(told, "ttft_ms"), sum(column(told, "matched_tokens"))
    assert round(matched / sum(column(told, "prompt_tokens")), 4) == hit_ratio
    assert (round(sum(ttfts) / 32, 2), max(ttfts)) == (mean_ms, max_ms)
    assert (max(loads(told)), sum(column(told, "evicted_tokens"))) == (most, evicted)


@pytest.mark.parametrize("first_id", [5, 2**32 + 1, 2**63 + 1, 2**64 - 1])
def test_without_a_match_pure_affinity_takes_the_first_id_modulo_replicas(first_id: int) -> None:
    links = Links(np.array([3], np.uint32), np.array([-1]), np.array([0]))
    told = run([(first_id, 7, 7)], "pure_affinity", replicas=3, links=links)
    assert column(told, "replica_id") == [first_id % 3]
