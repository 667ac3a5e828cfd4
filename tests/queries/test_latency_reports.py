import polars as pl
from polars import col
from query_tables import Run, assert_same, ratio

SERVED = col("outcome") == "served"


def percentile(share: float) -> pl.Expr:
    return col("ttft_ms").quantile(share, interpolation="linear")


def test_ttft_describes_requests_that_have_one_and_counts_the_others(run: Run) -> None:
    expected = (
        run.frames["decisions"]
        .group_by("policy")
        .agg(
            requests=pl.len(),
            served=SERVED.sum(),
            missing=col("ttft_ms").is_null().sum(),
            mean_ttft_ms=col("ttft_ms").mean(),
            min_ttft_ms=col("ttft_ms").min(),
            p50_ttft_ms=percentile(0.5),
            p90_ttft_ms=percentile(0.9),
            p99_ttft_ms=percentile(0.99),
            max_ttft_ms=col("ttft_ms").max(),
            mean_queue_wait_ms=col("queue_wait_ms").mean(),
            mean_exec_ms=col("exec_ms").mean(),
        )
        .sort("policy")
    )
    assert_same(run.answer("ttft"), expected)


def test_policy_comparison_puts_every_headline_number_of_a_policy_in_one_row(run: Run) -> None:
    prompt = col("prompt_tokens").filter(SERVED).cast(pl.Int64).sum()

    def share(name: str) -> pl.Expr:
        return ratio(col(name).cast(pl.Int64).sum(), prompt)

    outcomes = (
        run.frames["decisions"]
        .group_by("policy")
        .agg(
            requests=pl.len(),
            served=SERVED.sum(),
            rejected=(~SERVED & (col("outcome") != "failed")).sum(),
            failed=(col("outcome") == "failed").sum(),
            cache_hit_ratio=share("matched_tokens"),
            cold_ratio=share("cold_tokens"),
            evicted_ratio=share("evicted_tokens_missed"),
            elsewhere_ratio=share("elsewhere_tokens"),
            recomputed_ratio=share("recomputed_tokens"),
            mean_ttft_ms=col("ttft_ms").mean(),
            p50_ttft_ms=percentile(0.5),
            p99_ttft_ms=percentile(0.99),
            max_ttft_ms=col("ttft_ms").max(),
        )
    )
    evicted = (
        run.frames["evictions"].group_by("policy").agg(col("evicted_tokens").cast(pl.Int64).sum())
    )
    loads = run.frames["replicas"].group_by("policy", "replica_id").agg(col("requests").sum())
    skew = loads.group_by("policy").agg(
        requests_max_over_mean=ratio(col("requests").max(), col("requests").mean()),
        idle_replicas=(col("requests") == 0).sum(),
    )
    expected = (
        outcomes.join(evicted, on="policy", how="left")
        .with_columns(col("evicted_tokens").fill_null(0))
        .join(skew, on="policy", how="left")
        .sort("policy")
    )
    assert_same(run.answer("policy_comparison"), expected)


def largest_miss_reason(row: dict[str, int]) -> str:
    reasons = {
        "cold": row["cold_tokens"],
        "evicted": row["evicted_tokens_missed"],
        "elsewhere": row["elsewhere_tokens"],
        "recomputed": row["recomputed_tokens"],
    }
    return max(reasons, key=reasons.__getitem__) if any(reasons.values()) else "none"


def test_slowest_requests_are_twenty_a_policy_and_equal_times_stand_in_trace_order(
    run: Run,
) -> None:
    rows = []
    served = run.frames["decisions"].filter(col("ttft_ms").is_not_null())
    for policy in sorted(served["policy"].unique()):
        mine = served.filter(col("policy") == policy).to_dicts()
        mine.sort(key=lambda row: (-row["ttft_ms"], row["seq"]))
        for position, row in enumerate(mine[:20], start=1):
            reason = largest_miss_reason(row)
            rows.append(row | {"position": position, "largest_miss_reason": reason})
    actual = run.answer("slowest_requests")
    assert_same(actual, pl.DataFrame(rows, schema=actual.schema))
