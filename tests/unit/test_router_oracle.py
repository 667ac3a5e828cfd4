"""The oracle of routers, held against the oracle of engines and cases done by hand."""

from dataclasses import asdict
from itertools import accumulate

import engine_oracle
import pytest
from engine_oracle import TICKS_PER_MS, Model, Request
from hypothesis import given, settings
from hypothesis import strategies as st
from router_cases import RULES, round_robin
from router_oracle import replay
from router_scripts import Scripted, column, gone, run
from router_views import CLOSE, OPEN, WIPE
from strategies import (
    Costs,
    Served,
    arrival_gaps,
    capacities,
    costs,
    decays,
    models,
    policies,
    served_traces,
)


@settings(max_examples=40, deadline=None)
@given(
    st.data(), policies(), st.sampled_from(("leaf", "block")), st.integers(1, 4), costs(), decays()
)
def test_with_one_kind_of_replica_it_tells_what_the_oracle_of_engines_tells(
    data: st.DataObject, policy: str, unit: str, replicas: int, prices: Costs, decay: float
) -> None:
    trace = data.draw(served_traces())
    model = data.draw(models(unit, trace.width))
    gaps = data.draw(st.one_of(st.none(), arrival_gaps(len(trace.requests))))
    capacity = data.draw(capacities()) * trace.width
    all_prices = prices._asdict() | {
        "decode_ms_per_token": data.draw(st.sampled_from((0.0, 0.05, 2.0)))
    }
    wanted = engine_oracle.replay(
        trace.requests,
        policy=policy,
        replicas=replicas,
        capacity_tokens=capacity,
        model=model,
        drain_ms=decay if gaps is None else gaps,
        **all_prices,
    )
    # An empty prompt is no arrival where every arrival takes the same off the queues.
    passed = gaps or [decay if request.tokens else 0 for request in trace.requests]
    told = replay(
        trace.requests,
        rule=RULES[policy].rule(),
        looks_up=RULES[policy].looks_up,
        replicas=[(capacity, 1.0)] * replicas,
        model=model,
        clock=list(accumulate(round(ms * TICKS_PER_MS) for ms in passed)),
        **all_prices,
    )
    counted = {"queued_requests", "running_requests"}
    left_out = set() if model.in_flight == "pins" else counted
    for one, other in zip(told.decisions, wanted.decisions, strict=True):
        names = asdict(other).keys() - left_out
        assert {n: getattr(one, n) for n in names} == {n: getattr(other, n) for n in names}
    assert [asdict(row) for row in told.evictions] == [
        asdict(row) | {"cause": "room"} for row in wanted.evictions
    ]
    assert told.caches == wanted.caches


@settings(max_examples=40, deadline=None)
@given(served_traces(), st.sampled_from(sorted(RULES)), st.data())
def test_a_router_that_forgets_nothing_and_one_that_is_not_late_see_the_truth(
    trace: Served, name: str, data: st.DataObject
) -> None:
    gaps = data.draw(arrival_gaps(len(trace.requests)))
    exact, late, routed = [
        run(
            trace.requests,
            RULES[name].rule(),
            looks_up=RULES[name].looks_up,
            replicas=[(10_000, 1.0), (10_000, 2.0), (10_000, 0.5)],
            model=Model(block_tokens=2, recompute_last_token=True, refresh="insert"),
            view=view,
            clock=list(accumulate(round(ms * TICKS_PER_MS) for ms in gaps)),
        )
        for view in (("exact",), ("lag", 0), ("routed", 0, None))
    ]
    assert exact == late == routed


def test_a_replica_computes_by_its_speed_and_ticks_are_rounded_half_to_even() -> None:
    rule = Scripted(0, 1, 1, 1)
    prompts = [Request((1, 2, 3, 4), output_tokens=1)] * 2
    told = run(
        [*prompts, (1, 2, 3, 5), (9,)],
        rule,
        replicas=[(100, 1.0), (100, 8.0)],
        clock=[0, 0, 5_062, 5_063],
        decode_ms_per_token=0.05,
    )
    # 0.0375 + 0.125 ms where three of four tokens match; decode takes 62.5 ticks, so 62.
    assert column(told, "exec_ms") == [4.0, 0.5, 0.1625, 0.125]
    assert rule.of(1, "exec_ticks") == [5_000, 5_000, 1_625, 1_250]
    assert rule.of(1, "running_requests") == [0, 0, 0, 1]
    assert column(told, "queue_wait_ms") == [0.0, 0.0, 0.0, 0.1624]


@pytest.mark.parametrize(("tick", "outcome"), [(130_000, "served"), (129_999, "failed")])
def test_a_completion_comes_before_a_restart_of_the_same_tick(tick: int, outcome: str) -> None:
    told = run(
        [Request((1, 2), output=(3, 4), output_tokens=11), (1, 2, 3, 4, 5)],
        Scripted(0, 0),
        model=Model(refresh="insert", in_flight="pins", cache_output=True),
        changes=[(tick, 0, WIPE)],
        clock=[0, 200_000],
        decode_ms_per_token=1.0,
    )
    assert column(told, "outcome") == [outcome, "served"]
    assert column(told, "matched_tokens") == [0 if outcome == "served" else None, 0]
    rows = [(0, None, "restart", 0, (1, 2), 0)]
    if outcome == "served":
        rows.insert(0, (0, None, "restart", 0, (1, 2, 3, 4), 2))
    assert gone(told) == rows
    assert column(told, "cold_tokens")[1] == (1 if outcome == "served" else 3)
    assert column(told, "evicted_tokens_missed")[1] == (4 if outcome == "served" else 2)


def test_a_restart_loses_leaf_after_leaf_and_empties_the_queue() -> None:
    rule = Scripted(0, 0, 0, 0)
    prompts = [(1, 2, 3), (1, 2, 4), (5,), (1, 2, 3)]
    told = run(prompts, rule, changes=[(10_000, 0, WIPE)], clock=[0, 0, 0, 10_000])
    paths = [((1, 2, 3), 2), ((1, 2, 4), 2), ((1, 2), 0), ((5,), 0)]
    assert gone(told) == [(2, None, "restart", 0, *path) for path in paths]
    assert [row.last_used_seq for row in told.evictions] == [0, 1, 1, 2]
    assert [row.asked_again_tokens for row in told.evictions] == [1, 0, 2, 0]
    # 3 ms for the first, 1.2 for the second, 1 for the third: nothing is done by then.
    assert column(told, "outcome") == ["failed", "failed", "failed", "served"]
    assert rule.of(0, "queue_ticks") == [0, 30_000, 42_000, 0]
    assert rule.of(0, "queued_requests") == [0, 0, 1, 0]
    assert rule.of(0, "requests") == [0, 1, 2, 3]


def test_a_request_that_failed_was_in_the_cache_until_then() -> None:
    requests = [Request((1, 2, 3), output_tokens=5), (1, 2, 3)]
    told = run(requests, Scripted(0, 0), changes=[(100_000, 0, WIPE)], clock=[0, 50_000])
    assert column(told, "outcome") == ["failed", "served"]
    assert column(told, "ttft_ms") == [None, 0.3]
    assert column(told, "matched_tokens") == [None, 3]
    assert told.chosen == [0, 0]
    assert told.failed[0].ttft_ms == 3.0


def test_where_all_are_away_nothing_is_asked_and_the_cursor_stands() -> None:
    changes = [
        (1, 0, CLOSE),
        (1, 1, CLOSE),
        (2, 1, CLOSE),
        (4, 0, OPEN),
        (4, 1, OPEN),
        (6, 1, OPEN),
    ]
    prompts = [(1,), (2,), (), (3,), (4,), (5,), (6,), (7,)]
    told = run(prompts, round_robin(), looks_up=False, changes=changes)
    # Replica 1 is twice away, so it comes back with the second return.
    assert told.chosen == [0, None, None, None, 0, 0, 1, 0]
    none = "rejected_no_replica"
    assert column(told, "outcome")[1:5] == [none, "rejected_empty", none, "served"]


def test_loads_are_counted_from_arrival_to_completion() -> None:
    # On replica 0 the first computes until 3 ms and ends at 13; the second is queued from 1 ms,
    # computes 2 of its 4 tokens from 3 ms to 5.2, and ends with that.
    prompts = [Request((1, 2, 3), output_tokens=1), (1, 2, 9, 9), (1, 2, 3, 4), (1, 2), (8,), (8,)]
    rule = Scripted(0, 0, 1, 1, 1, 1)
    clock = [0, 10_000, 29_999, 30_000, 52_000, 130_000]
    told = run(prompts, rule, clock=clock)
    assert rule.of(0, "queue_ticks") == [0, 20_000, 22_001, 22_000, 0, 0]
    assert rule.of(0, "queued_requests") == [0, 0, 1, 0, 0, 0]
    assert rule.of(0, "running_requests") == [0, 1, 1, 2, 1, 0]
    assert rule.of(0, "prefill_tokens") == [0, 3, 5, 2, 0, 0]
    assert rule.of(0, "active_tokens") == [0, 3, 5, 5, 3, 0]
    assert rule.of(0, "active_matched_tokens") == [0, 2, 3, 2, 0, 0]
    assert rule.of(0, "matched_tokens") == [0, 2, 3, 2, 0, 0]
    assert rule.of(0, "matched_seq") == [-1, 0, 0, 1, -1, -1]
    assert rule.of(0, "resident_tokens") == [0, 3, 5, 5, 5, 5]
    assert column(told, "running_requests")[:2] == [0, 1]
