"""What holds for every policy, whatever its rule: alone, together, on one replica, late, cold."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from command import replay
from engine import flat, random_trace, seeded
from engine_days import MODELS, busy, write_day
from engine_days import random_day as day_on_disk
from numpy.typing import NDArray
from samples import decisions, parquet_bytes

from pipeline.config import CostModel, EngineConfig, FleetConfig, ReplayConfig, RoutingConfig
from pipeline.links import LinkFinder
from pipeline.replay import Replayer, find_policy, trace_paths
from pipeline.replay.fleet import TracePaths
from pipeline.replay.policies.spec import every_policy
from pipeline.replay.router import Batch
from pipeline.replay.serve import SERVED
from pipeline.run import replay_trace

POLICIES = every_policy()
UNLIMITED = 2**61
ENGINES: dict[str, EngineConfig] = {
    "insertions touch": EngineConfig(refresh="insert"),
    "matches touch": EngineConfig(refresh="match"),
    "look-ups touch": EngineConfig(),
    "in flight": EngineConfig(refresh="match", in_flight="pins", when_full="wait"),
    "vllm": MODELS["vllm"],
    "vllm in flight": replace(MODELS["vllm in flight"], cache_output=False),
}
BY_INSERTIONS = ("insertions touch", "vllm")
"""Engines for which an insertion alone counts as use."""

OF_RULES = ("branch", "believed_matched_tokens")
REASONS = ("cold_tokens", "evicted_tokens_missed", "elsewhere_tokens", "recomputed_tokens")
COUNTS = ("queued_requests", "running_requests")
any_policy = pytest.mark.parametrize("policy", POLICIES)
any_engine = pytest.mark.parametrize("engine", ENGINES)
NO_TIES = ("pure_affinity",)  # no two replicas ever hold the same first token


class Day(NamedTuple):
    """A trace: its links, and what comes when."""

    links: tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.uint32]]
    batch: Batch


def random_day(seed: int, count: int = 100) -> Day:
    """Return requests that share much, some at once and some long after each other."""
    rng = seeded(seed)
    prompts = random_trace(rng, count, rng.choice((2, 3, 8)), 9)
    lengths = np.array([len(prompt) for prompt in prompts], np.uint32)
    prefix_seq, shared = LinkFinder().link(*flat(prompts))
    gaps = [rng.choice((0, 0, rng.randint(1, 60_000), 400_000)) for _ in prompts]
    batch = Batch(
        seq=np.arange(count),
        prompt_tokens=lengths.astype(np.int64),
        first_token_id=np.array([p[0] if p else 0 for p in prompts], np.uint64),
        clock_ticks=np.cumsum(gaps, dtype=np.int64),
        output_tokens=np.array([rng.choice((0, 1, 5, 20)) for _ in prompts], np.int64),
        session=np.array([rng.randrange(6) for _ in prompts], np.uint64),
    )
    return Day((lengths, prefix_seq, shared.astype(np.uint32)), batch)


def fleet(
    replicas: int, capacity_tokens: int, engine: str = "insertions touch", **routing: Any
) -> ReplayConfig:
    """Return replicas on which a token takes 1 ms, or 3 ms to be generated."""
    return ReplayConfig(
        FleetConfig(replicas, capacity_tokens),
        ENGINES[engine],
        CostModel(1.0, 0.1, 3.0),
        routing=RoutingConfig(**routing),
    )


class Replayed(NamedTuple):
    """loop.DECISION and cache.EVICTION rows."""

    decisions: NDArray[Any]
    evictions: NDArray[Any]


def replayed(
    day: Day,
    policy: str,
    config: ReplayConfig,
    batch_requests: int = 1000,
    paths: TracePaths | None = None,
) -> Replayed:
    """Return all that a policy's replay tells."""
    shared = paths or trace_paths(day.links, engine=config.engine)
    replayer, parts = Replayer(shared, config, policy), []
    for first in range(0, len(day.batch.seq), batch_requests):
        rows = slice(first, first + batch_requests)
        parts.append(replayer.replay(Batch(*(column[rows] for column in day.batch))))
    decisions, evictions = zip(*parts, strict=True)
    return Replayed(np.concatenate(decisions), np.concatenate([*evictions, replayer.finish()]))


def check_same(one: Replayed, other: Replayed, but: Sequence[str] = ()) -> None:
    for name in one.decisions.dtype.names or ():
        if name not in but:
            np.testing.assert_array_equal(one.decisions[name], other.decisions[name], name)
    np.testing.assert_array_equal(one.evictions, other.evictions)


def differ(one: Replayed, other: Replayed) -> bool:
    return bool((one.decisions["routed_to"] != other.decisions["routed_to"]).any())


def served(run: Replayed) -> NDArray[Any]:
    return run.decisions[run.decisions["outcome"] == SERVED]


@any_engine
@any_policy
def test_on_one_replica_every_policy_is_one(policy: str, engine: str) -> None:
    # Only who asks for them counts requests, unless requests in flight pin their paths.
    counts = () if ENGINES[engine].in_flight == "pins" else COUNTS
    for seed in range(2):
        day, config = random_day(seed), fleet(1, 30, engine)
        reference = replayed(day, "round_robin", config)
        check_same(replayed(day, policy, config), reference, OF_RULES + counts)
        assert len(reference.evictions) > 30
        assert set(reference.decisions["outcome"].tolist()) == {0, 1}


@any_policy
def test_one_replica_without_limit_finds_every_linked_token(policy: str) -> None:
    day = random_day(3)
    rows = replayed(day, policy, fleet(1, UNLIMITED)).decisions
    assert rows["matched_tokens"].sum() == day.links[2].sum() > 300
    np.testing.assert_array_equal(rows["matched_tokens"], day.links[2])


@any_policy
def test_replicas_without_limit_find_at_most_what_one_does(policy: str) -> None:
    day = random_day(3)
    run = replayed(day, policy, fleet(4, UNLIMITED))
    assert len(run.evictions) == 0
    assert (run.decisions["matched_tokens"] <= run.decisions["best_matched_tokens"]).all()
    # Every prefix that came before is somewhere.
    np.testing.assert_array_equal(run.decisions["best_matched_tokens"], day.links[2])


@any_policy
def test_the_size_of_a_batch_changes_nothing_and_nothing_is_carried_over(policy: str) -> None:
    for view in ("exact", "lag:20", "routed"):
        day, config = random_day(5), fleet(4, 30, "in flight", router_view=view)
        paths = trace_paths(day.links, engine=config.engine)
        whole = replayed(day, policy, config, paths=paths)
        for size in (1, 7, len(day.batch.seq)):  # each starts afresh on paths that were used
            check_same(replayed(day, policy, config, size, paths), whole)


@any_engine
@any_policy
def test_a_lag_of_nothing_is_the_exact_view(policy: str, engine: str) -> None:
    for seed in range(2):
        day = random_day(seed)
        exact = replayed(day, policy, fleet(3, 30, engine, router_view="exact"))
        check_same(replayed(day, policy, fleet(3, 30, engine, router_view="lag:0")), exact)


@pytest.mark.parametrize(
    ("policy", "engine"),
    # sglang asks who touched a match last: in truth look-ups and completions do, too.
    [(p, e) for p in POLICIES for e in ENGINES if e in BY_INSERTIONS or "sglang" not in p],
)
def test_what_was_routed_is_what_is_there_if_nobody_forgets(policy: str, engine: str) -> None:
    for seed in range(2):
        day = random_day(seed)
        exact = replayed(day, policy, fleet(3, UNLIMITED, engine, router_view="exact"))
        known = {"router_view": "routed", "router_capacity_tokens": UNLIMITED}
        check_same(replayed(day, policy, fleet(3, UNLIMITED, engine, **known)), exact)


@any_policy
def test_a_router_that_hears_of_nothing_sees_an_idle_and_empty_fleet(policy: str) -> None:
    day, config = random_day(6), fleet(4, 30, router_view="lag:1000000")
    replayer = Replayer(trace_paths(day.links, engine=config.engine), config, policy)
    for row in range(len(day.batch.seq)):
        rows, _ = replayer.replay(Batch(*(column[row : row + 1] for column in day.batch)))
        assert rows["believed_matched_tokens"][0] == 0
        for name in ("queue_ticks", "matched_tokens", "resident_tokens", "requests", *COUNTS):
            assert not replayer.shown()[name].any(), name
        assert not replayer.shown()["prefill_tokens"].any()
    assert replayer.fleet.replicas["requests"].sum() > 50


def test_a_router_that_hears_of_nothing_sends_all_to_the_lowest_where_scores_decide() -> None:
    day, tie = random_day(6), {"router_view": "lag:1000000", "tie": "lowest"}
    used = {
        policy: set(served(replayed(day, policy, fleet(4, 2000, **tie)))["replica_id"].tolist())
        for policy in POLICIES
    }
    assert sorted(policy for policy in POLICIES if used[policy] != {0}) == [
        "chwbl",  # hashes of the prefix
        "power_of_two",  # chance
        "preble",  # remembers what it routed
        "prefix_hash",
        "pure_affinity",  # first tokens
        "random",
        "round_robin",
        "session",
    ]


@any_engine
@any_policy
def test_regret_is_0_on_the_best_replica_and_nowhere_less(policy: str, engine: str) -> None:
    for seed in range(2):
        day = random_day(seed)
        rows = served(replayed(day, policy, fleet(4, 30, engine)))
        assert len(rows) > 50
        on_best, regret = rows["replica_id"] == rows["best_replica_id"], rows["regret_ticks"]
        assert (regret[on_best] == 0).all()
        assert (regret >= 0).all()
        # Of equals the lowest is the best one.
        equal = ~on_best & (regret == 0)
        assert (rows["best_replica_id"] < rows["replica_id"])[equal].all()


@any_engine
def test_only_least_estimated_time_to_first_token_has_no_regret(engine: str) -> None:
    day = random_day(1)
    regret = {
        policy: int(served(replayed(day, policy, fleet(4, 30, engine)))["regret_ticks"].sum())
        for policy in POLICIES
    }
    assert [policy for policy in POLICIES if regret[policy] == 0] == ["cache_aware"]


@any_policy
def test_a_seed_decides_only_where_chance_does(policy: str) -> None:
    day = random_day(2)
    one, again, other = (
        replayed(day, policy, fleet(4, 30, tie="lowest", seed=seed)) for seed in (1, 1, 2)
    )
    check_same(one, again)
    assert differ(one, other) == (policy in ("random", "power_of_two"))


@any_policy
def test_a_random_tie_depends_on_the_seed_where_there_are_ties(policy: str) -> None:
    day = random_day(2)
    runs = [replayed(day, policy, fleet(4, 30, tie="random", seed=seed)) for seed in (1, 2)]
    spec = find_policy(policy, RoutingConfig(tie="random"))
    assert differ(*runs) == (spec.chooses_at_random and policy not in NO_TIES)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a day with tenants, sessions and outputs."""
    return write_day(tmp_path_factory.mktemp("laws") / "day.parquet", day_on_disk(8, 90))


@pytest.fixture(scope="module")
def together(trace: Path) -> dict[str, bytes]:
    """Return the tables of a run of all policies."""
    run = trace.with_name("together")
    replay_trace(trace, run, busy("reference", *POLICIES))
    return parquet_bytes(run)


def test_policies_decide_the_same_in_any_order(
    trace: Path, together: dict[str, bytes], tmp_path: Path
) -> None:
    shuffled = seeded(4).sample(POLICIES, len(POLICIES))
    run = tmp_path / "run"
    replay_trace(trace, run, busy("reference", *shuffled))
    assert parquet_bytes(run) == together
    replay_trace(trace, run, busy("reference", *shuffled))
    assert parquet_bytes(run) == together
    assert len(together) == 3 * len(POLICIES)


@any_policy
def test_a_policy_decides_alone_as_among_others(
    trace: Path, together: dict[str, bytes], tmp_path: Path, policy: str
) -> None:
    replay_trace(trace, tmp_path / "run", busy("reference", policy))
    alone = parquet_bytes(tmp_path / "run")
    assert alone == {name: content for name, content in together.items() if f"={policy}/" in name}
    assert len(alone) == 3


def test_policies_decide_in_a_process_of_their_own_as_in_this_one(
    trace: Path, together: dict[str, bytes], tmp_path: Path
) -> None:
    done = replay(
        "run", trace, "-o", tmp_path / "run", "--policy", "all", "--replicas", "2",
        "--capacity-tokens", "16", "--prefill-ms-per-token", "0.5",
        "--lookup-ms-per-token", "0.05", "--decode-ms-per-token", "1.5",
        "--clock", "timestamps",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert parquet_bytes(tmp_path / "run") == together


def test_every_token_of_every_policy_has_one_reason(
    trace: Path, together: dict[str, bytes]
) -> None:
    for policy in POLICIES:
        rows = [
            row
            for row in decisions(trace.with_name("together"), policy)
            if row["outcome"] == "served"
        ]
        assert f"decisions/policy={policy}/part-0.parquet" in together
        assert len(rows) > 60
        for row in rows:
            assert row["matched_tokens"] + row["computed_tokens"] == row["prompt_tokens"]
            assert sum(row[name] for name in REASONS) == row["computed_tokens"]
            assert row["matched_tokens"] <= row["best_matched_tokens"]
