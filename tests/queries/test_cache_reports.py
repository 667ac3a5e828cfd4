import polars as pl
import pytest
from polars import col
from query_tables import Run, assert_same, ratio

SERVED = col("outcome") == "served"
PROMPT = col("prompt_tokens").filter(SERVED).cast(pl.Int64).sum()
MATCHED, COMPUTED, COLD, EVICTED, ELSEWHERE, RECOMPUTED = (
    col(name).cast(pl.Int64).sum()
    for name in (
        "matched_tokens",
        "computed_tokens",
        "cold_tokens",
        "evicted_tokens_missed",
        "elsewhere_tokens",
        "recomputed_tokens",
    )
)


def test_cache_hit_ratio_weighs_by_tokens_and_shows_the_other_ratios_beside_it(run: Run) -> None:
    asked = SERVED & (col("prompt_tokens") > 0)
    hit_ratio = (col("matched_tokens") / col("prompt_tokens")).filter(asked)
    expected = (
        run.frames["decisions"]
        .group_by("policy")
        .agg(
            requests=pl.len(),
            served=SERVED.sum(),
            rejected=(~SERVED).sum(),
            prompt_tokens=PROMPT,
            matched_tokens=MATCHED,
            cache_hit_ratio=ratio(MATCHED, PROMPT),
            mean_request_hit_ratio=hit_ratio.mean(),
            requests_with_hit_ratio=(hit_ratio > 0).mean(),
            unlimited_hit_ratio=ratio(PROMPT - COLD, PROMPT),
        )
        .sort("policy")
    )
    assert_same(run.answer("cache_hit_ratio"), expected)


def test_miss_reasons_tell_the_tokens_the_shares_and_the_requests_of_each_reason(run: Run) -> None:
    expected = (
        run.frames["decisions"]
        .group_by("policy")
        .agg(
            served=SERVED.sum(),
            prompt_tokens=PROMPT,
            computed_tokens=COMPUTED,
            cold_tokens=COLD,
            evicted_tokens_missed=EVICTED,
            elsewhere_tokens=ELSEWHERE,
            recomputed_tokens=RECOMPUTED,
            computed_ratio=ratio(COMPUTED, PROMPT),
            cold_ratio=ratio(COLD, PROMPT),
            evicted_ratio=ratio(EVICTED, PROMPT),
            elsewhere_ratio=ratio(ELSEWHERE, PROMPT),
            recomputed_ratio=ratio(RECOMPUTED, PROMPT),
            cold_requests=(col("cold_tokens") > 0).sum(),
            evicted_requests=(col("evicted_tokens_missed") > 0).sum(),
            elsewhere_requests=(col("elsewhere_tokens") > 0).sum(),
            recomputed_requests=(col("recomputed_tokens") > 0).sum(),
        )
        .sort("policy")
    )
    assert_same(run.answer("miss_reasons"), expected)


def test_by_tenant_ranks_tenants_by_prompt_tokens_and_keeps_requests_without_one(run: Run) -> None:
    expected = (
        run.frames["decisions"]
        .group_by("policy", "tenant")
        .agg(
            requests=pl.len(),
            rejected=(~SERVED).sum(),
            prompt_tokens=PROMPT,
            matched=MATCHED,
            cache_hit_ratio=ratio(MATCHED, PROMPT),
            mean_ttft_ms=col("ttft_ms").mean(),
            p99_ttft_ms=col("ttft_ms").quantile(0.99, interpolation="linear"),
            cold_ratio=ratio(COLD, PROMPT),
            evicted_ratio=ratio(EVICTED, PROMPT),
            elsewhere_ratio=ratio(ELSEWHERE, PROMPT),
            recomputed_ratio=ratio(RECOMPUTED, PROMPT),
        )
        .with_columns(all_tokens=col("prompt_tokens").sum().over("policy"))
        .with_columns(prompt_tokens_ratio=ratio(col("prompt_tokens"), col("all_tokens")))
        .sort("policy", -col("prompt_tokens"), "tenant", nulls_last=True)
    )
    actual = run.answer("by_tenant")
    assert_same(actual, expected.select(actual.columns))


@pytest.mark.parametrize("report", ["policy_comparison", "by_tenant", "miss_reasons"])
def test_hits_and_the_four_miss_reasons_add_up_to_the_whole_prompt(run: Run, report: str) -> None:
    answer = run.answer(report)
    hit = 1 - col("computed_ratio") if report == "miss_reasons" else col("cache_hit_ratio")
    reasons = ("cold_ratio", "evicted_ratio", "elsewhere_ratio", "recomputed_ratio")
    whole = answer.select(sum((col(name) for name in reasons), start=hit))
    for share in whole.to_series().drop_nulls():
        assert share == pytest.approx(1, abs=5 * 0.00005 + 1e-9)


def test_no_policy_hits_more_than_an_unlimited_cache_and_that_is_the_same_for_all(run: Run) -> None:
    answer = run.answer("cache_hit_ratio").drop_nulls()
    assert (answer["cache_hit_ratio"] <= answer["unlimited_hit_ratio"]).all()
    if "failed" not in run.frames["decisions"]["outcome"]:  # else they serve other requests
        assert answer["unlimited_hit_ratio"].n_unique() <= 1
