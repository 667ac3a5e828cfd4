"""Behind any router the kernels tell what the oracle tells, and obey their own laws."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from cache_oracle import common
from engine import seeded
from engine_oracle import TICKS_PER_MS
from model_engine import _dicts
from router_cases import RULES
from router_engine import batches_of, check_case, replayer_of, told_by_kernels
from router_fleet import Decision
from router_oracle import OracleRun
from router_recount import (
    check_absences,
    check_active,
    check_loads,
    check_nothing_is_left,
    in_the_air,
)
from router_runs import Case, case_of, random_case
from router_views import CLOSE, OPEN

from pipeline.config.routing import VIEWS
from pipeline.replay.replayer import Replayer
from pipeline.tables import OUTCOMES

RUNS, AT_ONCE = 400, 20


@cache
def checked(first: int) -> Counter[str]:
    """Check some runs, and count what occurred in them."""
    occurred: Counter[str] = Counter()
    for seed in range(first, first + AT_ONCE):
        case = random_case(seed)
        occurred.update(_what_occurred(case, check_case(case)))
    return occurred


def _what_occurred(case: Case, run: OracleRun) -> set[str]:
    rows = [run.failed.get(one.seq, one) for one in run.decisions]
    served = [one for one in rows if one.outcome == "served"]
    there = {case.rule, case.knobs["view"][0], *(one.outcome for one in run.decisions)}
    there |= {f"forgotten: {why}" for why, count in run.forgotten.items() if count}
    there |= {f"evicted: {row.cause}" for row in run.evictions}
    for at, one in enumerate(served):
        believed = one.believed_matched_tokens
        if believed is not None and believed != one.matched_tokens:
            there.add("believed too " + ("much" if believed > one.matched_tokens else "little"))
        queues = {seen.replica_id: seen.queue_ticks for seen in run.seen[one.seq]}
        waited = round(one.queue_wait_ms * TICKS_PER_MS)
        if case.knobs["view"][0] == "exact" and waited > queues[one.replica_id]:
            there.add("waited for room")
        if one.regret_ticks > 0:
            there.add("regret")
        if one.matched_tokens and _is_first_after_return(case, served[: at + 1]):
            there.add("warm return")
    return there


def _is_first_after_return(case: Case, served: Sequence[Decision]) -> bool:
    """Say whether the last of these is the first on its replica since that returned as it was."""
    clock, replica = case.knobs["clock"], served[-1].replica_id
    now = clock[served[-1].seq]
    mine = [(t, what) for t, r, what in case.knobs["changes"] if r == replica and t <= now]
    here = [clock[one.seq] for one in served[:-1] if one.replica_id == replica]
    return [what for _, what in mine[-2:]] == [CLOSE, OPEN] and max(here) < mine[-1][0]


@pytest.mark.parametrize("first", range(0, RUNS, AT_ONCE))
def test_every_decision_every_look_and_every_eviction_are_the_oracles(first: int) -> None:
    assert checked(first)["served"] > AT_ONCE // 2


def test_the_random_runs_have_all_that_can_happen() -> None:
    occurred = sum((checked(first) for first in range(0, RUNS, AT_ONCE)), Counter[str]())
    wanted = {
        *RULES,
        *OUTCOMES,
        *VIEWS,
        *("forgotten: old", "forgotten: room", "forgotten: too_long"),
        *("evicted: room", "evicted: restart", "warm return"),
        *("believed too much", "believed too little", "waited for room", "regret"),
    }
    assert {name: occurred[name] for name in wanted if occurred[name] < 5} == {}


def large_case(seed: int, rule: str = "witness", requests: int = 150) -> Case:
    """Return a longer run, whose router is late, or goes by a memory that fades."""
    rng = seeded(seed)
    case = case_of(rng, requests, rule)
    memory = 20 * case.knobs["model"].block_tokens
    views = (("lag", rng.randint(1, 60_000)), ("routed", memory, rng.randint(1, 200_000)))
    case.knobs["view"] = (*views, ("exact",))[seed % 3]
    return case


@pytest.mark.parametrize("seed", [n for n in range(18) if n % 3 < 2])
def test_the_size_of_a_batch_changes_nothing_that_a_router_sees_later(seed: int) -> None:
    case = large_case(seed)
    whole = case._replace(size=len(case.requests))
    replayer = replayer_of(whole)
    wanted = told_by_kernels(whole, replayer)
    for size in (1, 3, 50):
        again = replayer_of(case)
        told = told_by_kernels(case._replace(size=size), again)
        assert told[:4] == wanted[:4]
        for fleet, other in (
            (again.fleet, replayer.fleet),
            (again.router.belief, replayer.router.belief),
        ):
            for name in ("resident", "cut", "ever", "touched", "active", "replicas", "clock"):
                np.testing.assert_array_equal(getattr(fleet, name), getattr(other, name))


@pytest.mark.parametrize("seed", range(24))
def test_what_is_in_flight_and_away_is_counted_right_all_the_time(seed: int) -> None:
    case = large_case(seed)._replace(size=1 + seed % 4)
    replayer, served = replayer_of(case), Counter[int]()
    for batch in batches_of(case):
        rows, _ = replayer.replay(batch)
        now, newest = int(batch.clock_ticks[-1]), int(batch.seq[-1])
        served.update(rows["replica_id"].tolist())
        fleet = replayer.fleet
        check_loads(fleet, now, newest)
        check_active(fleet)
        check_absences(fleet, case.knobs["changes"], now)
        assert fleet.replicas["requests"].tolist() == [
            served[r] for r in range(len(fleet.replicas))
        ]
        if rows["routed_to"][-1] >= 0:
            _check_active_match(case, replayer, newest)
            if case.knobs["view"][0] == "lag":
                check_loads(replayer.router.belief, now - case.knobs["view"][1], -1)
                check_active(replayer.router.belief)
    replayer.finish()
    check_nothing_is_left(replayer.fleet)


def _check_active_match(case: Case, replayer: Replayer, newest: int) -> None:
    prompt = case.requests[newest].prompt
    for replica, state in enumerate(replayer.fleet.replicas):
        others = [seq for seq in in_the_air(replayer.fleet, replica)["seq"] if seq != newest]
        shared = [common(case.requests[seq].prompt, prompt) for seq in others]
        assert state["active_matched_tokens"] == max(shared, default=0)


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_router_that_is_not_late_is_exact(rule: str) -> None:
    case = large_case(sorted(RULES).index(rule), rule)
    runs = []
    for view in (("exact",), ("lag", 0)):
        told = told_by_kernels(case._replace(knobs=case.knobs | {"view": view}))
        told.replicas["score"] = 0.0  # which is left where the policy was shown it
        runs.append((told[:4], told.replicas.tolist()))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("seed", range(12))
def test_no_replica_that_is_away_is_chosen_and_no_regret_is_negative(seed: int) -> None:
    case = large_case(seed, sorted(RULES)[seed % len(RULES)])
    told = told_by_kernels(case)
    for one, chosen in zip(told.decisions, told.chosen, strict=True):
        now, away = case.knobs["clock"][one.seq], Counter[int]()
        for tick, replica, what in case.knobs["changes"]:
            away[replica] += (tick <= now) * ((what == CLOSE) - (what == OPEN))
        assert chosen == -1 or away[chosen] == 0
        if one.outcome in {"served", "failed"}:
            assert away[one.best_replica_id] == 0
            assert one.regret_ticks >= 0
        if one.outcome == "rejected_no_replica":
            assert all(away[r] for r in range(len(case.knobs["replicas"])))


@pytest.mark.parametrize("seed", range(12))
def test_what_a_restart_evicts_is_all_that_was_resident(seed: int) -> None:
    case = large_case(seed)._replace(size=1)
    replayer = replayer_of(case)
    resident: list[Any] = [0] * len(case.knobs["replicas"])
    for batch in batches_of(case):
        _, lost = replayer.replay(batch)
        gone: Counter[int] = Counter()
        for row in _dicts(lost[lost["for_seq"] < 0]):
            gone[row["replica_id"]] += row["evicted_tokens"]
        for replica, tokens in gone.items():
            if not case.knobs["model"].cache_output:
                assert tokens == resident[replica]
        resident = replayer.fleet.replicas["resident_tokens"].tolist()
