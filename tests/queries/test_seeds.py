import statistics
from typing import Any

import polars as pl
from polars import col
from query_tables import Run, assert_same, decision, ratio, replica

MEASURES = (
    "cache_hit_ratio",
    "mean_ttft_ms",
    "p99_ttft_ms",
    "evicted_tokens",
    "requests_max_over_mean",
)


def measured(run: Run) -> pl.DataFrame:
    """Return the five measures of each policy and seed."""
    keys = ["policy", "seed"]
    prompt = col("prompt_tokens").filter(col("outcome") == "served").cast(pl.Int64).sum()
    outcomes = (
        run.frames["seed_decisions"]
        .group_by(keys)
        .agg(
            cache_hit_ratio=ratio(col("matched_tokens").cast(pl.Int64).sum(), prompt),
            mean_ttft_ms=col("ttft_ms").mean(),
            p99_ttft_ms=col("ttft_ms").quantile(0.99, interpolation="linear"),
        )
    )
    loads = (
        run.frames["seed_replicas"]
        .group_by(*keys, "replica_id")
        .agg(col("requests", "evicted_tokens").cast(pl.Int64).sum())
        .group_by(keys)
        .agg(
            evicted_tokens=col("evicted_tokens").sum(),
            requests_max_over_mean=ratio(col("requests").max(), col("requests").mean()),
        )
    )
    return outcomes.join(loads, on=keys)


def spread(values: list[Any], name: str) -> dict[str, Any]:
    known = [value for value in values if value is not None]
    return {
        f"mean_{name}": statistics.fmean(known) if known else None,
        f"stddev_{name}": statistics.stdev(known) if len(known) > 1 else None,
        f"min_{name}": min(known, default=None),
        f"max_{name}": max(known, default=None),
    }


def test_seeds_tells_mean_and_spread_of_each_measure_over_the_seeds(run: Run) -> None:
    expected = []
    for (policy,), rows in measured(run).sort("policy").group_by("policy", maintain_order=True):
        row = {"policy": policy, "seeds": rows.height}
        for name in MEASURES:
            row |= spread(rows[name].to_list(), name)
        expected.append(row)
    actual = run.answer("seeds")
    assert_same(actual, pl.DataFrame(expected, schema=actual.schema))


def test_the_first_seed_alone_is_what_policy_comparison_shows(run: Run) -> None:
    rows = {
        name: run.frames[table].to_dicts()
        for name, table in (("decisions", "all_decisions"), ("replicas", "replicas"))
    }
    alone = Run(rows)
    seeds, comparison = alone.answer("seeds"), alone.answer("policy_comparison")
    assert seeds["seeds"].to_list() == [1] * comparison.height
    for name in MEASURES:
        assert seeds[f"mean_{name}"].to_list() == comparison[name].to_list()
        assert seeds[f"min_{name}"].to_list() == seeds[f"max_{name}"].to_list()
        assert seeds[f"stddev_{name}"].to_list() == [None] * comparison.height


def test_three_seeds_have_a_mean_a_standard_deviation_and_ends() -> None:
    def seed_rows(seed: int, ttft_ms: float, matched: int) -> dict[str, Any]:
        known = {"policy": "random", "prompt_tokens": 100, "matched_tokens": matched}
        return decision(0, ttft_ms=ttft_ms, **known) | {"seed": seed}

    windows = [
        replica(n, policy="random", requests=load, evicted_tokens=10 * load, seed=seed)
        for seed, loads in enumerate([[4, 0], [2, 2], [3, 1]])
        for n, load in enumerate(loads)
    ]
    tables = {
        "decisions": [seed_rows(0, 10.0, 50), decision(0, policy="a", ttft_ms=1.0)],
        "seed_decisions": [seed_rows(1, 20.0, 20), seed_rows(2, 33.0, 80)],
        "replicas": [row for row in windows if row["seed"] == 0],
        "seed_replicas": [row for row in windows if row["seed"] > 0],
    }
    alone, row = Run(tables).answer("seeds").to_dicts()
    assert (alone["policy"], alone["seeds"], alone["mean_mean_ttft_ms"]) == ("a", 1, 1.0)
    assert (row["policy"], row["seeds"]) == ("random", 3)
    ends = ("mean", "stddev", "min", "max")
    assert [row[f"{end}_cache_hit_ratio"] for end in ends] == [0.5, 0.3, 0.2, 0.8]
    assert [row[f"{end}_mean_ttft_ms"] for end in ends] == [21.0, 11.53, 10.0, 33.0]
    assert [row[f"{end}_p99_ttft_ms"] for end in ends] == [21.0, 11.53, 10.0, 33.0]
    assert [row[f"{end}_evicted_tokens"] for end in ends] == [40.0, 0.0, 40, 40]
    assert [row[f"{end}_requests_max_over_mean"] for end in ends] == [1.5, 0.5, 1.0, 2.0]


def test_a_seed_that_served_nothing_moves_no_mean_and_is_counted() -> None:
    lost = decision(0, prompt_tokens=100, outcome="failed") | {"seed": 1}
    tables = {"decisions": [decision(0, ttft_ms=8.0, prompt_tokens=100)], "seed_decisions": [lost]}
    [row] = Run(tables).answer("seeds").to_dicts()
    assert (row["seeds"], row["mean_mean_ttft_ms"], row["stddev_mean_ttft_ms"]) == (2, 8.0, None)
    assert (row["mean_evicted_tokens"], row["mean_requests_max_over_mean"]) == (0.0, None)
