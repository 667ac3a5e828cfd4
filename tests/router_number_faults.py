"""Faults to plant in the oracle of routers: of loads, of the best replica, and of speeds."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import pytest
import router_oracle
from cache_oracle import Sequenced
from engine_oracle import TICKS_PER_MS
from router_fleet import Decision, Prices, RoutedFleet
from router_views import Moment, ReplicaView, longest_common

Patch = pytest.MonkeyPatch

_best, _route, _loads = RoutedFleet.best, RoutedFleet.route, Moment.loads


def let_queues_of_the_past_drain_until_now(patch: Patch) -> None:
    def loads(moment: Moment, replica: int, now: int, prompt: Any, requests: Any) -> Any:
        told = _loads(moment, replica, now, prompt, requests)
        if isinstance(moment.tick, float):
            return told
        return told | {"queue_ticks": max(0, moment.queue_ends[replica] - moment.tick)}

    patch.setattr(Moment, "loads", loads)


def _change_loads(patch: Patch, change: Any) -> None:
    """Let `change` return what is wrong, of the flights there and the usual loads."""

    def loads(moment: Moment, replica: int, now: int, prompt: Any, requests: Any) -> Any:
        told = _loads(moment, replica, now, prompt, requests)
        here = [one for one in moment.flights if one.replica == replica and one.end > now]
        return told | change(here, now, requests)

    patch.setattr(Moment, "loads", loads)


def count_prefill_until_it_begins(patch: Patch) -> None:
    def change(here: Any, now: int, _: Any) -> dict[str, int]:
        return {"prefill_tokens": sum(one.computed for one in here if one.start > now)}

    _change_loads(patch, change)


def count_prefill_of_whole_prompts(patch: Patch) -> None:
    def change(here: Any, now: int, requests: Any) -> dict[str, int]:
        filling = [one for one in here if one.filled > now]
        return {"prefill_tokens": sum(len(requests[one.seq].tokens) for one in filling)}

    _change_loads(patch, change)


def count_active_tokens_once_a_request(patch: Patch) -> None:
    def change(here: Any, _: int, requests: Any) -> dict[str, int]:
        return {"active_tokens": sum(len(requests[one.seq].tokens) for one in here)}

    _change_loads(patch, change)


def count_active_tokens_until_prefill_ends(patch: Patch) -> None:
    def change(here: Any, now: int, requests: Any) -> dict[str, int]:
        prompts = [requests[one.seq].prompt for one in here if one.filled > now]
        return {
            "active_tokens": sum(
                len(one) - longest_common(prompts[:at], one) for at, one in enumerate(prompts)
            )
        }

    _change_loads(patch, change)


def count_a_request_as_queued_when_its_prefill_begins(patch: Patch) -> None:
    def change(here: Any, now: int, _: Any) -> dict[str, int]:
        queued = sum(one.start >= now for one in here)
        return {"queued_requests": queued, "running_requests": len(here) - queued}

    _change_loads(patch, change)


def take_replicas_that_are_away_for_the_best(patch: Patch) -> None:
    def best(fleet: RoutedFleet, prompt: Sequenced, _: Any) -> ReplicaView | None:
        away, fleet.away = fleet.away, [0] * len(fleet.away)
        truths = fleet.see(prompt, fleet.present, fleet.now, fleet.caches)
        fleet.away = away
        return _best(fleet, prompt, truths)

    patch.setattr(RoutedFleet, "best", best)


def take_replicas_that_are_too_small_for_the_best(patch: Patch) -> None:
    def best(_fleet: RoutedFleet, _: Any, truths: Sequence[ReplicaView]) -> ReplicaView | None:
        return min(truths, key=lambda one: (one.ttft_ticks, one.replica_id), default=None)

    patch.setattr(RoutedFleet, "best", best)


def take_the_last_of_equals_for_the_best(patch: Patch) -> None:
    def best(fleet: RoutedFleet, prompt: Any, truths: Any) -> ReplicaView | None:
        return _best(fleet, prompt, truths) and min(
            (one for one in truths if one.ttft_ticks == _best(fleet, prompt, truths).ttft_ticks),
            key=lambda one: -one.replica_id,
        )

    patch.setattr(RoutedFleet, "best", best)


def take_what_the_router_sees_for_the_best(patch: Patch) -> None:
    def best(fleet: RoutedFleet, prompt: Any, _: Any) -> ReplicaView | None:
        return _best(fleet, prompt, fleet.what_is_seen(prompt))

    patch.setattr(RoutedFleet, "best", best)


def _change_regret(patch: Patch, regret: Callable[[RoutedFleet, Decision], int]) -> None:
    def route(fleet: RoutedFleet, seq: int) -> Decision:
        told = _route(fleet, seq)
        one = fleet.failed.get(seq, told)
        if one.outcome == "served":
            one.regret_ticks = regret(fleet, one)
        return told

    patch.setattr(RoutedFleet, "route", route)


def regret_the_wait_for_room_too(patch: Patch) -> None:
    def regret(fleet: RoutedFleet, one: Decision) -> int:
        took = round((one.queue_wait_ms + one.exec_ms) * TICKS_PER_MS)
        return took - fleet.choice[2].ttft_ticks

    _change_regret(patch, regret)


def regret_by_what_was_believed(patch: Patch) -> None:
    def regret(fleet: RoutedFleet, one: Decision) -> int:
        seen, _, best = fleet.choice
        if seen.exec_ticks is None:
            return one.regret_ticks
        return seen.ttft_ticks - best.ttft_ticks

    _change_regret(patch, regret)


def count_requests_after_the_wait_for_room(patch: Patch) -> None:
    serve = RoutedFleet.serve

    def later(fleet: RoutedFleet, seq: int, chosen: int, start: int) -> Any:
        seen, truth, best = fleet.choice
        here = [one for one in fleet.in_flight if one.replica == chosen]
        counts = {
            "queued_requests": sum(one.start > fleet.now for one in here),
            "running_requests": sum(one.start <= fleet.now for one in here),
        }
        if fleet.model.in_flight == "pins":
            fleet.choice = (seen, ReplicaView(**asdict(truth) | counts), best)
        return serve(fleet, seq, chosen, start)

    patch.setattr(RoutedFleet, "serve", later)


def believe_what_matches_after_the_wait_for_room(patch: Patch) -> None:
    def route(fleet: RoutedFleet, seq: int) -> Decision:
        told = _route(fleet, seq)
        one = fleet.failed.get(seq, told)
        if one.believed_matched_tokens is not None and fleet.view[0] == "exact":
            one.believed_matched_tokens = one.matched_tokens
        return told

    patch.setattr(RoutedFleet, "route", route)


def _change_prices(patch: Patch, change: Callable[[float, Prices], Prices]) -> None:
    patch.setattr(router_oracle, "prices_at", change)


def do_only_prefill_at_a_replicas_speed(patch: Patch) -> None:
    _change_prices(patch, lambda speed, all_: (all_[0] / speed, *all_[1:]))


def decode_at_the_same_speed_everywhere(patch: Patch) -> None:
    _change_prices(patch, lambda speed, all_: (all_[0] / speed, all_[1] / speed, all_[2]))


def look_up_at_the_same_speed_everywhere(patch: Patch) -> None:
    _change_prices(patch, lambda speed, all_: (all_[0] / speed, all_[1], all_[2] / speed))


def take_a_speed_for_a_price(patch: Patch) -> None:
    _change_prices(patch, lambda speed, all_: tuple(price * speed for price in all_))


PLANTS = (
    let_queues_of_the_past_drain_until_now,
    count_prefill_until_it_begins,
    count_prefill_of_whole_prompts,
    count_active_tokens_once_a_request,
    count_active_tokens_until_prefill_ends,
    count_a_request_as_queued_when_its_prefill_begins,
    take_replicas_that_are_away_for_the_best,
    take_replicas_that_are_too_small_for_the_best,
    take_the_last_of_equals_for_the_best,
    take_what_the_router_sees_for_the_best,
    regret_the_wait_for_room_too,
    regret_by_what_was_believed,
    count_requests_after_the_wait_for_room,
    believe_what_matches_after_the_wait_for_room,
    do_only_prefill_at_a_replicas_speed,
    decode_at_the_same_speed_everywhere,
    look_up_at_the_same_speed_everywhere,
    take_a_speed_for_a_price,
)
