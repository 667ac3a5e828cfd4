"""Faults to plant in the oracle of routers: of replicas that go away, restart and return."""

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import router_oracle
from cache_oracle import Evicted
from engine_oracle import Flight
from router_fleet import NOBODY, RoutedFleet
from router_views import CLOSE, OPEN, WIPE

Patch = pytest.MonkeyPatch

_change, _write = RoutedFleet.change, RoutedFleet.write_evictions


def _around_a_change(
    patch: Patch,
    kind: int,
    before: Callable[[RoutedFleet, int, int], Any],
    after: Callable[[RoutedFleet, int, Any], None] = lambda *_: None,
) -> None:
    """Do something before and after changes of a kind: of a replica, and before at a latest seq."""

    def change(fleet: RoutedFleet, tick: int, replica: int, what: int, latest: int) -> None:
        kept = before(fleet, replica, latest) if what == kind else None
        _change(fleet, tick, replica, what, latest)
        if what == kind:
            after(fleet, replica, kept)

    patch.setattr(RoutedFleet, "change", change)


def let_the_queue_survive_a_restart(patch: Patch) -> None:
    def restore(fleet: RoutedFleet, replica: int, queue_end: int) -> None:
        fleet.queue_ends[replica] = queue_end

    _around_a_change(patch, WIPE, lambda fleet, replica, _: fleet.queue_ends[replica], restore)


def complete_what_is_in_flight_at_a_restart(patch: Patch) -> None:
    def complete(fleet: RoutedFleet, replica: int, latest: int) -> None:
        here = [flight for flight in fleet.in_flight if flight.replica == replica]
        for flight in sorted(here, key=lambda one: (one.end, one.seq)):
            fleet.complete(flight, latest)

    _around_a_change(patch, WIPE, complete)


def count_what_a_restart_lost_as_in_flight(patch: Patch) -> None:
    def restore(fleet: RoutedFleet, _: int, flights: Any) -> None:
        fleet.flights = flights

    _around_a_change(patch, WIPE, lambda fleet, *_: fleet.flights, restore)


def begin_to_count_requests_anew_at_a_restart(patch: Patch) -> None:
    def forget(fleet: RoutedFleet, replica: int, _: int) -> None:
        fleet.served[replica] = 0

    _around_a_change(patch, WIPE, forget)


def hold_on_to_partial_blocks_at_a_restart(patch: Patch) -> None:
    def restore(fleet: RoutedFleet, replica: int, held: int) -> None:
        fleet.caches[replica].held = held

    _around_a_change(patch, WIPE, lambda fleet, replica, _: fleet.caches[replica].held, restore)


def drop_what_is_in_flight_when_a_drain_begins(patch: Patch) -> None:
    def drop(fleet: RoutedFleet, replica: int, _: int) -> None:
        fleet.flights = [one for one in fleet.flights if one.replica != replica]
        for flight in [one for one in fleet.in_flight if one.replica == replica]:
            fleet.caches[replica].pins.remove(fleet.model.kept(fleet.requests[flight.seq].prompt))
            fleet.in_flight.remove(flight)

    _around_a_change(patch, CLOSE, drop)


def go_on_taking_requests_in_a_drain(patch: Patch) -> None:
    def change(fleet: RoutedFleet, tick: int, replica: int, what: int, latest: int) -> None:
        if what == WIPE:
            _change(fleet, tick, replica, what, latest)

    patch.setattr(RoutedFleet, "change", change)


def return_from_two_absences_with_the_first(patch: Patch) -> None:
    def change(fleet: RoutedFleet, tick: int, replica: int, what: int, latest: int) -> None:
        if what == OPEN:
            fleet.away[replica] = 1
        _change(fleet, tick, replica, what, latest)

    patch.setattr(RoutedFleet, "change", change)


def evict_the_freshest_first_at_a_restart(patch: Patch) -> None:
    def write(fleet: RoutedFleet, evicted: list[Evicted], seq: int, flight: Flight) -> None:
        ordered = evicted[::-1] if flight.seq == NOBODY else evicted
        _write(fleet, ordered, seq, flight)

    patch.setattr(RoutedFleet, "write_evictions", write)


def tell_a_restart_as_of_the_request_after_it(patch: Patch) -> None:
    def write(fleet: RoutedFleet, evicted: list[Evicted], seq: int, flight: Flight) -> None:
        _write(fleet, evicted, seq + (flight.seq == NOBODY), flight)

    patch.setattr(RoutedFleet, "write_evictions", write)


def _shift_changes(patch: Patch, by: float) -> None:
    def shifted(changes: Sequence[Any], key: Any) -> list[Any]:
        moved = [(tick + by, replica, what) for tick, replica, what in changes]
        return builtins.sorted(moved, key=key)

    patch.setattr(router_oracle, "sorted", shifted, raising=False)


def restart_before_what_completes_at_that_tick(patch: Patch) -> None:
    _shift_changes(patch, -0.5)


def serve_before_what_changes_at_that_tick(patch: Patch) -> None:
    _shift_changes(patch, 0.5)


def fail_what_completes_at_the_tick_of_a_restart(patch: Patch) -> None:
    def is_lost(fleet: RoutedFleet, flight: Any) -> bool:
        wipes = [tick for tick, r, what in fleet.changes if (r, what) == (flight.replica, WIPE)]
        return bool(wipes) and flight.end >= wipes[0]

    patch.setattr(RoutedFleet, "is_lost", is_lost)


def fail_only_what_has_no_first_token_by_a_restart(patch: Patch) -> None:
    def is_lost(fleet: RoutedFleet, flight: Any) -> bool:
        wipes = [tick for tick, r, what in fleet.changes if (r, what) == (flight.replica, WIPE)]
        return bool(wipes) and flight.filled > wipes[0]

    patch.setattr(RoutedFleet, "is_lost", is_lost)


def fail_what_any_replica_loses(patch: Patch) -> None:
    def is_lost(fleet: RoutedFleet, flight: Any) -> bool:
        return any(what == WIPE and flight.end > tick for tick, _, what in fleet.changes)

    patch.setattr(RoutedFleet, "is_lost", is_lost)


PLANTS = (
    let_the_queue_survive_a_restart,
    complete_what_is_in_flight_at_a_restart,
    count_what_a_restart_lost_as_in_flight,
    begin_to_count_requests_anew_at_a_restart,
    hold_on_to_partial_blocks_at_a_restart,
    drop_what_is_in_flight_when_a_drain_begins,
    go_on_taking_requests_in_a_drain,
    return_from_two_absences_with_the_first,
    evict_the_freshest_first_at_a_restart,
    tell_a_restart_as_of_the_request_after_it,
    restart_before_what_completes_at_that_tick,
    serve_before_what_changes_at_that_tick,
    fail_what_completes_at_the_tick_of_a_restart,
    fail_only_what_has_no_first_token_by_a_restart,
    fail_what_any_replica_loses,
)
