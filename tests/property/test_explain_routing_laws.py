"""What `explain` tells of any request is what its run has, whatever the router sees."""

from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from engine import seeded
from samples import Row, column, decisions, rows_of, write_trace

from pipeline.config import (
    Absence,
    ClockConfig,
    CostModel,
    EngineConfig,
    FleetConfig,
    ReplayConfig,
    ReplicaConfig,
    RoutingConfig,
)
from pipeline.explain import as_text, explain_request
from pipeline.explain.moment import witnesses
from pipeline.explain.story import Story, tell
from pipeline.plan import planned
from pipeline.replay.policies.spec import every_policy, find_policy
from pipeline.run import replay_trace
from pipeline.run_folder import table_file

pytestmark = pytest.mark.usefixtures("compiled")

RUNS = 4
VIEWS: tuple[dict[str, Any], ...] = (
    {"router_view": "exact"},
    {"router_view": "lag:0"},
    {"router_view": "lag:7"},
    {"router_view": "routed", "router_capacity_tokens": 20},
    {"router_view": "routed", "router_ttl_ms": 9.0},
    {},
)
ENGINES = (
    EngineConfig(),
    EngineConfig(refresh="match", block_tokens=2, recompute_last_token=True),
    EngineConfig(cache_unit="block", block_tokens=2, refresh="insert", recompute_last_token=True),
    EngineConfig(cache_unit="block", block_tokens=3, partial_block="keep", refresh="insert"),
    EngineConfig(refresh="match", in_flight="pins", when_full="wait"),
    EngineConfig(cache_unit="block", block_tokens=2, refresh="insert", in_flight="pins"),
)
PARTS = {
    "matched": "matched_tokens",
    "recomputed": "recomputed_tokens",
    "elsewhere": "elsewhere_tokens",
    "evicted": "evicted_tokens_missed",
    "cold": "cold_tokens",
}


class Case(NamedTuple):
    prompts: list[tuple[int, ...]]
    arrival_ms: list[int]
    output_tokens: list[int]
    config: ReplayConfig


def _prompts(rng: Random) -> list[tuple[int, ...]]:
    """Return prompts that often go on where an earlier one ended, or leave it on the way."""
    made: list[tuple[int, ...]] = [()]
    for _ in range(rng.randint(8, 14)):
        earlier = rng.choice(made)
        kept = earlier[: rng.randint(0, len(earlier))]
        made.append(kept + tuple(rng.randint(0, 2) for _ in range(rng.randint(1, 5))))
    return [*made[1:], ()]


def _absences(rng: Random, replicas: int, requests: int) -> tuple[Absence, ...]:
    made = []
    for _ in range(rng.randint(0, 3)):
        away = tuple(rng.sample(range(replicas), rng.randint(1, replicas)))
        start = rng.randint(1, requests - 1)
        end = rng.choice([None, rng.randint(start, requests - 1)])
        kind, cache = rng.choice([("crash", "cold"), ("drain", "cold"), ("drain", "warm")])
        made.append(Absence(away, start, end, kind, cache))
    return tuple(made)


def _case(rng: Random, policy: str) -> Case:
    """Return requests no two of which come at once, and how they are replayed."""
    prompts, replicas = _prompts(rng), rng.randint(1, 4)
    times = sorted(rng.sample(range(1, 60), len(prompts)))
    each = [ReplicaConfig(rng.randint(6, 16), rng.choice([0.5, 1.0, 2.0])) for _ in range(replicas)]
    absences = _absences(rng, replicas, len(prompts))
    config = ReplayConfig(
        fleet=FleetConfig(replicas, 10, rng.choice([(), tuple(each)]), absences),
        engine=rng.choice(ENGINES),
        cost=CostModel(1.0, 0.1, 2.0),
        clock=ClockConfig("timestamps"),
        routing=RoutingConfig(
            **rng.choice(VIEWS),
            tie=rng.choice([None, "lowest", "random", "rotate"]),
            seed=rng.randint(0, 9),
            seeds=rng.choice([1, 2]),
        ),
        policies=(policy,),
    )
    return Case(prompts, times, [rng.randint(0, 3) for _ in prompts], config)


def _replayed(folder: Path, case: Case) -> Path:
    trace = write_trace(
        folder / "day.parquet",
        case.prompts,
        [1000 * ms for ms in case.arrival_ms],
        output_tokens=case.output_tokens,
    )
    replay_trace(trace, folder / "run", case.config)
    return folder / "run"


def _away(fleet: FleetConfig, seq: int) -> set[int]:
    """Return the replicas that take no requests when a request comes."""
    return {
        replica
        for one in fleet.absences
        for replica in one.replicas
        if int(one.start) <= seq and (one.end is None or seq < int(one.end))
    }


@pytest.mark.parametrize("policy", every_policy())
def test_every_request_is_explained_as_its_run_has_it(tmp_path: Path, policy: str) -> None:
    rng = seeded(every_policy().index(policy))
    for number in range(RUNS):
        folder = tmp_path / str(number)
        folder.mkdir()
        case = _case(rng, policy)
        run = _replayed(folder, case)
        rows = decisions(run, policy)
        lost = rows_of(table_file(run, "evictions", policy))
        with planned(folder / "day.parquet", case.config) as plan:
            for seq, row in enumerate(rows):
                story = tell(plan, policy, seq, witnesses(plan, seq))
                _check_decision(story, row, case, policy)
                if row["outcome"] == "served":
                    _check_tokens(story, row, lost)
        told = explain_request(run, f"r{rng.randrange(len(rows))}")
        assert as_text(told).startswith("request r")


def _check_decision(story: Story, row: Row, case: Case, policy: str) -> None:
    assert story["outcome"] == row["outcome"]
    away, count = _away(case.config.fleet, row["seq"]), case.config.fleet.replicas
    assert (row["outcome"] == "rejected_no_replica") == (
        row["prompt_tokens"] > 0 and len(away) == count
    )
    if row["outcome"] in ("rejected_empty", "rejected_no_replica"):
        assert set(story) == {"outcome", "reason"}
        return
    replicas = story["replicas"]
    assert column(replicas, "replica_id") == list(range(count))
    assert all(r["score"] is None and not r["chosen"] for r in replicas if r["replica_id"] in away)
    [chosen] = [r for r in replicas if r["chosen"]]
    assert chosen["replica_id"] == story["replica_id"]
    _check_view(story, policy, case, away)
    _check_reason(story, away)
    if row["outcome"] != "served":
        return
    for name in ("replica_id", "matched_tokens", "queue_wait_ms", "exec_ms", "ttft_ms"):
        assert story[name] == row[name]
    assert story["score"]["name"] == row["decided_by"]
    if story["waited_for"]:
        return
    for name in ("queued_requests", "running_requests"):
        assert chosen[name] == row[name]
    assert max(column(replicas, "matched_tokens")) == row["best_matched_tokens"]
    believed = chosen["believed_matched_tokens"]
    if believed is None and find_policy(policy).policy.looks_up:
        believed = chosen["matched_tokens"]
    assert believed == row["believed_matched_tokens"]
    _check_regret(replicas, chosen, row, case, away)


def _check_regret(replicas: list[Row], chosen: Row, row: Row, case: Case, away: set[int]) -> None:
    """Check the best replica in hindsight against what the story has of all of them."""
    block = case.config.engine.block_tokens
    sums = {
        r["replica_id"]: round((r["queue_wait_ms"] + r["exec_ms"]) * 10_000)
        for r in replicas
        if r["replica_id"] not in away
        and -(-row["prompt_tokens"] // block)
        <= case.config.fleet.members[r["replica_id"]].capacity_tokens // block
    }
    best = min(sums, key=lambda replica: (sums[replica], replica))
    assert row["best_replica_id"] == best
    assert row["regret_ms"] == (sums[chosen["replica_id"]] - sums[best]) / 10_000


def _check_view(story: Story, policy: str, case: Case, away: set[int]) -> None:
    spec = find_policy(policy, case.config.routing)
    assert story["router_view"] == str(spec.view)
    late = spec.view.kind == "lag"
    for replica in story["replicas"]:
        matched = replica["believed_matched_tokens"]
        is_there = replica["replica_id"] not in away
        believes = spec.policy.looks_up and spec.view.kind != "exact"
        assert (matched is not None) == (is_there and believes)
        assert (replica["believed_queue_wait_ms"] is not None) == (is_there and late)
        if str(spec.view) == "lag:0" and is_there and spec.policy.looks_up:
            assert matched == replica["matched_tokens"]
            assert replica["believed_queue_wait_ms"] == replica["queue_wait_ms"]


def _check_reason(story: Story, away: set[int]) -> None:
    """Check that the reason says nothing that the scores deny."""
    reason, best = story["reason"], story["score"]["best"]
    if best is None:
        told = f"by {story['score']['name']}"
        assert reason == told or reason.startswith(f"{told}, seed ")
        return
    assert "did not go by the score alone" not in reason
    scored = {r["replica_id"]: r["score"] for r in story["replicas"] if r["score"] is not None}
    if "modulo" not in reason:
        least = min(scored.values()) if best == "least" else max(scored.values())
        tied = [replica for replica, score in scored.items() if score == least]
        assert story["replica_id"] in tied
        assert ("that of replicas" in reason) == (len(tied) > 1)
        if "the lowest replica wins" in reason:
            assert story["replica_id"] == tied[0]
    assert not away & scored.keys()


def _check_tokens(story: Story, row: Row, lost: list[Row]) -> None:
    sums, end = dict.fromkeys(PARTS, 0), 0
    for part in story["tokens"]:
        assert (part["start_tokens"], part["tokens"] > 0) == (end, True)
        end += part["tokens"]
        sums[part["part"]] += part["tokens"]
        if part["part"] == "evicted":
            by = part["evicted_for"]
            cause = ("restart", None) if by is None else ("room", by.row)
            where = (part["replica_id"], *cause)
            assert where in {(e["replica_id"], e["cause"], e["for_seq"]) for e in lost}
    assert end == row["prompt_tokens"]
    assert sums == {part: row[name] for part, name in PARTS.items()}
    for name in ("evicted_tokens", "evicted_nodes"):
        assert sum(column(story["evictions"], name)) == row[name]
    own = [e for e in lost if e["for_seq"] == row["seq"]]
    for told, eviction in zip(story["evictions"], own, strict=False):
        assert told["brought_by"] is not None
        assert told["last_used_by"].row == eviction["last_used_seq"]
        assert told["start_tokens"] == eviction["start_tokens"]
