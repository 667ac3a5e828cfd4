import numpy as np
import pytest
from query_tables import START_US, Run, decision, replica


def one_row(run: Run, query: str) -> dict[str, object]:
    return run.answer(query).row(0, named=True)


def served_with(ttfts: list[float]) -> list[dict[str, object]]:
    return [decision(seq, ttft_ms=ttft) for seq, ttft in enumerate(ttfts)]


def refused(seq: int) -> dict[str, object]:
    return decision(seq, outcome="rejected_too_long", prompt_tokens=9_000)


def test_a_missing_time_is_not_zero() -> None:
    rows = [*served_with([10.0, 20.0, 30.0]), refused(3), refused(4)]
    row = one_row(Run({"decisions": rows}), "ttft")
    assert (row["requests"], row["served"], row["missing"]) == (5, 3, 2)
    assert (row["mean_ttft_ms"], row["p50_ttft_ms"], row["min_ttft_ms"]) == (20.0, 20.0, 10.0)
    assert (row["p90_ttft_ms"], row["max_ttft_ms"]) == (28.0, 30.0)


def test_percentiles_are_linear_between_neighbours() -> None:
    four = one_row(Run({"decisions": served_with([10.0, 20.0, 30.0, 40.0])}), "ttft")
    assert [four[f"p{p}_ttft_ms"] for p in (50, 90, 99)] == [25.0, 37.0, 39.7]
    hundred = one_row(Run({"decisions": served_with([float(n) for n in range(1, 101)])}), "ttft")
    assert [hundred[f"p{p}_ttft_ms"] for p in (50, 99)] == [50.5, 99.01]


def test_three_hit_ratios_of_one_trace_have_three_names() -> None:
    rows = [
        decision(0, prompt_tokens=100),
        decision(1, prompt_tokens=100, matched_tokens=90),
        decision(2, prompt_tokens=10),
        refused(3),
    ]
    row = one_row(Run({"decisions": rows}), "cache_hit_ratio")
    assert row["cache_hit_ratio"] == 0.4286
    assert row["mean_request_hit_ratio"] == 0.3
    assert row["requests_with_hit_ratio"] == 0.3333
    assert row["unlimited_hit_ratio"] == 0.4286
    assert (row["prompt_tokens"], row["rejected"]) == (210, 1)


def test_a_tenant_without_tokens_has_no_ratio_and_moves_no_average() -> None:
    for empty in (decision(1, tenant="t2"), decision(1, tenant="t2", outcome="rejected_empty")):
        rows = [decision(0, tenant="t1", prompt_tokens=100, matched_tokens=90), empty]
        run = Run({"decisions": rows})
        tenants = run.answer("by_tenant")
        assert tenants["tenant"].to_list() == ["t1", "t2"]
        assert tenants["cache_hit_ratio"].to_list() == [0.9, None]
        assert tenants["cold_ratio"].to_list() == [0.1, None]
        assert tenants["prompt_tokens_ratio"].to_list() == [1.0, 0.0]
        assert tenants["cache_hit_ratio"].mean() == 0.9
        overall = one_row(run, "cache_hit_ratio")
        assert overall["cache_hit_ratio"] == overall["mean_request_hit_ratio"] == 0.9
        assert overall["requests_with_hit_ratio"] == 1.0


def test_a_fleet_that_sends_everything_to_one_replica_is_named() -> None:
    rows = [replica(n, requests=load) for n, load in enumerate([12, 0, 0, 0])]
    row = one_row(Run({"replicas": rows}), "replica_skew")
    assert (row["replicas"], row["requests_max_over_mean"]) == (4, 4.0)
    assert (row["idle_replicas"], row["idle_replica_ids"]) == (3, "1,2,3")
    assert row["fullest_replica_requests_ratio"] == 1.0
    assert row["prompt_tokens_max_over_mean"] is None


def test_idle_replicas_stand_in_the_order_of_numbers_not_of_text() -> None:
    rows = [replica(n, requests=int(n == 5)) for n in range(11)]
    answer = one_row(Run({"replicas": rows}), "replica_skew")
    assert answer["idle_replica_ids"] == "0,1,2,3,4,6,7,8,9,10"


def test_a_replica_that_idles_in_one_window_only_is_not_idle() -> None:
    later = START_US + 1_000_000
    rows = [replica(0, requests=1), replica(0, window_start=later)]
    row = one_row(Run({"replicas": rows}), "replica_skew")
    assert (row["replicas"], row["idle_replicas"], row["idle_replica_ids"]) == (1, 0, "")


def test_equal_miss_reasons_are_told_in_the_order_cold_evicted_elsewhere_recomputed() -> None:
    parts = [(0, 0, 0, 0), (5, 5, 5, 5), (1, 5, 5, 5), (1, 2, 5, 5), (1, 2, 5, 6)]
    rows = [
        decision(
            seq,
            prompt_tokens=100,
            matched_tokens=100 - sum(part),
            cold_tokens=part[0],
            evicted_tokens_missed=part[1],
            elsewhere_tokens=part[2],
            recomputed_tokens=part[3],
            ttft_ms=7.0,
        )
        for seq, part in enumerate(parts)
    ]
    answer = Run({"decisions": rows}).answer("slowest_requests")
    reasons = ["none", "cold", "evicted", "elsewhere", "recomputed"]
    assert answer["largest_miss_reason"].to_list() == reasons


@pytest.mark.parametrize(
    ("query", "column", "mean"),
    [
        ("ttft", "mean_ttft_ms", 0.13),
        ("ttft", "mean_queue_wait_ms", 0.13),
        ("ttft", "mean_exec_ms", 0.13),
        ("policy_comparison", "mean_ttft_ms", 0.13),
        ("by_tenant", "mean_ttft_ms", 0.13),
        ("cache_hit_ratio", "mean_request_hit_ratio", 0.4063),
    ],
)
def test_a_mean_between_two_last_digits_is_rounded_up_in_any_order_of_rows(
    query: str, column: str, mean: float
) -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):  # 0.125 ms and 0.40625, which floats hold exactly and sums of floats miss
        rows = []
        for seq, n in enumerate(rng.permutation([0, 1] * 500).tolist()):
            time = 0.12 + n / 100
            times = {"ttft_ms": time, "queue_wait_ms": time, "exec_ms": time}
            rows.append(decision(seq, prompt_tokens=10_000, matched_tokens=4062 + n, **times))
        assert one_row(Run({"decisions": rows}), query)[column] == mean


def test_a_policy_without_rows_of_replicas_is_still_compared() -> None:
    row = one_row(Run({"decisions": served_with([10.0])}), "policy_comparison")
    assert (row["requests"], row["mean_ttft_ms"]) == (1, 10.0)
    assert (row["requests_max_over_mean"], row["idle_replicas"]) == (None, None)
