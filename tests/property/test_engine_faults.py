"""The properties of engines are worth something: each fault planted in their oracle is told."""

import builtins
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import engine_oracle
import pytest
from cache_oracle import BlockCache, Cache, Evicted, LeafCache, Path, Sequenced, common
from engine import seeded
from engine_oracle import Fleet as OracleFleet
from engine_oracle import Flight, Model, Request
from model_cases import random_knobs, random_model, random_requests
from model_engine import ModelRun, check_same, replay_model

RUNS = 400

Plant = Callable[[pytest.MonkeyPatch], None]


class Case(NamedTuple):
    requests: list[Request]
    knobs: dict[str, Any]
    told: ModelRun


@cache
def sweep() -> list[Case]:
    """Replay the same random runs every time, for all faults once."""
    cases = []
    for seed in range(RUNS):
        rng = seeded(seed)
        requests, model = random_requests(rng, rng.randint(1, 40)), random_model(rng)
        knobs = random_knobs(rng, len(requests), model) | {"to_the_end": rng.random() < 0.7}
        told = replay_model(requests, batch_requests=rng.randint(1, 40), **knobs)
        cases.append(Case(requests, knobs, told))
    return cases


def differs(case: Case) -> bool:
    try:
        wanted = engine_oracle.replay(case.requests, **case.knobs)
        check_same(case.requests, case.knobs["model"], case.told, wanted)
    except AssertionError:
        return True
    return False


def evict_heads_before_tails(patch: pytest.MonkeyPatch) -> None:
    def evict(cache: BlockCache, protected: Path) -> Evicted:
        free = [
            block
            for block in cache.stamps
            if block != protected[: len(block)] and not cache.is_pinned(block)
        ]
        victim = min(free, key=lambda block: (cache.stamps[block].touch, len(block)))
        return Evicted(victim, len(victim) - 1, cache.stamps.pop(victim).seq)

    patch.setattr(BlockCache, "evict", evict)


def evict_a_whole_leaf_where_blocks_would_do(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine_oracle, "BlockCache", LeafCache)


def evict_only_the_blocks_of_a_leaf_that_are_needed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine_oracle, "LeafCache", BlockCache)


def take_the_path_for_used_at_admission_only(patch: pytest.MonkeyPatch) -> None:
    complete = OracleFleet.complete

    def silently(fleet: OracleFleet, flight: Flight, latest: int) -> None:
        cache: Any = fleet.caches[flight.replica]
        cache.touch = lambda *_: None
        complete(fleet, flight, latest)
        del cache.touch

    patch.setattr(OracleFleet, "complete", silently)


def touch_what_matches_on_every_replica(patch: pytest.MonkeyPatch) -> None:
    choose = OracleFleet.choose

    def touching(fleet: OracleFleet, prompt: Sequenced, seq: int) -> int:
        if fleet.model.refresh == "match":
            for cache in fleet.caches:
                cache.touch(fleet.model.key(prompt), seq)
        return choose(fleet, prompt, seq)

    patch.setattr(OracleFleet, "choose", touching)


def let_a_part_of_an_edge_that_matches_not_touch_it(patch: pytest.MonkeyPatch) -> None:
    def whole_edges(cache: LeafCache, path: Path, stamp: Any) -> None:
        for edge in cache.edges:
            if edge.path == path[: len(edge.path)]:
                edge.stamp = stamp

    patch.setattr(LeafCache, "stamp", whole_edges)


def find_the_whole_prompt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Model, "key", Model.kept)


def make_no_room_for_a_partial_block(patch: pytest.MonkeyPatch) -> None:
    insert = Cache.insert

    def tight(cache: Cache, path: Path, matched: int, _needed: int, seq: int) -> list[Evicted]:
        return insert(cache, path, matched, len(path) - matched, seq)

    patch.setattr(Cache, "insert", tight)


def forget_the_block_that_a_running_request_holds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Cache, "held", property(lambda _: 0, lambda *_: None))


def leave_the_end_of_a_path_in_flight_unpinned(patch: pytest.MonkeyPatch) -> None:
    def is_pinned(cache: Cache, block: Path) -> bool:
        return any(pin[: len(block)] == block and pin != block for pin in cache.pins)

    patch.setattr(Cache, "is_pinned", is_pinned)


def pin_what_is_below_a_path_in_flight(patch: pytest.MonkeyPatch) -> None:
    def is_pinned(cache: Cache, block: Path) -> bool:
        return any(pin and common(pin, block) in (len(pin), len(block)) for pin in cache.pins)

    patch.setattr(Cache, "is_pinned", is_pinned)


def unpin_a_path_for_all_when_the_first_completes(patch: pytest.MonkeyPatch) -> None:
    complete = OracleFleet.complete

    def for_all(fleet: OracleFleet, flight: Flight, latest: int) -> None:
        pins = fleet.caches[flight.replica].pins
        kept = fleet.model.kept(fleet.requests[flight.seq].prompt)
        if kept not in pins:
            pins.append(kept)
        complete(fleet, flight, latest)
        pins[:] = [pin for pin in pins if pin != kept]

    patch.setattr(OracleFleet, "complete", for_all)


def complete_a_tick_late(patch: pytest.MonkeyPatch) -> None:
    until = OracleFleet.complete_until
    patch.setattr(
        OracleFleet, "complete_until", lambda fleet, now, latest: until(fleet, now - 1, latest)
    )


def complete_in_the_order_of_arrival(patch: pytest.MonkeyPatch) -> None:
    def by_seq(flights: Iterable[Flight], key: Any) -> list[Flight]:
        assert key
        return builtins.sorted(flights, key=lambda flight: flight.seq)

    patch.setattr(engine_oracle, "sorted", by_seq, raising=False)


def wait_for_the_oldest_request(patch: pytest.MonkeyPatch) -> None:
    def least(values: Any, key: Any = None) -> Any:
        return builtins.min(values, key=(lambda flight: flight.seq) if key else None)

    patch.setattr(engine_oracle, "min", least, raising=False)


def start_as_if_there_had_been_no_wait(patch: pytest.MonkeyPatch) -> None:
    serve = OracleFleet.serve

    def early(fleet: OracleFleet, seq: int, chosen: int, _start: int) -> Any:
        return serve(fleet, seq, chosen, max(fleet.now, fleet.queue_ends[chosen]))

    patch.setattr(OracleFleet, "serve", early)


def want_a_block_more_than_is_needed(patch: pytest.MonkeyPatch) -> None:
    has_room = Cache.has_room

    def picky(cache: Cache, needed: int, protected: Path) -> bool:
        return has_room(cache, needed + bool(cache.pins), protected)

    patch.setattr(Cache, "has_room", picky)


def keep_an_output_without_making_room(patch: pytest.MonkeyPatch) -> None:
    complete, insert = OracleFleet.complete, Cache.insert

    def greedy(fleet: OracleFleet, flight: Flight, latest: int) -> None:
        cache: Any = fleet.caches[flight.replica]
        cache.insert = lambda path, matched, _, seq: insert(cache, path, matched, 0, seq)
        complete(fleet, flight, latest)
        del cache.insert

    patch.setattr(OracleFleet, "complete", greedy)


def keep_the_last_token_of_an_output(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Model, "whole", lambda _, prompt, answer: prompt + answer)


def count_a_token_of_an_output_as_never_computed(patch: pytest.MonkeyPatch) -> None:
    complete = OracleFleet.complete

    def forgetful(fleet: OracleFleet, flight: Flight, latest: int) -> None:
        known = len(fleet.ever)
        complete(fleet, flight, latest)
        del fleet.ever[known:]

    patch.setattr(OracleFleet, "complete", forgetful)


def tell_an_eviction_by_an_output_as_of_its_own_arrival(patch: pytest.MonkeyPatch) -> None:
    write = OracleFleet.write_evictions

    def early(fleet: OracleFleet, evicted: list[Evicted], _seq: int, flight: Flight) -> None:
        write(fleet, evicted, flight.seq, flight)

    patch.setattr(OracleFleet, "write_evictions", early)


def share_between_namespaces(patch: pytest.MonkeyPatch) -> None:
    for name in ("prompt", "answer"):
        of = getattr(Request, name).fget
        shared = property(lambda request, of=of: tuple((None, token) for _, token in of(request)))
        patch.setattr(Request, name, shared)


def _change_decisions(
    patch: pytest.MonkeyPatch, change: Callable[[OracleFleet, Any], None]
) -> None:
    explain = OracleFleet.explain

    def changed(fleet: OracleFleet, seq: int, chosen: int, start: int) -> Any:
        decision = explain(fleet, seq, chosen, start)
        change(fleet, decision)
        return decision

    patch.setattr(OracleFleet, "explain", changed)


def count_recomputed_as_evicted(patch: pytest.MonkeyPatch) -> None:
    def change(_: OracleFleet, one: Any) -> None:
        one.evicted_tokens_missed += one.recomputed_tokens
        one.recomputed_tokens = 0

    _change_decisions(patch, change)


def count_queued_as_running(patch: pytest.MonkeyPatch) -> None:
    def change(fleet: OracleFleet, one: Any) -> None:
        if fleet.model.in_flight == "pins":
            one.running_requests += one.queued_requests
            one.queued_requests = 0

    _change_decisions(patch, change)


def count_a_request_as_running_at_its_completion(patch: pytest.MonkeyPatch) -> None:
    def change(fleet: OracleFleet, one: Any) -> None:
        if fleet.model.in_flight == "pins":
            here = [flight for flight in fleet.flights if flight.replica == one.replica_id]
            one.running_requests = sum(f.start <= fleet.now <= f.end for f in here)

    _change_decisions(patch, change)


def forget_who_was_completed_ahead_of_time(patch: pytest.MonkeyPatch) -> None:
    def change(fleet: OracleFleet, one: Any) -> None:
        if fleet.model.in_flight == "pins":
            here = [flight for flight in fleet.in_flight if flight.replica == one.replica_id]
            one.queued_requests = sum(f.start > fleet.now for f in here)
            one.running_requests = len(here) - one.queued_requests

    _change_decisions(patch, change)


def test_without_a_fault_kernels_and_oracle_agree_on_the_whole_sweep() -> None:
    assert [seed for seed, case in enumerate(sweep()) if differs(case)] == []


@pytest.mark.parametrize(
    "plant",
    [
        evict_heads_before_tails,
        evict_a_whole_leaf_where_blocks_would_do,
        evict_only_the_blocks_of_a_leaf_that_are_needed,
        take_the_path_for_used_at_admission_only,
        touch_what_matches_on_every_replica,
        let_a_part_of_an_edge_that_matches_not_touch_it,
        find_the_whole_prompt,
        make_no_room_for_a_partial_block,
        forget_the_block_that_a_running_request_holds,
        leave_the_end_of_a_path_in_flight_unpinned,
        pin_what_is_below_a_path_in_flight,
        unpin_a_path_for_all_when_the_first_completes,
        complete_a_tick_late,
        complete_in_the_order_of_arrival,
        wait_for_the_oldest_request,
        start_as_if_there_had_been_no_wait,
        want_a_block_more_than_is_needed,
        keep_an_output_without_making_room,
        keep_the_last_token_of_an_output,
        count_a_token_of_an_output_as_never_computed,
        tell_an_eviction_by_an_output_as_of_its_own_arrival,
        share_between_namespaces,
        count_recomputed_as_evicted,
        count_queued_as_running,
        count_a_request_as_running_at_its_completion,
        forget_who_was_completed_ahead_of_time,
    ],
)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(differs(case) for case in sweep())
