"""All policies by example: cold fleets, a first token that all share, middles, look-ups."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command import replay_ok
from engine import Engine, link, random_trace, seeded, share
from policy_states import chance_of, mixed
from samples import decisions, write_trace
from strategies import Tokens

from pipeline.config import ClockConfig, EngineConfig, FleetConfig, ReplayConfig
from pipeline.replay import POLICIES, Replayer
from pipeline.run import replay_trace

ALL = tuple(POLICIES)
IN_TURN = [0, 1, 2, 3] * 3
IDLE_IN_TURN = [0, 1, 2, 0, 1, 2, 0, 1]
OPEN = [name for name, policy in POLICIES.items() if policy.tie is not None]
"""Policies that leave ties open."""

LOOK_UP = [name for name, policy in POLICIES.items() if policy.looks_up]
NO_TIE = ("lmetric", "pure_affinity")  # the latter none where nothing matches
FAITHFUL = ("pure_affinity", "ray")  # only the replica that they choose has any of a prompt
BY_HASH = ("session", "prefix_hash", "chwbl")
BY_CHANCE = ("random", "power_of_two")


def span(start: int, tokens: int) -> Tokens:
    return tuple(range(start, start + tokens))


SHORT = [span(1001 * i, 100) for i in range(1, 13)]
"""Prompts that take 2.5 ms each, of which one comes every 12 ms; their first tokens are i mod 4."""

LONG = [span(2001 * i, 1000) for i in range(1, 9)]
"""Prompts that take 25 ms each."""


class Told(NamedTuple):
    """What a replay tells, one item a request."""

    replicas: list[int]
    branches: list[int]
    matched: list[int]
    believed: list[int]
    best: list[int]
    ttft_ms: list[float]
    evicted: list[int]
    lost: list[tuple[int, ...]]


def asked(
    trace: list[Tokens], policy: str, engine: EngineConfig | None = None, **knobs: Any
) -> Told:
    """Replay on four roomy replicas at the usual prices, except for what is said otherwise."""
    fleet = {"replicas": 4, "capacity_tokens": 16_384, "drain_ms": 12.0} | knobs
    run = Engine(trace, policy=policy, **fleet)
    if engine is not None:
        size = FleetConfig(fleet["replicas"], fleet["capacity_tokens"])
        run.replayer = Replayer(share(link(trace)), ReplayConfig(size, engine), policy)
    rows, evictions = run.raw_step(len(trace))
    names = ("replica_id", "branch", "matched_tokens", "believed_matched_tokens")
    names = (*names, "best_matched_tokens", "ttft_cents", "evicted_tokens")
    columns = [rows[name].tolist() for name in names]
    columns[5] = [cents / 100 for cents in columns[5]]
    return Told(*columns, evictions.tolist())


def with_tie(policy: str, tie: str) -> str:
    """Return the policy with that way to break ties, if it leaves any open."""
    return f"{policy}:tie={tie}" if policy in OPEN else policy


def loads(told: Told) -> list[int]:
    return [told.replicas.count(replica) for replica in range(4)]


def drawn(seq: int, draw: int, count: int) -> int:
    """Return what choice.below draws for a request under seed 0."""
    word = mixed((chance_of(0, seq) + draw * 0x9E3779B97F4A7C15) % 2**64)
    return int((word >> 11) / 2**53 * count)


BY_STATE = [policy for policy in ALL if policy not in (*BY_HASH, *BY_CHANCE)]
COLD = dict.fromkeys(BY_STATE, [0] * 12)
"""Where twelve short prompts go that find an idle fleet, of equals to the lowest."""

SPREADING = ("round_robin", "ray", "preble")  # in turn, to the smallest tree, to the least load
COLD |= dict.fromkeys(SPREADING, IN_TURN)
COLD["pure_affinity"] = [i % 4 for i in range(1, 13)]  # first token modulo replicas


@pytest.mark.parametrize("policy", COLD)
def test_a_cold_idle_fleet_gets_requests_on_the_lowest_of_equals(
    policy: str,
) -> None:
    told = asked(SHORT, with_tie(policy, "lowest"))
    assert told.replicas == COLD[policy]
    assert told.ttft_ms == [2.5] * 12
    assert told.matched == told.believed == told.best == [0] * 12


@pytest.mark.parametrize("policy", COLD)
def test_a_tie_that_rotates_spreads_a_cold_fleet_s_requests(policy: str) -> None:
    told = asked(SHORT, with_tie(policy, "rotate"))
    assert told.replicas == (COLD[policy] if policy in NO_TIE else IN_TURN)


@pytest.mark.parametrize("policy", [policy for policy in COLD if sum(COLD[policy]) == 0])
def test_a_tie_at_random_spreads_a_cold_fleet_s_requests_as_they_are_drawn(policy: str) -> None:
    told = asked(SHORT, with_tie(policy, "random"))
    by_chance = [drawn(seq, 0, 4) for seq in range(12)]
    assert set(by_chance) == {0, 1, 2, 3}
    assert told.replicas == (by_chance if policy in OPEN else [0] * 12)


@pytest.mark.parametrize("policy", BY_CHANCE)
def test_chance_takes_the_first_that_it_draws_of_an_idle_fleet(policy: str) -> None:
    assert asked(SHORT, policy).replicas == [drawn(seq, 1, 4) for seq in range(12)]


def test_hashes_of_prompts_that_share_nothing_spread_a_cold_fleet_s_requests() -> None:
    told = [asked(SHORT, policy) for policy in BY_HASH]
    assert told[0].replicas == told[1].replicas == told[2].replicas
    assert max(loads(told[0])) == 6
    # Nothing is in flight: chwbl finds no room for a request in 1.25 x 1 / 4.
    assert [set(one.branches) for one in told] == [{1}, {0}, {2}]


def test_bounds_on_load_move_what_is_hashed_to_a_busy_replica() -> None:
    owners, bounded, walked = (asked(LONG, policy) for policy in BY_HASH)
    assert owners.replicas == [3, 1, 1, 1, 3, 1, 1, 3]
    # With 2 in flight a replica may have 0.94: the owner's 1 is too much, and the lowest idle one
    # gets the third, fourth and seventh.
    assert (bounded.replicas, bounded.branches) == (
        [3, 1, 0, 2, 3, 1, 0, 3],
        [0, 0, 1, 1, 0, 0, 1, 0],
    )
    assert bounded.ttft_ms == [25.0] * 8
    # Here it may have 0.94 with the new one: nobody has room, until 3 are in flight and it is 1.25.
    assert (walked.replicas, walked.branches) == (
        [3, 1, 1, 1, 3, 0, 2, 3],
        [2, 2, 2, 2, 2, 1, 1, 0],
    )
    assert walked.ttft_ms == [25.0, 25.0, 38.0, 51.0, 25.0, 25.0, 25.0, 25.0]


BUSY = dict.fromkeys(BY_STATE, IDLE_IN_TURN)
"""Where eight long prompts go: the first is done when the fourth comes."""

BUSY |= dict.fromkeys(SPREADING, IN_TURN[:8])
BUSY["pure_affinity"] = [1, 2, 3, 0] * 2
BUSY["prefix_aware"] = [0] * 8  # it hears of no load


@pytest.mark.parametrize("policy", BUSY)
def test_a_cold_busy_fleet_gets_requests_on_the_lowest_idle_replica(policy: str) -> None:
    told = asked(LONG, with_tie(policy, "lowest"))
    assert told.replicas == BUSY[policy]
    queues = [13.0 * i if policy == "prefix_aware" else 0.0 for i in range(8)]
    assert told.ttft_ms == [25.0 + queue for queue in queues]


def test_three_idle_replicas_are_named_in_the_report(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "cold.parquet", SHORT)
    config = ReplayConfig(
        FleetConfig(4, 16_384),
        clock=ClockConfig("arrivals"),
        policies=("cache_aware", "cache_aware:tie=rotate", "sglang", "round_robin"),
    )
    replay_trace(trace, tmp_path / "run", config)
    rows = json.loads(replay_ok("report", tmp_path / "run", "hot_spots", "--format", "json"))
    found = {row["policy"]: row for row in rows}
    for policy in ("cache_aware", "sglang"):
        row = found[policy]
        assert (row["idle_replicas"], row["idle_replica_ids"]) == (3, "1,2,3")
        assert (row["fullest_replica_id"], row["requests_max_over_mean"]) == (0, 4.0)
        assert row["longest_run_requests"] == 12
        assert row["finding"].startswith("cold pile-up: replica 0 got 12 of 12 cold requests; ")
        assert row["finding"].endswith("; 3 of 4 replicas idle")
    for policy in ("cache_aware:tie=rotate", "round_robin"):
        row = found[policy]
        assert (row["idle_replicas"], row["idle_replica_ids"], row["finding"]) == (0, "", "")
        assert row["requests_max_over_mean"] == 1.0
    assert [row["ttft_ms"] for row in decisions(tmp_path / "run", "cache_aware")] == [2.5] * 12


BODIES = [span(101 * i, 7) for i in range(1, 9)]
WITH_BOS = [(128_000, *body) for body in BODIES]
ONE, EACH = [8, 0, 0, 0], [2, 2, 2, 2]
SHARED_TOKEN = {  # loads with a first token that all share, and without; ties rotate
    "round_robin": (EACH, EACH),
    "pure_affinity": (ONE, EACH),
    "cache_aware": (ONE, EACH),  # 0.025 ms less to compute where it is
    "least_loaded": (EACH, EACH),
    "vllm_dp": (EACH, EACH),
    "dynamo": (EACH, EACH),  # 1 token is no block of 16
    "dynamo:block_tokens=1": (ONE, EACH),
    "llm_d": (EACH, EACH),  # nor of 64
    "llm_d:block_tokens=1": (ONE, EACH),
    "lmetric": (ONE, ONE),  # 7 new tokens against 8; no tie is open
    "load_aware": (ONE, EACH),
    "gorgo": (ONE, EACH),
    "sglang": (EACH, EACH),  # 1 of 8 tokens is not more than 0.5
    "sglang:match_threshold=0.125": (EACH, EACH),
    "sglang:match_threshold=0.12": (ONE, EACH),
    "sglang_python": (EACH, EACH),
    "prefix_aware": (EACH, EACH),  # no chunk of 32
    "prefix_aware:chunk_tokens=1": (ONE, EACH),
    "aibrix": (ONE, EACH),  # 12 percent match
    "ray": (ONE, EACH),  # 0.125 of it do: 0.1 is enough
    "ray:match_rate=0.126": (EACH, EACH),
    "preble": (EACH, EACH),  # 7 tokens to come are not fewer than 1 that is shared
}


@pytest.mark.parametrize("policy", SHARED_TOKEN)
def test_a_first_token_that_all_share_draws_them_to_one_replica_where_any_match_counts(
    policy: str,
) -> None:
    rotating = policy
    if policy.partition(":")[0] in OPEN:
        rotating += ",tie=rotate" if ":" in policy else ":tie=rotate"
    told, without = asked(WITH_BOS, rotating), asked(BODIES, rotating)
    assert (loads(told), loads(without)) == SHARED_TOKEN[policy]
    assert sum(told.matched) == (7 if loads(told) == ONE else 4)
    assert told.best == [0] + [1] * 7
    assert without.best == [0] * 8


@pytest.mark.parametrize("policy", BY_CHANCE)
def test_a_first_token_that_all_share_is_nothing_to_chance(policy: str) -> None:
    assert asked(WITH_BOS, policy).replicas == asked(BODIES, policy).replicas


@pytest.mark.parametrize("policy", BY_HASH)
def test_a_first_token_that_all_share_is_one_replica_s_if_nothing_else_is_hashed(
    policy: str,
) -> None:
    assert max(loads(asked(WITH_BOS, policy))) < 8
    assert max(loads(asked(WITH_BOS, f"{policy}:prefix_tokens=1"))) == 8
    assert max(loads(asked(WITH_BOS, f"{policy}:prefix_tokens=2"))) < 8
    assert max(loads(asked(BODIES, f"{policy}:prefix_tokens=1"))) < 8


VIEWS = ("exact", "lag:0", "routed")
MIDDLES = [(1, 2, 3, 4), (6, 7, 8, 9), (6, 7, 8, 9, 1, 2, 3, 4), (5, 1, 2, 3, 4)]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("policy", ALL)
def test_a_matching_middle_is_never_a_match(policy: str, view: str) -> None:
    told = asked(MIDDLES, f"{policy}:router_view={view}", replicas=2, capacity_tokens=64)
    assert told.best == [0, 0, 4, 0]
    same = told.replicas[2] == told.replicas[1]
    assert told.matched == [0, 0, 4 if same else 0, 0]
    assert told.believed == told.matched


@pytest.mark.parametrize("view", VIEWS)
def test_affinity_goes_by_the_beginning_of_a_prompt(view: str) -> None:
    told = asked(MIDDLES[:3], f"pure_affinity:router_view={view}", replicas=2, capacity_tokens=64)
    assert (told.replicas, told.matched) == ([1, 0, 0], [0, 0, 4])
    assert told.ttft_ms == [0.1, 0.1, 0.11]


PROBED = (3, [(1, 2), (4, 5, 6, 21), (1, 2, 3), (10, 11, 12), (4, 5, 6)])
PROBED_IN_PART = (2, [(1, 2, 3, 11), (4, 5, 6), (7, 8, 9), (1, 2, 3, 10), (7, 8, 9)])


def scored(case: tuple[int, list[Tokens]], view: str) -> Told:
    prices = {"prefill_ms_per_token": 1.0, "lookup_ms_per_token": 0.1, "drain_ms": 2.0}
    policy = f"cache_aware:router_view={view}"
    return asked(case[1], policy, replicas=case[0], capacity_tokens=7, **prices)


@pytest.mark.parametrize("view", ["exact", "lag:0"])
def test_scoring_replicas_as_they_are_refreshes_what_they_hold(view: str) -> None:
    # The third look-up keeps (1, 2) on replica 0, so that (4, 5, 6, 21) goes.
    told = scored(PROBED, view)
    assert (told.replicas, told.matched) == ([0, 0, 1, 0, 1], [0] * 5)
    assert (told.ttft_ms, told.evicted) == ([2.0, 4.0, 3.0, 3.0, 3.0], [0, 0, 0, 4, 0])
    # The fourth touches all of (1, 2, 3, 11), so that (7, 8, 9) goes.
    told = scored(PROBED_IN_PART, view)
    assert (told.replicas, told.matched) == ([0, 1, 0, 0, 1], [0, 0, 0, 3, 0])
    assert (told.ttft_ms, told.evicted) == ([4.0, 3.0, 3.0, 2.3, 3.0], [0, 0, 0, 3, 0])


@pytest.mark.parametrize("view", ["routed", "routed,router_capacity_tokens=0"])
def test_scoring_what_was_routed_refreshes_nothing(view: str) -> None:
    told = scored(PROBED, view)
    assert (told.replicas, told.matched) == ([0, 0, 1, 0, 0], [0, 0, 0, 0, 3])
    assert (told.ttft_ms, told.believed) == ([2.0, 4.0, 3.0, 3.0, 1.3], told.matched)
    assert told.evicted[:4] == [0, 0, 0, 2]
    # The replica that serves the fourth does touch all of (1, 2, 3, 11): (7, 8, 9) goes, and
    # the router doesn't know.
    told = scored(PROBED_IN_PART, view)
    assert (told.replicas, told.matched) == ([0, 1, 0, 0, 0], [0, 0, 0, 3, 0])
    assert told.believed == [0, 0, 0, 3, 3]
    assert (told.ttft_ms, told.evicted) == ([4.0, 3.0, 3.0, 2.3, 3.3], [0, 0, 0, 3, 1])


@pytest.mark.parametrize("view", ["exact", "routed"])
@pytest.mark.parametrize("policy", ALL)
def test_look_ups_touch_replicas_where_the_router_sees_them_as_they_are(
    policy: str, view: str
) -> None:
    trace = random_trace(seeded(3), 300, vocabulary=3)
    by_look_up, by_match = (
        asked(trace, f"{policy}:router_view={view}", EngineConfig(refresh=refresh),
              capacity_tokens=24, drain_ms=0.1)
        for refresh in ("probe", "match")
    )  # fmt: skip
    assert len(by_match.lost) > 100
    touches = view == "exact" and policy in LOOK_UP and policy not in FAITHFUL
    assert (by_look_up != by_match) == touches
