import polars as pl
from polars import col
from query_tables import Run, assert_same, ratio

SUMS = (
    "requests",
    "prompt_tokens",
    "matched_tokens",
    "computed_tokens",
)


def loads(run: Run) -> pl.DataFrame:
    """Count each replica's work from the decisions, which are finer than the windows."""
    fleet = run.frames["replicas"].select("policy", "replica_id").unique()
    served = run.frames["decisions"].filter(col("outcome") == "served")
    work = served.group_by("policy", "replica_id").agg(
        pl.len().alias("requests"), *(col(name).cast(pl.Int64).sum() for name in SUMS[1:])
    )
    lost = (
        run.frames["evictions"]
        .group_by("policy", "replica_id")
        .agg(col("evicted_tokens").cast(pl.Int64).sum())
    )
    places = ["policy", "replica_id"]
    counted = fleet.join(work, on=places, how="left").join(lost, on=places, how="left")
    return counted.with_columns(
        col(name).fill_null(0).cast(pl.Int64) for name in (*SUMS, "evicted_tokens")
    )


def test_replica_skew_compares_the_fullest_replica_with_the_mean(run: Run) -> None:
    idle = col("requests") == 0
    expected = (
        loads(run)
        .group_by("policy")
        .agg(
            replicas=pl.len(),
            idle_replicas=idle.sum(),
            idle_replica_ids=col("replica_id").filter(idle).sort().cast(pl.String).str.join(","),
            max_requests=col("requests").max(),
            mean_requests=col("requests").mean(),
            min_requests=col("requests").min(),
            requests_max_over_mean=ratio(col("requests").max(), col("requests").mean()),
            prompt_tokens_max_over_mean=ratio(
                col("prompt_tokens").max(), col("prompt_tokens").mean()
            ),
            computed_tokens_max_over_mean=ratio(
                col("computed_tokens").max(), col("computed_tokens").mean()
            ),
            fullest_replica_requests_ratio=ratio(col("requests").max(), col("requests").sum()),
        )
        .sort("policy")
    )
    assert_same(run.answer("replica_skew"), expected)


def test_replica_loads_adds_up_the_windows_and_ends_with_what_is_resident(run: Run) -> None:
    windows = run.frames["replicas"]
    last = windows["window_start"].max()
    at_the_end = windows.filter(col("window_start") == last).select(
        "policy", "replica_id", "resident_tokens"
    )
    queues = windows.group_by("policy", "replica_id").agg(col("max_queue_wait_ms").max())
    expected = (
        loads(run)
        .join(queues, on=["policy", "replica_id"])
        .join(at_the_end, on=["policy", "replica_id"])
        .with_columns(cache_hit_ratio=ratio(col("matched_tokens"), col("prompt_tokens")))
        .sort("policy", "replica_id")
    )
    actual = run.answer("replica_loads")
    assert_same(actual, expected.select(actual.columns))


def test_hit_ratio_over_time_has_every_window_of_every_policy(run: Run) -> None:
    matched = col("matched_tokens").cast(pl.Int64).sum()
    prompt = col("prompt_tokens").cast(pl.Int64).sum()
    expected = (
        run.frames["replicas"]
        .with_columns(col("window_start").dt.replace_time_zone(None))
        .group_by("policy", "window_start")
        .agg(
            requests=col("requests").sum(),
            prompt_tokens=prompt,
            cache_hit_ratio=ratio(matched, prompt),
            evicted_tokens=col("evicted_tokens").sum(),
            resident_tokens=col("resident_tokens").sum(),
            max_queue_wait_ms=col("max_queue_wait_ms").max(),
        )
        .sort("policy", "window_start")
    )
    assert_same(run.answer("hit_ratio_over_time"), expected)
