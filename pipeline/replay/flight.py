"""Requests in flight: what they pin, and what happens as they complete, in order of time and seq.

Each replica has a heap of requests by their completion, a line of those whose prefill has not
ended, with a mark where those begin whose prefill has not begun, and a line of those that completed
ahead of the clock because a request waited for them: what they pinned is free by then, but the
router still sees them.
"""

import numpy as np

from pipeline.kernel import NONE, kernel
from pipeline.replay.active import activate, deactivate
from pipeline.replay.cache import insert
from pipeline.replay.eviction import next_touch, touch_up
from pipeline.replay.fleet import FLIGHTS
from pipeline.replay.heap import comes_before, pop, push
from pipeline.replay.lookup import holds, mark_computed, matched_until
from pipeline.replay.pool import give_back, take
from pipeline.replay.records import NEVER_TICKS
from pipeline.replay.room import blocks_of, has_room, pin, unpin


@kernel(inner=True)
def pass_time(fleet, clock):
    """Let prefills begin and end, and requests that completed ahead of the clock go."""
    flights = fleet.flights
    for r in range(len(fleet.replicas)):
        state = fleet.replicas[r]
        while state.first_waiting != NONE and flights[state.first_waiting].start_ticks <= clock:
            state.first_waiting = flights[state.first_waiting].behind
            state.queued_requests -= 1
            state.running_requests += 1
        while state.first_unfilled != NONE and flights[state.first_unfilled].filled_ticks <= clock:
            state.prefill_tokens -= flights[state.first_unfilled].computed_tokens
            state.first_unfilled = flights[state.first_unfilled].behind
        while state.first_ahead != NONE and flights[state.first_ahead].key <= clock:
            gone = state.first_ahead
            state.first_ahead = flights[gone].after
            depart(fleet, r, gone)


@kernel(inner=True)
def note_next_event(fleet):
    """Note the next moment at which something happens between requests."""
    flights, clock, soonest = fleet.flights, fleet.clock[0], np.int64(NEVER_TICKS)
    if clock.next_change < len(fleet.changes):
        soonest = fleet.changes[clock.next_change].ticks
    for r in range(len(fleet.replicas)):
        state = fleet.replicas[r]
        if state.first_waiting != NONE:
            soonest = min(soonest, flights[state.first_waiting].start_ticks)
        if state.first_unfilled != NONE:
            soonest = min(soonest, flights[state.first_unfilled].filled_ticks)
        if state.first_ahead != NONE:
            soonest = min(soonest, flights[state.first_ahead].key)
        if state.flying != NONE:
            soonest = min(soonest, flights[state.flying].key)
    clock.next_event = soonest


@kernel(inner=True)
def depart(fleet, replica, number):
    """Let a request that completed leave the replica."""
    fleet.replicas[replica].running_requests -= 1
    forget_flight(fleet, replica, number)


@kernel(inner=True)
def forget_flight(fleet, replica, number):
    """Give the record of a request in flight back."""
    if len(fleet.active) > 1:
        deactivate(fleet, replica, fleet.ends[fleet.flights[number].seq].last_token)
    give_back(fleet.pools[FLIGHTS], fleet.flights, number)


@kernel(inner=True)
def next_due(fleet, clock):
    """Return the replica of the first completion that is due at `clock`, or NONE."""
    due, flights = NONE, fleet.flights
    for r in range(len(fleet.replicas)):
        first = fleet.replicas[r].flying
        if first == NONE or flights[first].key > clock:
            continue
        if due == NONE or comes_before(flights, first, fleet.replicas[due].flying):
            due = r
    return due


@kernel(inner=True)
def take_off(fleet, replica, request, edge, held, times):
    """Put a request in flight, with the path down to `edge` pinned.

    `times` are when its prefill begins and ends, and when it completes, in ticks.
    """
    number = take(fleet.pools[FLIGHTS], fleet.flights)
    flight, state = fleet.flights[number], fleet.replicas[replica]
    flight.start_ticks, flight.filled_ticks, flight.key = times
    flight.seq, flight.edge, flight.held_blocks = request.seq, edge, held
    flight.computed_tokens = request.prompt_tokens - state.matched_tokens
    flight.behind, flight.after = NONE, NONE
    pin(fleet, replica, edge)
    fleet.clock[0].next_event = min(fleet.clock[0].next_event, flight.start_ticks)
    state.held_blocks += held
    state.queued_requests += 1
    state.prefill_tokens += flight.computed_tokens
    if state.first_unfilled == NONE:
        state.first_unfilled = number
    else:
        fleet.flights[state.last_unfilled].behind = number
    state.last_unfilled = number
    if state.first_waiting == NONE:
        state.first_waiting = number
    state.flying = push(fleet.flights, state.flying, number)
    if len(fleet.active) > 1:
        activate(fleet, replica, fleet.ends[request.seq].last_token)


@kernel(inner=True, inline=False)
def land(fleet, replica, clock, keeps_output, evictions):
    """Complete the next request of a replica; return the evictions that its output made.

    Its path counts as used. `clock` tells whether that is ahead of time.
    """
    flights, state = fleet.flights, fleet.replicas[replica]
    number = state.flying
    flight = flights[number]
    state.flying = pop(flights, number)
    touch_up(fleet, flight.edge, next_touch(fleet), flight.seq)
    unpin(fleet, replica, flight.edge)
    state.held_blocks -= flight.held_blocks
    evicted = 0
    if keeps_output:
        evicted = keep_output(fleet, replica, flight.seq, evictions)
    if flight.key <= clock:
        depart(fleet, replica, number)
    else:
        if state.first_ahead == NONE:
            state.first_ahead = number
        else:
            flights[state.last_ahead].after = number
        state.last_ahead = number
    return evicted


@kernel(inner=True, inline=False)
def keep_output(fleet, replica, seq, evictions):
    """Insert prompt + output of a request that completes, if there is room; return evictions."""
    nodes, ends = fleet.nodes, fleet.ends[seq]
    last = np.int64(ends.whole)
    if last == ends.last:
        return 0
    node, below = last, np.int64(NONE)
    while node > 0 and not holds(fleet, replica, node):
        below, node = node, np.int64(nodes[node].parent)
    matched = matched_until(fleet, replica, node)
    need = blocks_of(fleet, nodes[last].end) - blocks_of(fleet, matched)
    whole = fleet.tokens[ends.whole_token].end
    if blocks_of(fleet, whole) > fleet.replicas[replica].capacity_blocks:
        return 0
    if not has_room(fleet, replica, node, matched, need):
        return 0
    fleet.brought[seq] = matched
    touch = next_touch(fleet)
    fleet.clock[0].look_up_touch = touch
    evicted, _ = insert(fleet, replica, (node, below, last), seq, touch, need, evictions)
    mark_computed(fleet, ends.whole_token)
    return evicted
