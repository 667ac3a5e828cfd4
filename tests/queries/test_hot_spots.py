from typing import Any

import polars as pl
import pytest
from query_tables import Row, Run, assert_same, decision, replica

FAILED = {"outcome": "failed"}


def fullest(loads: dict[int, int]) -> tuple[int | None, int]:
    """Return the replica with most, the lowest of equals, and how much that is."""
    if not any(loads.values()):
        return None, 0
    best = max(loads, key=lambda replica_id: (loads[replica_id], -replica_id))
    return best, loads[best]


def longest_run(rows: list[Row]) -> tuple[int | None, int, int | None]:
    """Return replica, length and first request of the longest run, walking through the trace."""
    best, current = (None, 0, None), (None, 0, None)
    for row in rows:
        same = row["replica_id"] == current[0]
        current = (current[0], current[1] + 1, current[2]) if same else (None, 1, row["seq"])
        current = (row["replica_id"], *current[1:])
        best = current if current[1] > best[1] else best
    return best


def found(
    n: int, cold: tuple[Any, int, int], hot: list[tuple[str, Any, int, int]], idle: int
) -> str:
    """Say what is wrong of `n` replicas; cold and hot: replica, most, of how many."""
    limit = min(2 / n, 0.9)
    texts = []
    if n > 1 and cold[2] >= 8 and cold[1] / cold[2] > limit:
        texts.append("cold pile-up: replica {} got {} of {} cold requests".format(*cold))
    requests = hot[1][3]
    for what, where, most, whole in hot:
        if n > 1 and requests >= 8 and whole and most / whole > limit:
            share = f"{most / whole * 100:.1f} % of {what} of {n} replicas"
            texts.append(f"hot spot: replica {where} got {share}")
            break
    if texts and idle:
        texts.append(f"{idle} of {n} replicas idle")
    return "; ".join(texts)


def expected_row(policy: str, fleet: list[int], rows: list[Row]) -> Row:
    counts, tokens, cold = (dict.fromkeys(fleet, 0) for _ in range(3))
    for row in rows:
        counts[row["replica_id"]] += 1
        tokens[row["replica_id"]] += row["prompt_tokens"]
        cold[row["replica_id"]] += row["best_matched_tokens"] == 0
    idle = [n for n in fleet if counts[n] == 0]
    (busiest, most), (largest, most_tokens), (coldest, most_cold) = map(
        fullest, (counts, tokens, cold)
    )
    asked, colds = sum(tokens.values()), sum(cold.values())
    hot = [
        ("prompt tokens", largest, most_tokens, asked),
        ("requests", busiest, most, len(rows)),
    ]
    where, length, first = longest_run(rows)
    return {
        "policy": policy,
        "replicas": len(fleet),
        "idle_replicas": len(idle),
        "idle_replica_ids": ",".join(map(str, idle)),
        "requests": len(rows),
        "fullest_replica_id": busiest,
        "fullest_requests_ratio": most / len(rows) if rows else None,
        "requests_max_over_mean": most * len(fleet) / len(rows) if rows else None,
        "most_tokens_replica_id": largest,
        "most_tokens_ratio": most_tokens / asked if asked else None,
        "longest_run_replica_id": where,
        "longest_run_requests": length,
        "longest_run_first_seq": first,
        "cold_requests": colds,
        "most_cold_replica_id": coldest,
        "most_cold_requests": most_cold,
        "most_cold_ratio": most_cold / colds if colds else None,
        "finding": found(len(fleet), (coldest, most_cold, colds), hot, len(idle)),
    }


def test_hot_spots_counts_replica_by_replica_and_request_by_request(run: Run) -> None:
    expected = []
    fleets = run.frames["replicas"].group_by("policy").agg(pl.col("replica_id").unique().sort())
    for policy, fleet in fleets.sort("policy").iter_rows():
        served = run.frames["decisions"].filter(policy=policy, outcome="served")
        expected.append(expected_row(policy, fleet, served.sort("seq").to_dicts()))
    actual = run.answer("hot_spots")
    assert_same(actual, pl.DataFrame(expected, schema=actual.schema))


def told(
    replicas: list[int], fleet: int = 4, prompts: list[int] | None = None, best: int = 0
) -> Row:
    """Return the report of requests that went to these replicas, of a fleet of so many."""
    tokens = prompts or [100] * len(replicas)
    rows = [
        decision(seq, replica_id=where, prompt_tokens=prompt, best_matched_tokens=best)
        for seq, (where, prompt) in enumerate(zip(replicas, tokens, strict=True))
    ]
    tables = {"decisions": rows, "replicas": [replica(n) for n in range(fleet)]}
    [row] = Run(tables).answer("hot_spots").to_dicts()
    return row


def test_a_cold_fleet_whose_ties_go_to_replica_0_is_a_pile_up() -> None:
    row = told([0] * 12)
    assert row == {
        "policy": "cache_aware",
        "replicas": 4,
        "idle_replicas": 3,
        "idle_replica_ids": "1,2,3",
        "requests": 12,
        "fullest_replica_id": 0,
        "fullest_requests_ratio": 1.0,
        "requests_max_over_mean": 4.0,
        "most_tokens_replica_id": 0,
        "most_tokens_ratio": 1.0,
        "longest_run_replica_id": 0,
        "longest_run_requests": 12,
        "longest_run_first_seq": 0,
        "cold_requests": 12,
        "most_cold_replica_id": 0,
        "most_cold_requests": 12,
        "most_cold_ratio": 1.0,
        "finding": "cold pile-up: replica 0 got 12 of 12 cold requests;"
        " hot spot: replica 0 got 100.0 % of prompt tokens of 4 replicas; 3 of 4 replicas idle",
    }


def test_fewer_than_8_cold_requests_are_no_pile_up() -> None:
    known = [decision(9 + n, replica_id=n % 4, best_matched_tokens=1) for n in range(20)]
    for cold in (7, 8):
        rows = [decision(n, replica_id=2, best_matched_tokens=0) for n in range(cold)]
        tables = {"decisions": [*rows, *known], "replicas": [replica(n) for n in range(4)]}
        [row] = Run(tables).answer("hot_spots").to_dicts()
        pile_up = "cold pile-up: replica 2 got 8 of 8 cold requests"
        assert row["finding"].partition(";")[0] == ("" if cold == 7 else pile_up)
        assert row["most_cold_ratio"] == 1.0


def test_a_prefix_that_all_prompts_share_makes_a_hot_spot_and_no_cold_pile_up() -> None:
    row = told([0] * 8, best=1)
    assert row["cold_requests"] == 0
    assert (row["most_cold_replica_id"], row["most_cold_ratio"]) == (None, None)
    hot_spot = "hot spot: replica 0 got 100.0 % of prompt tokens of 4 replicas"
    assert row["finding"] == f"{hot_spot}; 3 of 4 replicas idle"


@pytest.mark.parametrize(
    ("replicas", "fleet", "finding"),
    [
        ([0, 1, 2, 0, 1, 2, 0, 1], 4, ""),
        ([0, 0, 0, 0, 1, 2, 3, 3], 4, ""),  # half of it: twice a fair share, not more
        ([0, 0, 0, 0, 0, 1, 2, 3], 4, "replica 0 got 62.5 %"),
        ([1] * 7, 4, ""),  # too few to tell
        ([0] * 50, 1, ""),
        ([1] * 9 + [0], 2, ""),
        ([1] * 19 + [0], 2, "replica 1 got 95.0 %"),
        ([1] * 8, 2, "replica 1 got 100.0 %"),
        ([2] * 3 + [0, 1] + [3] * 3, 16, "replica 2 got 37.5 %"),
    ],
)
def test_a_replica_is_hot_with_more_than_twice_its_share(
    replicas: list[int], fleet: int, finding: str
) -> None:
    shown = told(replicas, fleet, best=1)["finding"]
    idle = fleet - len(set(replicas))
    end = f" of prompt tokens of {fleet} replicas" + f"; {idle} of {fleet} replicas idle" * (
        idle > 0
    )
    assert shown == (f"hot spot: {finding}{end}" if finding else "")


def test_a_replica_may_be_hot_by_requests_alone_and_by_tokens_alone() -> None:
    many_short = told([3] * 6 + [0, 1, 2], prompts=[10] * 6 + [100] * 3, best=1)
    assert many_short["finding"] == "hot spot: replica 3 got 66.7 % of requests of 4 replicas"
    one_long = told([0, 1, 2, 3] * 2, prompts=[10, 10, 10, 400] * 2, best=1)
    assert one_long["finding"] == "hot spot: replica 3 got 93.0 % of prompt tokens of 4 replicas"
    assert (one_long["fullest_replica_id"], one_long["most_tokens_replica_id"]) == (0, 3)
    without_tokens = told([1] * 8, prompts=[0] * 8, best=1)
    assert without_tokens["finding"].startswith("hot spot: replica 1 got 100.0 % of requests of 4")
    assert without_tokens["most_tokens_ratio"] is None


def test_a_request_that_nobody_served_breaks_no_run_and_of_equal_runs_the_first_counts() -> None:
    rows = [decision(seq, replica_id=where) for seq, where in enumerate([2, 2, 1, 1, 2, 2, 1, 0])]
    rows[1:1] = [decision(10, **FAILED)]
    tables = {"decisions": rows, "replicas": [replica(n) for n in range(3)]}
    [row] = Run(tables).answer("hot_spots").to_dicts()
    run = ("longest_run_replica_id", "longest_run_requests", "longest_run_first_seq")
    assert [row[name] for name in run] == [2, 2, 0]
    gap = [
        decision(0, replica_id=1),
        decision(1, **FAILED),
        decision(2, outcome="rejected_no_replica"),
        decision(5, replica_id=1),
        decision(6, replica_id=0),
    ]
    [row] = Run(tables | {"decisions": gap}).answer("hot_spots").to_dicts()
    assert [row[name] for name in run] == [1, 2, 0]


def test_a_fleet_that_served_nothing_is_idle_and_has_no_finding() -> None:
    tables = {"decisions": [decision(0, **FAILED)], "replicas": [replica(0), replica(1)]}
    [row] = Run(tables).answer("hot_spots").to_dicts()
    assert (row["idle_replicas"], row["idle_replica_ids"], row["requests"]) == (2, "0,1", 0)
    assert (row["fullest_replica_id"], row["fullest_requests_ratio"]) == (None, None)
    assert (row["longest_run_requests"], row["cold_requests"], row["finding"]) == (0, 0, "")


def test_hot_spots_agrees_with_the_skew_of_the_replicas(run: Run) -> None:
    same = ["policy", "replicas", "idle_replicas", "idle_replica_ids", "requests_max_over_mean"]
    assert run.answer("hot_spots").select(same).equals(run.answer("replica_skew").select(same))
