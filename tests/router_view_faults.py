"""Faults to plant in the oracle of routers: of what a router sees, and of what it remembers."""

from collections.abc import Sequence
from typing import Any

import pytest
import router_fleet
import router_views
from cache_oracle import Cache, Edge, Evicted, LeafCache, Sequenced, common
from engine_oracle import Flight
from router_fleet import RoutedFleet
from router_views import WIPE, Moment, ReplicaView

Patch = pytest.MonkeyPatch

_see, _choose, _change = RoutedFleet.see, RoutedFleet.choose, RoutedFleet.change
_what_is_seen, _memorize = RoutedFleet.what_is_seen, RoutedFleet.memorize
_write = RoutedFleet.write_evictions


def be_late_by_a_tick_more(patch: Patch) -> None:
    def later(fleet: RoutedFleet, prompt: Sequenced) -> list[ReplicaView]:
        if fleet.view[0] != "lag":
            return _what_is_seen(fleet, prompt)
        then = fleet.now - fleet.view[1] - 1
        past = fleet.past(then)
        return fleet.see(prompt, past, then, past.caches)

    patch.setattr(RoutedFleet, "what_is_seen", later)


def be_late_without_what_happened_at_the_very_tick(patch: Patch) -> None:
    def before(fleet: RoutedFleet, then: float) -> Moment:
        return [moment for moment in fleet.moments if moment.tick < then][-1]

    patch.setattr(RoutedFleet, "past", before)


def be_late_for_loads_only(patch: Patch) -> None:
    def see(
        fleet: RoutedFleet, prompt: Sequenced, moment: Moment, now: int, caches: Sequence[Cache]
    ) -> list[ReplicaView]:
        there = fleet.caches if fleet.view[0] == "lag" else caches
        return _see(fleet, prompt, moment, now, there)

    patch.setattr(RoutedFleet, "see", see)


def be_late_for_caches_only(patch: Patch) -> None:
    def see(
        fleet: RoutedFleet, prompt: Sequenced, _moment: Moment, _now: int, caches: Sequence[Cache]
    ) -> list[ReplicaView]:
        return _see(fleet, prompt, fleet.present, fleet.now, caches)

    patch.setattr(RoutedFleet, "see", see)


def hear_of_a_restart_at_once(patch: Patch) -> None:
    def change(fleet: RoutedFleet, tick: int, replica: int, what: int, latest: int) -> None:
        _change(fleet, tick, replica, what, latest)
        if what == WIPE:
            for moment in fleet.moments:
                moment.caches[replica] = router_views.copied(fleet.caches[replica])

    patch.setattr(RoutedFleet, "change", change)


def let_a_late_look_touch_nothing(patch: Patch) -> None:
    touch = RoutedFleet.looks_touch.fget
    patch.setattr(RoutedFleet, "looks_touch", property(lambda f: touch(f) and f.view[0] == "exact"))


def let_a_router_that_looks_into_its_memory_touch_caches(patch: Patch) -> None:
    patch.setattr(
        RoutedFleet,
        "looks_touch",
        property(lambda fleet: fleet.looks_up and fleet.model.refresh == "probe"),
    )


def let_a_look_into_the_memory_be_a_use_of_it(patch: Patch) -> None:
    def choose(fleet: RoutedFleet, prompt: Sequenced, seq: int) -> int:
        chosen = _choose(fleet, prompt, seq)
        for memory in fleet.memories:
            memory.touch(fleet.model.key(prompt), seq)
        return chosen

    patch.setattr(RoutedFleet, "choose", choose)


def tell_the_memory_of_evictions(patch: Patch) -> None:
    def write(fleet: RoutedFleet, evicted: list[Evicted], seq: int, flight: Flight) -> None:
        _write(fleet, evicted, seq, flight)
        memory = fleet.memories[flight.replica]
        for row in evicted:
            memory.edges = [e for e in memory.edges if common(e.path, row.path) <= row.start]

    patch.setattr(RoutedFleet, "write_evictions", write)


def tell_the_memory_of_outputs(patch: Patch) -> None:
    def memorize(fleet: RoutedFleet, seq: int, chosen: int) -> None:
        _memorize(fleet, seq, chosen)
        request, memory = fleet.requests[seq], fleet.memories[chosen]
        path = fleet.model.kept(request.prompt + request.answer)
        if fleet.model.cache_output and len(path) <= memory.capacity:
            here = memory.resident(path)
            memory.insert(path, here, len(path) - here, seq)

    patch.setattr(RoutedFleet, "memorize", memorize)


def let_the_memory_survive_a_restart(patch: Patch) -> None:
    def change(fleet: RoutedFleet, tick: int, replica: int, what: int, latest: int) -> None:
        memory: LeafCache = fleet.memories[replica]
        edges = list(memory.edges)
        _change(fleet, tick, replica, what, latest)
        memory.edges = edges

    patch.setattr(RoutedFleet, "change", change)


def remember_without_limit(patch: Patch) -> None:
    def memorize(fleet: RoutedFleet, seq: int, chosen: int) -> None:
        fleet.memories[chosen].capacity = 10**9
        _memorize(fleet, seq, chosen)

    patch.setattr(RoutedFleet, "memorize", memorize)


def remember_only_what_is_in_the_way_of_nothing(patch: Patch) -> None:
    def memorize(fleet: RoutedFleet, seq: int, chosen: int) -> None:
        memory, kept = fleet.memories[chosen], fleet.model.kept(fleet.requests[seq].prompt)
        if memory.free >= len(kept) - memory.resident(kept):
            _memorize(fleet, seq, chosen)

    patch.setattr(RoutedFleet, "memorize", memorize)


def forget_a_tick_late(patch: Patch) -> None:
    def is_old(fleet: RoutedFleet, seq: int) -> bool:
        _, _, ttl = fleet.view
        return ttl is not None and fleet.clock[seq] < fleet.now - ttl

    patch.setattr(RoutedFleet, "is_old", is_old)


def forget_what_was_used_again(patch: Patch) -> None:
    def is_within(edge: Edge, other: Edge) -> bool:
        return edge.path == other.path[: len(edge.path)] and edge.start >= other.start

    def memorize(fleet: RoutedFleet, seq: int, chosen: int) -> None:
        memory = fleet.memories[chosen]
        before = [Edge(edge.path, edge.start, edge.stamp) for edge in memory.edges]
        _memorize(fleet, seq, chosen)
        for edge in memory.edges:
            for other in before:
                if is_within(edge, other):
                    edge.stamp = edge.stamp._replace(seq=other.stamp.seq)

    patch.setattr(RoutedFleet, "memorize", memorize)


def forget_all_leaves_but_what_they_leave(patch: Patch) -> None:
    def expire(memory: LeafCache, is_old: Any) -> int:
        old = [e for e in memory.edges if is_old(e.stamp.seq) and not memory._has_children(e)]
        memory.edges = [edge for edge in memory.edges if edge not in old]
        return len(old)

    patch.setattr(router_fleet, "expire", expire)


def name_the_request_itself_as_the_last_user(patch: Patch) -> None:
    def choose(fleet: RoutedFleet, prompt: Sequenced, seq: int) -> int:
        if fleet.looks_touch:
            for cache in fleet.caches:
                cache.touch(fleet.model.key(prompt), seq)
        return _choose(fleet, prompt, seq)

    patch.setattr(RoutedFleet, "choose", choose)


PLANTS = (
    be_late_by_a_tick_more,
    be_late_without_what_happened_at_the_very_tick,
    be_late_for_loads_only,
    be_late_for_caches_only,
    hear_of_a_restart_at_once,
    let_a_late_look_touch_nothing,
    let_a_router_that_looks_into_its_memory_touch_caches,
    let_a_look_into_the_memory_be_a_use_of_it,
    tell_the_memory_of_evictions,
    tell_the_memory_of_outputs,
    let_the_memory_survive_a_restart,
    remember_without_limit,
    remember_only_what_is_in_the_way_of_nothing,
    forget_a_tick_late,
    forget_what_was_used_again,
    forget_all_leaves_but_what_they_leave,
    name_the_request_itself_as_the_last_user,
)
