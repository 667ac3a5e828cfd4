"""The properties are worth something: each fault planted in the oracle is told from the kernels."""

import builtins
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import oracle
import pytest
from engine import EngineRun, random_settings, random_trace, replay_engine, seeded
from oracle import Decision, Edge, OracleTree, Tokens

RUNS = 2000
FLEET: Any = oracle._Fleet

Plant = Callable[[pytest.MonkeyPatch], None]


class Case(NamedTuple):
    trace: list[Tokens]
    knobs: dict[str, Any]
    told: EngineRun


@cache
def sweep() -> list[Case]:
    """Replay the same random runs every time, for all faults once."""
    cases = []
    for seed in range(RUNS):
        rng = seeded(seed)
        trace = random_trace(rng, rng.randint(1, 40), vocabulary=rng.randint(2, 4))
        knobs = random_settings(rng, len(trace))
        told = replay_engine(trace, batch_requests=rng.randint(1, 40), **knobs)
        cases.append(Case(trace, knobs, told))
    return cases


def differs(case: Case) -> bool:
    expected = oracle.replay(case.trace, **case.knobs)
    return case.told != (expected.decisions, expected.evictions)


def evict_most_recent_first(patch: pytest.MonkeyPatch) -> None:
    def least(*values: Any, key: Any = None) -> Any:
        return builtins.max(*values, key=key) if key else builtins.min(*values)

    patch.setattr(oracle, "min", least, raising=False)


def probe_without_touching(patch: pytest.MonkeyPatch) -> None:
    choose = FLEET.choose

    def silently(fleet: Any, tokens: Tokens) -> int:
        refreshes, fleet.probe_refreshes_recency = fleet.probe_refreshes_recency, False
        chosen = choose(fleet, tokens)
        fleet.probe_refreshes_recency = refreshes
        return int(chosen)

    patch.setattr(FLEET, "choose", silently)


def let_a_partial_match_not_touch_its_edge(patch: pytest.MonkeyPatch) -> None:
    def whole_edges(tree: OracleTree, tokens: Tokens) -> None:
        tree.clock += 1
        for edge in tree._way(tokens):
            if edge.path == tokens[: len(edge.path)]:
                edge.last_used, edge.last_used_seq = tree.clock, tree.seq

    patch.setattr(OracleTree, "_stamp", whole_edges)


def forget_the_recency_of_a_lower_part(patch: pytest.MonkeyPatch) -> None:
    split = OracleTree._split

    def forgetful(tree: OracleTree, tokens: Tokens) -> None:
        way = tree._way(tokens)
        split(tree, tokens)
        for edge in way:
            if edge.start == len(tokens):
                edge.last_used = 0

    patch.setattr(OracleTree, "_split", forgetful)


def join_a_parent_with_its_only_child(patch: pytest.MonkeyPatch) -> None:
    evict = OracleTree.evict

    def joining(tree: OracleTree, needed: int, protected: Tokens = ()) -> list[Edge]:
        evicted = evict(tree, needed, protected)
        for edge in list(tree.edges):
            below = [one for one in tree.edges if one.path[: one.start] == edge.path]
            if len(below) == 1 and edge.path != protected[: len(edge.path)]:
                tree.edges.remove(edge)
                below[0].start = edge.start
        return evicted

    patch.setattr(OracleTree, "evict", joining)


def evict_without_protecting_the_matched_path(patch: pytest.MonkeyPatch) -> None:
    evict = OracleTree.evict
    patch.setattr(OracleTree, "evict", lambda tree, needed, **_: evict(tree, needed))


def evict_a_token_more_than_needed(patch: pytest.MonkeyPatch) -> None:
    evict = OracleTree.evict

    def generous(tree: OracleTree, needed: int, protected: Tokens = ()) -> list[Edge]:
        most = tree.cached - len(protected)
        return evict(tree, min(needed + 1, most) if needed > 0 else 0, protected)

    patch.setattr(OracleTree, "evict", generous)


def reject_what_is_too_long_before_routing(patch: pytest.MonkeyPatch) -> None:
    decide = FLEET.decide

    def early(fleet: Any, seq: int, tokens: Tokens, drain_ms: float) -> Any:
        if len(tokens) > fleet.trees[0].capacity:
            return Decision(seq, "rejected_too_long", None, len(tokens)), []
        return decide(fleet, seq, tokens, drain_ms)

    patch.setattr(FLEET, "decide", early)


def count_an_empty_prompt_as_an_arrival(patch: pytest.MonkeyPatch) -> None:
    decide = FLEET.decide

    def late(fleet: Any, seq: int, tokens: Tokens, drain_ms: float) -> Any:
        missed, fleet.next_seq = seq - getattr(fleet, "next_seq", 0), seq + 1
        return decide(fleet, seq, tokens, drain_ms * (1 + missed))

    patch.setattr(FLEET, "decide", late)


def round_ttft_as_numpy_does(patch: pytest.MonkeyPatch) -> None:
    def rounded(value: float, digits: int) -> float:
        return float(np.round(value, 2)) if digits == 2 else builtins.round(value, digits)

    patch.setattr(oracle, "round", rounded, raising=False)


def let_the_highest_replica_win_ties(patch: pytest.MonkeyPatch) -> None:
    choose = FLEET.choose

    def highest(fleet: Any, tokens: Tokens) -> int:
        chosen = int(choose(fleet, tokens))
        if fleet.policy != "cache_aware":
            return chosen
        costs = [fleet.exec_ms(len(tokens), tree.match(tokens)) for tree in fleet.trees]
        waits = [round(a + b, 4) for a, b in zip(fleet.queues_ms, costs, strict=True)]
        return max(r for r, wait in enumerate(waits) if wait == waits[chosen])

    patch.setattr(FLEET, "choose", highest)


def touch_on_the_chosen_replica_though_silent(patch: pytest.MonkeyPatch) -> None:
    choose = FLEET.choose

    def touching(fleet: Any, tokens: Tokens) -> int:
        chosen = int(choose(fleet, tokens))
        fleet.trees[chosen].touch(tokens)
        return chosen

    patch.setattr(FLEET, "choose", touching)


def swap_evicted_and_elsewhere(patch: pytest.MonkeyPatch) -> None:
    decide = FLEET.decide

    def swapped(fleet: Any, seq: int, tokens: Tokens, drain_ms: float) -> Any:
        one, evicted = decide(fleet, seq, tokens, drain_ms)
        evicted_missed, elsewhere = one.elsewhere_tokens, one.evicted_tokens_missed
        other = replace(one, evicted_tokens_missed=evicted_missed, elsewhere_tokens=elsewhere)
        return other, evicted

    patch.setattr(FLEET, "decide", swapped)


def count_a_rejected_prompt_as_held_once(patch: pytest.MonkeyPatch) -> None:
    decide = FLEET.decide

    def remembering(fleet: Any, seq: int, tokens: Tokens, drain_ms: float) -> Any:
        decided = decide(fleet, seq, tokens, drain_ms)
        fleet.served.append(tokens)
        return decided

    patch.setattr(FLEET, "decide", remembering)


def ask_again_only_for_the_whole_edge(patch: pytest.MonkeyPatch) -> None:
    ask = oracle._asked_again

    def whole(trace: list[Tokens], seq: int, edge: Edge) -> int | None:
        return ask(trace, seq, replace(edge, start=len(edge.path) - 1))

    patch.setattr(oracle, "_asked_again", whole)


def overlook_that_the_very_next_request_asks_again(patch: pytest.MonkeyPatch) -> None:
    ask = oracle._asked_again
    patch.setattr(oracle, "_asked_again", lambda trace, seq, edge: ask(trace, seq + 1, edge))


def test_without_a_fault_kernels_and_oracle_agree_on_the_whole_sweep() -> None:
    assert [seed for seed, case in enumerate(sweep()) if differs(case)] == []


@pytest.mark.parametrize(
    "plant",
    [
        evict_most_recent_first,
        probe_without_touching,
        let_a_partial_match_not_touch_its_edge,
        forget_the_recency_of_a_lower_part,
        join_a_parent_with_its_only_child,
        evict_without_protecting_the_matched_path,
        evict_a_token_more_than_needed,
        reject_what_is_too_long_before_routing,
        count_an_empty_prompt_as_an_arrival,
        round_ttft_as_numpy_does,
        let_the_highest_replica_win_ties,
        touch_on_the_chosen_replica_though_silent,
        swap_evicted_and_elsewhere,
        count_a_rejected_prompt_as_held_once,
        ask_again_only_for_the_whole_edge,
        overlook_that_the_very_next_request_asks_again,
    ],
)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(differs(case) for case in sweep())
