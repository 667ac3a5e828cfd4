from typing import Any

import polars as pl
from polars import col
from query_tables import Run, assert_same, decision, eviction, ratio, replica

MINUTE, HOUR = 60_000.0, 3_600_000.0
LAST_MS = {"1 s": 1e3, "10 s": 1e4, "1 min": MINUTE, "10 min": 10 * MINUTE, "1 h": HOUR}
WAITS = [*LAST_MS, "later", "never"]
TOKENS, AGAIN = (
    col(name).cast(pl.Int64).sum() for name in ("evicted_tokens", "asked_again_tokens")
)


def policies(run: Run) -> pl.DataFrame:
    return run.frames["replicas"].select("policy").unique()


def for_room(run: Run) -> pl.DataFrame:
    return run.frames["evictions"].filter(cause="room")


def test_evictions_shows_what_left_each_replica_and_zeros_where_nothing_did(run: Run) -> None:
    again = col("asked_again_seq").is_not_null()
    lost = (
        for_room(run)
        .group_by("policy", "replica_id")
        .agg(
            evictions=pl.len(),
            evicted_tokens=TOKENS,
            median_age_ms=col("age_ms").median(),
            median_age_requests=col("age_requests").median(),
            asked_again=again.sum(),
            asked_again_ratio=again.mean(),
            asked_again_tokens=AGAIN,
        )
    )
    restarts = (
        run.frames["evictions"]
        .filter(cause="restart")
        .group_by("policy", "replica_id")
        .agg(restart_tokens=TOKENS)
    )
    counts = ("evictions", "evicted_tokens", "asked_again", "asked_again_tokens", "restart_tokens")
    expected = (
        run.frames["replicas"]
        .select("policy", "replica_id")
        .unique()
        .join(lost, on=["policy", "replica_id"], how="left")
        .join(restarts, on=["policy", "replica_id"], how="left")
        .with_columns(col(name).fill_null(0) for name in counts)
        .sort("policy", "replica_id")
    )
    assert_same(run.answer("evictions"), expected)


def test_evictions_adds_up_to_what_the_decisions_evicted(run: Run) -> None:
    restarts = run.frames["evictions"].filter(cause="restart")
    assert run.answer("evictions")["restart_tokens"].sum() == restarts["evicted_tokens"].sum()
    decided = run.frames["decisions"]["evicted_tokens"].sum()
    assert run.answer("evictions")["evicted_tokens"].sum() == decided
    for report in ("eviction_age", "evictions_regretted", "evictions_by_tenant"):
        assert run.answer(report)["evicted_tokens"].sum() == decided


def one_by_one(rows: pl.DataFrame, age: str, percent: int) -> Any:
    """Return the age that so many percent of the tokens, each one for itself, do not exceed."""
    ages = rows.select(col(age).repeat_by("evicted_tokens").explode()).to_series().sort()
    return ages[-(-len(ages) * percent // 100) - 1]


def test_eviction_age_asks_every_evicted_token_for_its_age(run: Run) -> None:
    expected = []
    for (policy,) in policies(run).sort("policy").iter_rows():
        lost = for_room(run).filter(policy=policy)
        row = {"policy": policy, "evictions": len(lost)}
        row |= {name: lost[name].sum() for name in ("evicted_tokens", "evicted_nodes")}
        for age in ("age_ms", "age_requests"):
            for percent in (10, 50, 90, 99):
                row[f"p{percent}_{age}"] = one_by_one(lost, age, percent) if len(lost) else None
        expected.append(row)
    actual = run.answer("eviction_age")
    assert_same(actual, pl.DataFrame(expected, schema=actual.schema))


def test_a_share_of_the_evicted_tokens_that_ends_with_a_leaf_is_as_old_as_that_leaf() -> None:
    rows = [
        eviction(9, evicted_tokens=10, age_ms=1.0, age_requests=1),
        eviction(9, evicted_tokens=40, age_ms=2.5, age_requests=2),
        eviction(9, evicted_tokens=40, age_ms=3.0, age_requests=5),
        eviction(9, evicted_tokens=9, age_ms=70.0, age_requests=6),
        eviction(9, evicted_tokens=1, age_ms=900.0, age_requests=9, evicted_nodes=4),
    ]
    tables = {"evictions": rows, "replicas": [replica(0), replica(0, policy="idle")]}
    [busy, idle] = Run(tables).answer("eviction_age").rows()
    assert busy == ("cache_aware", 5, 100, 8, 1.0, 2.5, 3.0, 70.0, 1, 2, 5, 6)
    assert idle == ("idle", 0, 0, 0, *[None] * 8)


def wait_of(asked_again_ms: float | None) -> str:
    if asked_again_ms is None:
        return "never"
    return next((name for name, last in LAST_MS.items() if asked_again_ms <= last), "later")


def test_evictions_regretted_has_every_wait_of_every_policy(run: Run) -> None:
    wait = pl.Enum(WAITS)
    lost = for_room(run).with_columns(
        asked_again_within=pl.Series(
            [wait_of(ms) for ms in for_room(run)["asked_again_ms"]], dtype=wait
        )
    )
    counted = lost.group_by("policy", "asked_again_within").agg(
        evictions=pl.len().cast(pl.Int64),
        evicted_tokens=TOKENS,
        asked_again_tokens=AGAIN,
        p50_asked_again_ms=col("asked_again_ms").median(),
    )
    whole = col("evicted_tokens").sum().over("policy")
    so_far = col("asked_again_tokens").cum_sum().over("policy")
    expected = (
        policies(run)
        .join(
            pl.DataFrame({"asked_again_within": WAITS}, schema={"asked_again_within": wait}),
            how="cross",
        )
        .join(counted, on=["policy", "asked_again_within"], how="left")
        .with_columns(
            col(name).fill_null(0) for name in ("evictions", "evicted_tokens", "asked_again_tokens")
        )
        .sort("policy", "asked_again_within")
        .with_columns(
            evicted_tokens_ratio=ratio(col("evicted_tokens"), whole),
            asked_again_tokens_ratio=ratio(col("asked_again_tokens"), whole),
            asked_again_so_far_ratio=ratio(so_far, whole),
        )
        .with_columns(col("asked_again_within").cast(pl.String))
    )
    actual = run.answer("evictions_regretted")
    assert_same(actual, expected.select(actual.columns))


def test_evictions_regretted_agrees_with_the_replicas_sums(run: Run) -> None:
    for policy in policies(run)["policy"]:
        waits = run.answer("evictions_regretted").filter(policy=policy)
        replicas = run.answer("evictions").filter(policy=policy)
        for name in ("evictions", "evicted_tokens", "asked_again_tokens"):
            assert waits[name].sum() == replicas[name].sum()
        never = waits.filter(asked_again_within="never")
        assert waits["evictions"].sum() - never["evictions"].sum() == replicas["asked_again"].sum()
        assert never["asked_again_tokens"].to_list() == [0]


def test_tokens_wanted_after_exactly_a_second_were_wanted_within_it() -> None:
    waits = [0.0, 1000.0, 1000.1, 10_000.0, MINUTE, 10 * MINUTE, HOUR, HOUR + 0.1, None]
    rows = [
        eviction(
            seq,
            evicted_tokens=10,
            asked_again_seq=None if wait is None else 99,
            asked_again_ms=wait,
            asked_again_tokens=0 if wait is None else 6,
        )
        for seq, wait in enumerate(waits)
    ]
    answer = Run({"evictions": rows, "replicas": [replica(0)]}).answer("evictions_regretted")
    assert answer["asked_again_within"].to_list() == WAITS
    assert answer["evictions"].to_list() == [2, 2, 1, 1, 1, 1, 1]
    assert answer["asked_again_tokens"].to_list() == [12, 12, 6, 6, 6, 6, 0]
    shares = [0.1333, 0.2667, 0.3333, 0.4, 0.4667, 0.5333, 0.5333]
    assert answer["asked_again_so_far_ratio"].to_list() == shares
    assert answer["evicted_tokens_ratio"].to_list() == [0.2222] * 2 + [0.1111] * 5
    medians = [500.0, 5500.05, MINUTE, 10 * MINUTE, HOUR, HOUR + 0.1, None]
    assert answer["p50_asked_again_ms"].to_list() == medians


def test_evictions_by_tenant_tells_who_needed_the_room_of_whom(run: Run) -> None:
    tenants = run.frames["all_decisions"].select("policy", "seq", "tenant")
    evicting = tenants.rename({"seq": "for_seq", "tenant": "evicting_tenant"})
    losing = tenants.rename({"seq": "last_used_seq", "tenant": "losing_tenant"})
    expected = (
        for_room(run)
        .join(evicting, on=["policy", "for_seq"], how="left")
        .join(losing, on=["policy", "last_used_seq"], how="left")
        .group_by("policy", "evicting_tenant", "losing_tenant")
        .agg(
            evictions=pl.len(),
            evicted_tokens=TOKENS,
            asked_again_tokens=AGAIN,
            asked_again_tokens_ratio=ratio(AGAIN, TOKENS),
        )
        .with_columns(whole=col("evicted_tokens").sum().over("policy"))
        .with_columns(evicted_tokens_ratio=ratio(col("evicted_tokens"), col("whole")))
        .sort("policy", -col("evicted_tokens"), "evicting_tenant", "losing_tenant", nulls_last=True)
    )
    actual = run.answer("evictions_by_tenant")
    assert_same(actual, expected.select(actual.columns))


def test_a_tenant_may_evict_its_own_prefixes_those_of_the_warm_up_and_those_of_nobody_known() -> (
    None
):
    decisions = [
        decision(0, tenant="early", is_warmup=True),
        decision(1, tenant="a"),
        decision(2, tenant="b"),
        decision(2, tenant="other", policy="round_robin"),
        decision(3),
    ]
    evictions = [
        eviction(2, last_used_seq=0, evicted_tokens=5, asked_again_tokens=5),
        eviction(2, last_used_seq=0, evicted_tokens=3, asked_again_tokens=1),
        eviction(2, last_used_seq=2, evicted_tokens=4),
        eviction(3, last_used_seq=1, evicted_tokens=2, asked_again_tokens=2),
        eviction(3, for_seq=1, last_used_seq=None, evicted_tokens=2),
        eviction(1, last_used_seq=0, evicted_tokens=50, is_warmup=True),
    ]
    answer = Run({"decisions": decisions, "evictions": evictions}).answer("evictions_by_tenant")
    assert answer.drop("policy").rows() == [
        ("b", "early", 2, 8, 0.5, 6, 0.75),
        ("b", "b", 1, 4, 0.25, 0, 0.0),
        ("a", None, 1, 2, 0.125, 0, 0.0),
        (None, "a", 1, 2, 0.125, 2, 1.0),
    ]
