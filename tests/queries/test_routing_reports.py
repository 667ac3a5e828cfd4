from collections import Counter
from itertools import combinations
from typing import Any

import polars as pl
from polars import col
from query_tables import START_US, Run, assert_same, decision, ratio
from random_runs import Shape, random_run

from pipeline.run_folder import TABLES

SERVED = col("outcome") == "served"
PROMPT, MATCHED = (col(name).cast(pl.Int64).sum() for name in ("prompt_tokens", "matched_tokens"))
FAILED = {"outcome": "failed"}


def only_row(run: Run, report: str) -> dict[str, Any]:
    [row] = run.answer(report).to_dicts()
    return row


def test_router_belief_compares_what_was_expected_with_what_was_there(run: Run) -> None:
    believed = col("believed_matched_tokens").cast(pl.Int64)
    error = believed - col("matched_tokens").cast(pl.Int64)
    expected = (
        run.frames["decisions"]
        .filter(SERVED & believed.is_not_null())
        .group_by("policy")
        .agg(
            requests=pl.len(),
            exact=(error == 0).sum(),
            exact_ratio=(error == 0).mean(),
            overestimates=(error > 0).sum(),
            overestimates_ratio=(error > 0).mean(),
            overestimated_tokens=error.clip(lower_bound=0).sum(),
            underestimates=(error < 0).sum(),
            underestimates_ratio=(error < 0).mean(),
            underestimated_tokens=-error.clip(upper_bound=0).sum(),
            mean_error_tokens=error.abs().mean(),
            believed_hit_ratio=ratio(believed.sum(), PROMPT),
            cache_hit_ratio=ratio(MATCHED, PROMPT),
        )
        .sort("policy")
    )
    assert_same(run.answer("router_belief"), expected)


def test_a_router_that_believes_too_much_and_too_little_is_right_in_sum_only() -> None:
    believed = [100, 60, 0, None]
    rows = [
        decision(seq, prompt_tokens=200, matched_tokens=matched, believed_matched_tokens=thought)
        for seq, (matched, thought) in enumerate(zip([40, 60, 60, 200], believed, strict=True))
    ]
    rows += [
        decision(4, policy="round_robin"),
        decision(5, policy="lost", **FAILED),
        decision(6, believed_matched_tokens=9, **FAILED),
    ]
    assert only_row(Run({"decisions": rows}), "router_belief") == {
        "policy": "cache_aware",
        "requests": 3,
        "exact": 1,
        "exact_ratio": 0.3333,
        "overestimates": 1,
        "overestimates_ratio": 0.3333,
        "overestimated_tokens": 60,
        "underestimates": 1,
        "underestimates_ratio": 0.3333,
        "underestimated_tokens": 60,
        "mean_error_tokens": 40.0,
        "believed_hit_ratio": 0.2667,
        "cache_hit_ratio": 0.2667,
    }


def test_what_was_believed_and_what_was_there_differ_by_the_estimates_errors(run: Run) -> None:
    looked_up = run.frames["decisions"].filter(col("believed_matched_tokens").is_not_null())
    sums = looked_up.select(col("believed_matched_tokens", "matched_tokens").cast(pl.Int64).sum())
    report = run.answer("router_belief").select(pl.exclude("policy").sum())
    over, under = report["overestimated_tokens"].sum(), report["underestimated_tokens"].sum()
    believed, matched = sums.row(0)
    assert believed - matched == over - under
    kinds = report["exact"] + report["overestimates"] + report["underestimates"]
    assert report["requests"].to_list() == kinds.to_list() == [looked_up.height]


def test_regret_adds_up_what_the_best_replicas_would_have_saved(run: Run) -> None:
    regret, ttft = col("regret_ms"), col("ttft_ms")
    expected = (
        run.frames["decisions"]
        .group_by("policy")
        .agg(
            requests=pl.len(),
            served=SERVED.sum(),
            regretted=(regret > 0).sum(),
            regretted_ratio=(regret > 0).mean(),
            sum_regret_ms=regret.sum(),
            mean_regret_ms=regret.mean(),
            p50_regret_ms=regret.quantile(0.5, interpolation="linear"),
            p99_regret_ms=regret.quantile(0.99, interpolation="linear"),
            max_regret_ms=regret.max(),
            mean_ttft_ms=ttft.mean(),
            regret_of_ttft_ratio=ratio(regret.sum(), ttft.sum()),
        )
        .sort("policy")
    )
    assert_same(run.answer("regret"), expected)


def test_a_regret_of_the_smallest_unit_is_a_regret() -> None:
    regrets = [0.0, 0.0001, 2.5, 7.5]
    rows = [decision(n, regret_ms=regret, ttft_ms=10.0) for n, regret in enumerate(regrets)]
    run = Run({"decisions": [*rows, decision(4, **FAILED), decision(5, outcome="rejected_empty")]})
    row = only_row(run, "regret")
    assert (row["requests"], row["served"], row["regretted"]) == (6, 4, 3)
    assert (row["regretted_ratio"], row["sum_regret_ms"]) == (0.75, 10.0)
    assert (row["mean_regret_ms"], row["p50_regret_ms"], row["max_regret_ms"]) == (2.5, 1.25, 7.5)
    assert (row["mean_ttft_ms"], row["regret_of_ttft_ratio"]) == (10.0, 0.25)


def test_requests_that_never_wait_have_no_share_of_regret() -> None:
    row = only_row(Run({"decisions": [decision(0, regret_ms=0.0, ttft_ms=0.0)]}), "regret")
    assert (row["sum_regret_ms"], row["mean_ttft_ms"], row["regret_of_ttft_ratio"]) == (0, 0, None)


def test_decided_by_splits_the_served_requests_by_rule(run: Run) -> None:
    expected = (
        run.frames["decisions"]
        .filter(SERVED)
        .group_by("policy", "decided_by")
        .agg(
            requests=pl.len(),
            cache_hit_ratio=ratio(MATCHED, PROMPT),
            mean_ttft_ms=col("ttft_ms").mean(),
        )
        .with_columns(requests_ratio=col("requests") / col("requests").sum().over("policy"))
        .sort("policy", -col("requests").cast(pl.Int64), "decided_by")
    )
    actual = run.answer("decided_by")
    assert_same(actual, expected.select(actual.columns))
    served = run.frames["decisions"].filter(SERVED)
    assert actual["requests"].sum() == served.height


def test_rules_that_decided_equally_often_stand_by_name_and_an_unnamed_one_last() -> None:
    names = ["least load", None, "best match", "best match", None, "least load", "turn"]
    rows = [decision(seq, decided_by=name) for seq, name in enumerate(names)]
    answer = Run({"decisions": [*rows, decision(7, **FAILED)]}).answer("decided_by")
    assert answer["decided_by"].to_list() == ["best match", "least load", None, "turn"]
    assert answer["requests_ratio"].to_list() == [0.2857, 0.2857, 0.2857, 0.1429]
    assert answer["mean_ttft_ms"].to_list() == [None] * 4


def mean(rows: list[dict[str, Any]], name: str) -> float | None:
    return sum(row[name] for row in rows) / len(rows) if rows else None


def compared(mine: dict[int, dict[str, Any]], other: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Compare two policies request by request."""
    both = sorted(mine.keys() & other.keys())
    apart = [seq for seq in both if mine[seq]["replica_id"] != other[seq]["replica_id"]]
    ours, theirs = ([rows[seq] for seq in apart] for rows in (mine, other))
    tenants = Counter(row["tenant"] for row in ours)
    order = sorted(tenants, key=lambda name: (-tenants[name], name is None, name or ""))
    most = order[0] if order else None
    waits = [(mine[seq]["ttft_ms"], other[seq]["ttft_ms"]) for seq in apart]
    return {
        "requests": len(both),
        "disagreements": len(apart),
        "disagreements_ratio": len(apart) / len(both) if both else None,
        "first_seq": apart[0] if apart else None,
        "first_arrival": ours[0]["arrival"].replace(tzinfo=None) if apart else None,
        "mean_ttft_ms": mean(ours, "ttft_ms"),
        "mean_other_ttft_ms": mean(theirs, "ttft_ms"),
        "mean_matched_tokens": mean(ours, "matched_tokens"),
        "mean_other_matched_tokens": mean(theirs, "matched_tokens"),
        "faster_ratio": sum(a < b for a, b in waits) / len(apart) if apart else None,
        "slower_ratio": sum(a > b for a, b in waits) / len(apart) if apart else None,
        "most_affected_tenant": most,
        "tenant_disagreements": tenants[most] if apart else 0,
    }


def test_policy_disagreements_compares_every_pair_request_by_request(run: Run) -> None:
    rows = run.frames["decisions"]
    served = {
        policy: {row["seq"]: row for row in rows.filter(SERVED, policy=policy).to_dicts()}
        for policy in sorted(rows["policy"].unique())
    }
    expected = [
        {"policy": one, "other_policy": other} | compared(served[one], served[other])
        for one, other in combinations(served, 2)
    ]
    actual = run.answer("policy_disagreements")
    assert_same(actual, pl.DataFrame(expected, schema=actual.schema))


def test_a_disagreement_tells_where_it_began_whom_it_met_and_who_was_faster() -> None:
    def row(policy: str, seq: int, replica_id: int, ttft_ms: float, tenant: str | None) -> Any:
        tokens = {"prompt_tokens": 100, "matched_tokens": 30 if policy == "a" else 10 * seq}
        where = {"replica_id": replica_id, "tenant": tenant, "ttft_ms": ttft_ms}
        return decision(seq, policy=policy, **where, **tokens)

    rows = [
        *(row("a", seq, 0, 5.0, name) for seq, name in enumerate(["x", None, "y", "y", None, "x"])),
        row("b", 0, 0, 9.0, "x"),
        row("b", 1, 1, 5.0, None),
        row("b", 2, 1, 6.25, "y"),
        row("b", 3, 2, 3.0, "y"),
        row("b", 4, 1, 10.75, None),
        decision(5, policy="b", tenant="x", **FAILED),
        decision(0, policy="c", **FAILED),
    ]
    answer = Run({"decisions": rows}).answer("policy_disagreements")
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    assert answer.select("policy", "other_policy").rows() == pairs
    first = answer.row(0, named=True)
    assert (first["requests"], first["disagreements"], first["disagreements_ratio"]) == (5, 4, 0.8)
    assert first["first_seq"] == 1
    assert answer["first_arrival"].dt.epoch("us")[0] == START_US + 1
    assert (first["mean_ttft_ms"], first["mean_other_ttft_ms"]) == (5.0, 6.25)
    assert (first["mean_matched_tokens"], first["mean_other_matched_tokens"]) == (30.0, 25.0)
    assert (first["faster_ratio"], first["slower_ratio"]) == (0.5, 0.25)
    assert (first["most_affected_tenant"], first["tenant_disagreements"]) == ("y", 2)
    assert answer.rows()[1][2:] == (0, 0, *[None] * 10, 0)


def test_a_tenant_that_is_not_known_may_be_the_most_affected() -> None:
    tenants = ["x", None, None]
    rows = [
        decision(seq, policy=policy, tenant=tenant, replica_id=replica_id)
        for seq, tenant in enumerate(tenants)
        for policy, replica_id in (("a", 0), ("b", 1))
    ]
    row = only_row(Run({"decisions": rows}), "policy_disagreements")
    assert (row["most_affected_tenant"], row["tenant_disagreements"]) == (None, 2)


def test_a_policy_on_its_own_is_told_of_as_beside_others() -> None:
    rows = random_run(11, Shape(60, failed_ratio=0.1))
    whole = Run(rows)
    alone = Run({name: [r for r in rows[name] if r["policy"] == "cache_aware"] for name in TABLES})
    for report in ("router_belief", "regret", "decided_by", "hot_spots"):
        beside = whole.answer(report).filter(policy="cache_aware")
        assert alone.answer(report).rows() == beside.rows()
    assert alone.answer("policy_disagreements").height == 0
