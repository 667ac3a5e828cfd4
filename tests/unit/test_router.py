"""The online router by example: routing, rounding, and requests that cannot be served."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from oracle import user_reference
from strategies import POLICIES

from pipeline import (
    CacheAwareRouter,
    GpuReplica,
    RadixKvTree,
    build_burst_workload,
    simulate_routing_comparison,
)

Tokens = tuple[int, ...]

PROJECT = Path(__file__).parents[2]
REFERENCE_SUITE = PROJECT.parent / "shared" / "reference" / "test_lab.py"
ABSENT = "the user's reference is not beside the project (../shared/reference)"


def outcomes(
    router: CacheAwareRouter, prompts: list[Tokens], policy: str
) -> list[tuple[int, int, float] | str]:
    """Route all prompts: (replica, matched, TTFT), or the words of the error."""
    rows: list[tuple[int, int, float] | str] = []
    for tokens in prompts:
        try:
            result = router.route_request(tokens, policy)
        except ValueError as error:
            rows.append(str(error))
        else:
            rows.append((result["replica_id"], result["matched_tokens"], result["ttft_ms"]))
    return rows


def column(rows: list[Any], index: int) -> list[Any]:
    return [row[index] for row in rows]


def loads(router: CacheAwareRouter) -> list[int]:
    return [replica.routed_requests for replica in router.replicas]


def state(router: CacheAwareRouter) -> list[tuple[Any, ...]]:
    return [
        (
            replica.queue_wait_ms,
            replica.routed_requests,
            replica.matched_tokens_total,
            replica.computed_tokens_total,
            replica.tree.step_clock,
            replica.tree.cached_tokens,
        )
        for replica in router.replicas
    ]


@pytest.mark.parametrize(
    ("policy", "replica"), [("round_robin", 0), ("cache_aware", 0), ("pure_affinity", 1)]
)
def test_an_oversized_request_is_refused_after_routing_and_the_next_is_served(
    policy: str, replica: int
) -> None:
    router = CacheAwareRouter(2, 8)
    prompts = [(1, 2, 3, 4), tuple(range(50, 59)), (1, 2, 3, 4, 5)]
    assert outcomes(router, prompts, policy) == [
        (replica, 0, 0.1),
        "Request length exceeds replica KV cache capacity",
        (replica, 4, 0.03),
    ]
    assert sum(loads(router)) == 2


def test_an_oversized_request_decays_queues_and_touches_but_adds_nothing() -> None:
    router = CacheAwareRouter(1, 6, 1.0, 0.1, 1.0)
    assert outcomes(router, [(1, 2, 3), (4, 5, 6)], "cache_aware") == [(0, 0, 3.0), (0, 0, 5.0)]
    with pytest.raises(ValueError, match="exceeds"):
        router.route_request((1, 2, 3, 7, 7, 7, 7), "cache_aware")
    replica = router.replicas[0]
    assert (replica.queue_wait_ms, replica.routed_requests) == (4.0, 2)
    assert (replica.tree.cached_tokens, replica.tree.total_evicted_tokens) == (6, 0)
    router.route_request((8,), "cache_aware")
    assert replica.tree.match_prefix((1, 2, 3))[0] == 3
    assert replica.tree.match_prefix((4, 5, 6))[0] == 0


def test_a_fully_cached_prompt_matches_whole() -> None:
    router = CacheAwareRouter(1)
    rows = outcomes(router, [tuple(range(1000))] * 3, "round_robin")
    assert rows == [(0, 0, 25.0), (0, 1000, 14.5), (0, 1000, 4.0)]
    replica = router.replicas[0]
    assert (replica.matched_tokens_total, replica.computed_tokens_total) == (2000, 1000)


def test_a_cold_fleet_under_light_load_sends_everything_to_replica_0() -> None:
    router = CacheAwareRouter()
    prompts = [tuple(range(1000 * i, 1000 * i + 100)) for i in range(1, 13)]
    assert outcomes(router, prompts, "cache_aware") == [(0, 0, 2.5)] * 12
    assert loads(router) == [12, 0, 0, 0]
    assert router.replicas[0].tree.cached_tokens == 1200


def test_a_cold_fleet_under_heavier_load_takes_the_lowest_idle_replica() -> None:
    router = CacheAwareRouter()
    prompts = [tuple(range(2000 * i, 2000 * i + 1000)) for i in range(1, 9)]
    rows = outcomes(router, prompts, "cache_aware")
    assert column(rows, 0) == [0, 1, 2, 0, 1, 2, 0, 1]
    assert column(rows, 2) == [25.0] * 8
    assert loads(router) == [3, 3, 2, 0]


def test_a_first_token_that_everyone_shares_makes_pure_affinity_a_single_replica_policy() -> None:
    bodies = [tuple(range(101 * i, 101 * i + 7)) for i in range(1, 9)]
    with_bos, without = CacheAwareRouter(), CacheAwareRouter()
    rows = outcomes(with_bos, [(128000, *body) for body in bodies], "pure_affinity")
    assert column(rows, 1) == [0, 1, 1, 1, 1, 1, 1, 1]
    assert loads(with_bos) == [8, 0, 0, 0]
    assert column(outcomes(without, bodies, "pure_affinity"), 1) == [0] * 8
    assert loads(without) == [2, 2, 2, 2]


def test_a_matching_middle_is_not_a_matching_prefix() -> None:
    prompts = [(1, 2, 3, 4), (6, 7, 8, 9), (6, 7, 8, 9, 1, 2, 3, 4)]
    router = CacheAwareRouter(2, 64)
    assert outcomes(router, prompts[:2], "pure_affinity") == [(1, 0, 0.1), (0, 0, 0.1)]
    assert router.route_request(prompts[2], "pure_affinity") == {
        "replica_id": 0,
        "matched_tokens": 4,
        "computed_tokens": 4,
        "exec_ms": 0.11,
        "ttft_ms": 0.11,
    }


def test_equal_matches_go_to_the_lowest_replica_whatever_its_queue() -> None:
    router = CacheAwareRouter(3)
    outcomes(router, [(7, 8), (1, 2, 3), (1, 2, 3)], "round_robin")
    assert router.route_request((1, 2, 3, 4), "pure_affinity")["replica_id"] == 1
    router.replicas[1].queue_wait_ms = 1000.0
    assert router.route_request((1, 2, 3), "pure_affinity")["replica_id"] == 1


def test_scoring_a_replica_refreshes_what_it_holds_though_it_is_not_chosen() -> None:
    router = CacheAwareRouter(3, 7, 1.0, 0.1, 2.0)
    prompts = [(1, 2), (4, 5, 6, 21), (1, 2, 3), (10, 11, 12), (4, 5, 6)]
    rows = outcomes(router, prompts, "cache_aware")
    assert rows == [(0, 0, 2.0), (0, 0, 4.0), (1, 0, 3.0), (0, 0, 3.0), (1, 0, 3.0)]
    assert router.replicas[0].tree.total_evicted_tokens == 4


def test_scoring_refreshes_the_tail_of_an_edge_that_matches_in_part() -> None:
    router = CacheAwareRouter(2, 7, 1.0, 0.1, 2.0)
    prompts = [(1, 2, 3, 11), (4, 5, 6), (7, 8, 9), (1, 2, 3, 10), (7, 8, 9)]
    rows = outcomes(router, prompts, "cache_aware")
    assert rows[3:] == [(0, 3, 2.3), (1, 0, 3.0)]


def test_the_hit_ratio_divides_sums_of_tokens() -> None:
    router = CacheAwareRouter(1)
    prompts = [
        tuple(range(1, 101)),
        (*range(1, 91), *range(500, 510)),
        tuple(range(700, 710)),
    ]
    assert column(outcomes(router, prompts, "round_robin"), 1) == [0, 90, 0]
    replica = router.replicas[0]
    total = replica.matched_tokens_total + replica.computed_tokens_total
    assert round(replica.matched_tokens_total / total, 4) == 0.4286


def test_equal_arrivals_are_served_in_the_order_of_the_log() -> None:
    a, b, c = (1, 2, 3, 4), (1, 2, 9, 9), (7, 7, 7, 7)
    router = CacheAwareRouter(2, 6, 1.0, 0.1, 1.0)
    rows = outcomes(router, [a, b, c], "cache_aware")
    assert (column(rows, 0), column(rows, 1)) == ([0, 1, 0], [0, 0, 0])
    assert sum(replica.tree.total_evicted_tokens for replica in router.replicas) == 4

    router = CacheAwareRouter(2, 6, 1.0, 0.1, 1.0)
    assert column(outcomes(router, [a, c, b], "cache_aware"), 1) == [0, 0, 2]
    assert sum(replica.tree.total_evicted_tokens for replica in router.replicas) == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_an_empty_prompt_is_refused_before_anything_changes(policy: str) -> None:
    router = CacheAwareRouter(2)
    router.route_request(tuple(range(2, 1002)), policy)
    before = state(router)
    with pytest.raises(ValueError, match=r".+"):
        router.route_request((), policy)
    assert state(router) == before


def test_an_empty_prompt_uses_no_turn_of_the_round() -> None:
    router = CacheAwareRouter(2)
    rows = outcomes(router, [(1,), (), (2,)], "round_robin")
    assert (rows[0][0], rows[2][0]) == (0, 1)


@pytest.mark.parametrize(
    ("prompt", "matched", "ttft_ms"),
    [(1, 0, 0.03), (3, 0, 0.07), (5, 0, 0.12), (7, 0, 0.17), (10, 10, 0.01)],
)
def test_rounding_is_pythons(prompt: int, matched: int, ttft_ms: float) -> None:
    router = CacheAwareRouter(1)
    tokens = tuple(range(prompt))
    if matched:
        router.route_request(tokens[:matched], "cache_aware")
    result = router.route_request(tokens, "cache_aware")
    assert result["matched_tokens"] == matched
    assert (result["ttft_ms"], result["exec_ms"]) == (ttft_ms, ttft_ms)


def test_an_unknown_policy_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="Unknown routing policy: bad"):
        CacheAwareRouter().route_request((1,), "bad")


def test_a_router_starts_with_four_idle_replicas() -> None:
    router = CacheAwareRouter()
    assert [replica.replica_id for replica in router.replicas] == [0, 1, 2, 3]
    assert state(router) == [(0.0, 0, 0, 0, 0, 0)] * 4
    assert {replica.tree.max_cached_tokens for replica in router.replicas} == {16384}
    assert router.prefill_ms_per_token == 0.025
    assert router.cached_lookup_ms_per_token == 0.0015
    assert router.queue_decay_ms_per_arrival == 12.0


def test_a_replica_counts_from_zero_around_the_tree_that_it_is_given() -> None:
    tree = RadixKvTree(8)
    replica = GpuReplica(replica_id=3, tree=tree)
    assert (replica.replica_id, replica.tree, replica.queue_wait_ms) == (3, tree, 0.0)
    totals = replica.routed_requests, replica.matched_tokens_total, replica.computed_tokens_total
    assert totals == (0, 0, 0)


def test_the_burst_is_16_requests_of_four_tenants_and_then_16_of_one() -> None:
    workload = build_burst_workload()
    assert {len(tokens) for tokens in workload} == {4096 + 256}
    tenants = [tokens[0] for tokens in workload]
    assert tenants == [20_000, 10_000, 40_000, 30_000] * 4 + [10_000] * 16
    assert len({tokens[4096:] for tokens in workload}) == 32


@pytest.mark.parametrize(
    ("policy", "hit_ratio", "mean_ms", "max_ms", "most_requests", "evicted"),
    [
        ("round_robin", 0.7353, 47.19, 108.8, 8, 3072),
        ("pure_affinity", 0.4412, 1217.24, 1625.6, 32, 69632),
        ("cache_aware", 0.8235, 32.34, 108.8, 20, 0),
    ],
)
def test_the_burst_comparison_gives_the_known_numbers(
    policy: str, hit_ratio: float, mean_ms: float, max_ms: float, most_requests: int, evicted: int
) -> None:
    report: dict[str, Any] = simulate_routing_comparison()
    result = report["policies"][policy]
    assert result["cache_hit_ratio"] == hit_ratio
    assert (result["mean_ttft_ms"], result["max_ttft_ms"]) == (mean_ms, max_ms)
    assert result["max_replica_requests"] == most_requests
    assert result["total_evicted_tokens"] == evicted
    assert sum(load["routed_requests"] for load in result["replica_loads"]) == 32


def test_pure_affinity_does_as_well_as_cache_aware_once_tenants_do_not_collide() -> None:
    starts = {10_000: 10_000, 20_000: 20_001, 30_000: 30_002, 40_000: 40_003}
    router = CacheAwareRouter(4, 9216, 0.025, 0.0015, 14.0)
    prompts = [
        (*range(starts[tokens[0]], starts[tokens[0]] + 4096), *tokens[4096:])
        for tokens in build_burst_workload()
    ]
    ttfts = column(outcomes(router, prompts, "pure_affinity"), 2)
    assert loads(router) == [20, 4, 4, 4]
    assert round(sum(ttfts) / 32, 2) == 32.34


def test_burst_equals_reference_to_the_last_digit() -> None:
    reference = user_reference()
    if reference is None:
        pytest.skip(ABSENT)
    assert build_burst_workload() == reference.build_burst_workload()
    assert simulate_routing_comparison() == reference.simulate_routing_comparison()


def test_reference_suite_passes_unchanged(tmp_path: Path) -> None:
    if not REFERENCE_SUITE.exists():
        pytest.skip(ABSENT)
    shutil.copyfile(REFERENCE_SUITE, tmp_path / "test_lab.py")
    (tmp_path / "lab.py").write_text(
        "from pipeline import (CacheAwareRouter, GpuReplica, RadixKvTree,\n"
        "    build_burst_workload, simulate_routing_comparison)\n"
    )
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_lab.py"]
    told = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "12 passed" in told.stdout
