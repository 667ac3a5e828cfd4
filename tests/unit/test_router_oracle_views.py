"""What the router of the oracle sees and remembers, and what it is compared with, done by hand."""

from typing import Any

import pytest
from engine_oracle import Model, Request
from router_scripts import Scripted, column, gone, run
from router_views import CLOSE, WIPE


@pytest.mark.parametrize(
    ("view", "looks_up", "evicted"),
    [
        (("exact",), True, (3, 4)),
        (("lag", 1), True, (3, 4)),
        (("exact",), False, (1, 2)),
        (("routed", 0, None), True, (1, 2)),
    ],
)
def test_a_look_of_the_router_is_a_use_where_it_goes_by_what_replicas_hold(
    view: tuple[Any, ...], looks_up: bool, evicted: tuple[int, ...]
) -> None:
    told = run(
        [(1, 2), (3, 4), (1, 2), (5, 6)],
        Scripted(0, 0, 1, 0),
        looks_up=looks_up,
        replicas=[(4, 1.0)] * 2,
        model=Model(refresh="probe"),
        view=view,
    )
    assert gone(told) == [(3, 3, "room", 0, evicted, 0)]
    assert column(told, "believed_matched_tokens")[0] == (0 if looks_up else None)


def test_a_late_router_sees_what_was_and_who_is_away() -> None:
    rule = Scripted(0, 0, 0, 0)
    told = run(
        [(1, 2, 3)] * 4,
        rule,
        view=("lag", 20_000),
        changes=[(20_000, 1, CLOSE), (40_001, 0, WIPE)],
        clock=[0, 10_000, 20_000, 45_000],
    )
    # They look at -2, -1, 0 and 2.5 ms.
    assert rule.of(1, "queue_ticks") == [0, 0, "away", "away"]
    assert rule.of(0, "queue_ticks") == [0, 0, 30_000, 11_000]
    assert rule.of(0, "running_requests") == [0, 0, 1, 1]
    assert rule.of(0, "queued_requests") == [0, 0, 0, 2]
    assert rule.of(0, "requests") == [0, 0, 1, 3]
    assert column(told, "believed_matched_tokens") == [0, 0, 3, 3]
    assert column(told, "matched_tokens") == [0, 3, 3, 0]
    assert column(told, "regret_ticks") == [0, 0, 0, 0]


def test_a_router_that_goes_by_what_it_sent_is_not_told_of_evictions_but_of_restarts() -> None:
    rule = Scripted(0, 0, 0, 0)
    told = run(
        [(1, 2), (3, 4), (1, 2), (1, 2)],
        rule,
        replicas=[(2, 1.0)],
        view=("routed", 100, None),
        changes=[(90_000, 0, WIPE)],
        clock=[0, 30_000, 60_000, 90_000],
    )
    assert column(told, "believed_matched_tokens") == [0, 0, 2, 0]
    assert column(told, "matched_tokens") == [0, 0, 0, 0]
    assert rule.of(0, "matched_seq") == [-1, -1, 0, -1]
    assert rule.of(0, "exec_ticks") == [20_000, 20_000, 2_000, 20_000]
    assert rule.of(0, "resident_tokens") == [0, 2, 4, 0]
    assert [row[2] for row in gone(told)] == ["room", "room", "restart"]


def test_the_memory_of_a_router_drops_least_recent_leaves_and_skips_what_is_too_long() -> None:
    rule = Scripted(*[0] * 7)
    long = (9,) * 5
    prompts = [(1, 2, 3), (1, 2, 4), (5,), (1, 2, 3), (1, 2, 4), long, long]
    told = run(prompts, rule, view=("routed", 4, None))
    # 5 drops the 3, then 3 the 4, then 4 the 5.
    assert column(told, "believed_matched_tokens") == [0, 2, 0, 2, 2, 0, 0]
    assert rule.of(0, "resident_tokens") == [0, 3, 4, 4, 4, 4, 4]
    assert column(told, "matched_tokens") == [0, 2, 0, 3, 3, 0, 5]


def test_the_memory_of_a_router_fades() -> None:
    rule = Scripted(0, 0, 1, 1, 1, 1)
    prompts = [(1, 2, 3), (1, 2, 4), *[(7,)] * 4]
    run(prompts, rule, view=("routed", 0, 100), clock=[0, 60, 99, 100, 159, 160])
    assert rule.of(0, "resident_tokens") == [0, 3, 4, 3, 3, 0]


def test_the_best_replica_is_the_first_of_the_least_ttft_that_could_take_it() -> None:
    told = run(
        [(1, 2, 3), (4, 5), (4, 5), (6, 7)],
        Scripted(0, 0, 2, 2),
        replicas=[(100, 1.0), (1, 9.0), (100, 0.5)],
        changes=[(50_000, 0, CLOSE)],
        clock=[0, 0, 10_000, 50_000],
    )
    # In ms: 3, none, 6; then 3 + 2, none, 4; then 4 + 0.2, none, 4; then away, none, 0 + 4.
    assert column(told, "best_replica_id") == [0, 2, 2, 2]
    assert column(told, "regret_ticks") == [0, 10_000, 0, 0]


def test_a_prompt_is_too_long_for_the_replica_that_was_chosen() -> None:
    told = run([(1, 2, 3)] * 2, Scripted(0, 1), replicas=[(2, 1.0), (3, 1.0)])
    assert column(told, "outcome") == ["rejected_too_long", "served"]
    assert column(told, "replica_id") == [None, 1]
    assert told.chosen == [0, 1]


def test_what_is_believed_is_of_the_arrival_and_what_matches_of_the_time_after_the_wait() -> None:
    requests = [
        Request((1, 2), output=(3, 4), output_tokens=2),
        Request((9,), output_tokens=30),
        (1, 2, 3, 4, 5, 6),
    ]
    told = run(
        requests,
        Scripted(0, 0, 0),
        replicas=[(6, 1.0), (6, 0.1)],
        model=Model(refresh="insert", in_flight="pins", when_full="wait", cache_output=True),
        clock=[0, 0, 10_000],
    )
    # The first ends at 22 ms and leaves its output; the second, which is in the way, at 303.
    assert column(told, "believed_matched_tokens") == [0, 0, 2]
    assert column(told, "matched_tokens") == [0, 0, 4]
    assert column(told, "queue_wait_ms") == [0.0, 2.0, 302.0]
    # When it came: 2 + 4.2 ms here, 60 there.
    assert column(told, "regret_ticks") == [0, 0, 0]
    assert column(told, "best_replica_id") == [0, 0, 0]
