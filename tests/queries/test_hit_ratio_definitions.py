import math

import polars as pl
from query_tables import Row, Run, decision

from pipeline.report import render


def ratio_of(run: Run, definition: str) -> float | None:
    answer = run.answer("hit_ratio_definitions").filter(definition=definition)
    [share] = answer["hit_ratio"].to_list()
    return share


def sums(rows: list[Row], block: int) -> dict[str, tuple[float, int]]:
    """Return numerator and denominator of each definition, request by request."""
    served = [row for row in rows if row["outcome"] == "served"]
    counted = [row for row in served if not row["is_warmup"]]
    prompt = sum(row["prompt_tokens"] for row in counted)
    asked = [row for row in counted if row["prompt_tokens"]]
    shares = [row["matched_tokens"] / row["prompt_tokens"] for row in asked]
    capped = [min(row["matched_tokens"], row["prompt_tokens"] - 1) for row in asked]
    blocks = [
        [math.ceil(row[name] / block) for row in counted]
        for name in ("matched_tokens", "prompt_tokens")
    ]
    return {
        "tokens_after_warmup": (sum(row["matched_tokens"] for row in counted), prompt),
        "tokens_whole_run": (
            sum(row["matched_tokens"] for row in served),
            sum(row["prompt_tokens"] for row in served),
        ),
        "request_mean": (math.fsum(shares), len(asked)),
        "requests_with_hit": (sum(share > 0 for share in shares), len(asked)),
        "whole_blocks": (sum(blocks[0]), sum(blocks[1])),
        "tokens_but_the_last": (sum(capped), prompt),
        "unlimited_cache": (prompt - sum(row["cold_tokens"] for row in counted), prompt),
    }


def test_every_definition_is_its_numerator_over_its_denominator(run: Run) -> None:
    answer = run.answer("hit_ratio_definitions")
    [block] = run.frames["settings"]["block_tokens"]
    rows = run.frames["all_decisions"]
    assert answer["policy"].unique().sort().to_list() == sorted(rows["policy"].unique())
    for policy in rows["policy"].unique():
        expected = sums(rows.filter(policy=policy).to_dicts(), block)
        mine = answer.filter(policy=policy)
        assert mine["definition"].to_list() == list(expected)
        assert mine["is_headline"].to_list() == [True, *[False] * 6]
        for row in mine.to_dicts():
            above, below = expected[row["definition"]]
            assert abs(float(row["numerator"]) - above) <= 0.5e-4 + 1e-9 * below
            assert row["denominator"] == below
            assert (row["hit_ratio"] is None) == (below == 0)
            if below:
                assert abs(row["hit_ratio"] - above / below) <= 0.5e-4 + 1e-9


def test_definitions_that_other_reports_have_too_are_equal_there(run: Run) -> None:
    same = {
        "tokens_after_warmup": "cache_hit_ratio",
        "request_mean": "mean_request_hit_ratio",
        "requests_with_hit": "requests_with_hit_ratio",
        "unlimited_cache": "unlimited_hit_ratio",
    }
    answer = run.answer("hit_ratio_definitions")
    for row in run.answer("cache_hit_ratio").to_dicts():
        for definition, column in same.items():
            found = answer.filter(policy=row["policy"], definition=definition)
            assert found["hit_ratio"].to_list() == [row[column]]


def test_no_definition_by_tokens_is_above_the_unlimited_cache(run: Run) -> None:
    for (_,), answer in run.answer("hit_ratio_definitions").group_by("policy"):
        of = {row["definition"]: row["hit_ratio"] for row in answer.to_dicts()}
        if of["unlimited_cache"] is not None:
            assert of["tokens_but_the_last"] <= of["tokens_after_warmup"] <= of["unlimited_cache"]


def test_seven_definitions_of_one_small_run_have_seven_values() -> None:
    rows = [
        decision(0, prompt_tokens=40, is_warmup=True),
        decision(1, prompt_tokens=100, matched_tokens=32, cold_tokens=60),
        decision(2, prompt_tokens=32, matched_tokens=32, cold_tokens=0),
        decision(3, prompt_tokens=8, cold_tokens=8),
        decision(4, prompt_tokens=9_000, outcome="rejected_pinned"),
        decision(5, outcome="rejected_empty"),
    ]
    answer = Run({"decisions": rows}, block_tokens=16).answer("hit_ratio_definitions")
    numbers = answer.select(
        "definition", pl.col("numerator").cast(float), "denominator", "hit_ratio"
    )
    assert numbers.rows() == [
        ("tokens_after_warmup", 64, 140, 0.4571),
        ("tokens_whole_run", 64, 180, 0.3556),
        ("request_mean", 1.32, 3, 0.44),
        ("requests_with_hit", 2, 3, 0.6667),
        ("whole_blocks", 4, 10, 0.4),
        ("tokens_but_the_last", 63, 140, 0.45),
        ("unlimited_cache", 72, 140, 0.5143),
    ]


def test_the_headline_is_marked_as_sql_and_json_write_truth() -> None:
    run = Run({"decisions": [decision(0, prompt_tokens=4)]})
    marks = run.answer("hit_ratio_definitions").select("is_headline").to_arrow()
    printed = {form: b"".join(render(marks, form)).decode().split() for form in ("csv", "table")}
    assert printed["csv"] == ["is_headline", "true", *["false"] * 6]
    assert printed["table"] == ["is_headline", "-" * len("is_headline"), "true", *["false"] * 6]
    assert b'{"is_headline": true}' in b"".join(render(marks, "json"))


def test_a_partial_block_that_was_kept_and_hit_is_a_hit_block() -> None:
    rows = [decision(0, prompt_tokens=20, matched_tokens=20)]
    assert ratio_of(Run({"decisions": rows}, block_tokens=16), "whole_blocks") == 1.0
    assert ratio_of(Run({"decisions": rows}, block_tokens=16), "tokens_but_the_last") == 0.95


def test_a_run_that_is_all_warm_up_has_one_ratio_only() -> None:
    rows = [decision(0, prompt_tokens=10, matched_tokens=5, is_warmup=True)]
    answer = Run({"decisions": rows}).answer("hit_ratio_definitions")
    assert answer["hit_ratio"].to_list() == [None, 0.5, *[None] * 5]
    assert answer["denominator"].to_list() == [0, 10, *[0] * 5]
