"""What happens between two requests: completions, and replicas that go away and return."""

import numpy as np

from pipeline.kernel import NONE, kernel
from pipeline.replay.cache import evict_leaf
from pipeline.replay.flight import forget_flight, land, next_due, note_next_event, pass_time
from pipeline.replay.heap import pop
from pipeline.replay.records import CLOSE, NEVER_TICKS, OPEN, WIPE
from pipeline.replay.room import unpin
from pipeline.replay.rows import rows_of_all, rows_to_land, with_rows


@kernel(inner=True, inline=False, allocates=True)
def pass_until(fleet, clock, seq, settings, rows, used):
    """Let all happen that is due by `clock`, before request `seq` comes.

    Of what happens at one time, completions come before replicas go away. Returns the rows of
    evictions, and how many are used.
    """
    due_changes = True
    while due_changes:
        number, moment = fleet.clock[0].next_change, clock
        due_changes = False
        if number < len(fleet.changes) and fleet.changes[number].ticks <= clock:
            due_changes = fleet.changes[number].row <= seq
        if due_changes:
            moment = fleet.changes[number].ticks
        pass_time(fleet, moment)
        replica = next_due(fleet, moment)
        while replica != NONE:
            rows = with_rows(rows, used, rows_to_land(fleet, replica, settings))
            used += land(fleet, replica, moment, settings.keeps_output, rows[used:])
            replica = next_due(fleet, moment)
        if due_changes:
            rows = with_rows(rows, used, rows_of_all(fleet))
            used += _change(fleet, fleet.changes[number], rows[used:])
            fleet.clock[0].next_change += 1
    note_next_event(fleet)
    return rows, used


@kernel(inner=True)
def _change(fleet, change, evictions):
    """Let a replica go away, lose all that it has, or return; return the evictions."""
    number, evicted = np.int64(change.replica), np.int64(0)
    replica = fleet.replicas[number]
    was_away = replica.away > 0
    if change.what == CLOSE:
        replica.away += 1
    elif change.what == OPEN:
        replica.away -= 1
    else:
        evicted = _lose_all(fleet, number, change.ticks, evictions)
    fleet.clock[0].away += (replica.away > 0) - was_away
    return evicted


@kernel(inner=True)
def _lose_all(fleet, number, ticks, evictions):
    """Drop a replica's requests in flight and its cache, the least recent leaf first."""
    replica, flights, evicted = fleet.replicas[number], fleet.flights, np.int64(0)
    while replica.flying != NONE:
        lost = np.int64(replica.flying)
        replica.flying = pop(flights, lost)
        unpin(fleet, number, flights[lost].edge)
        forget_flight(fleet, number, lost)
    while replica.first_ahead != NONE:
        lost = np.int64(replica.first_ahead)
        replica.first_ahead = flights[lost].after
        forget_flight(fleet, number, lost)
    replica.first_waiting, replica.first_unfilled = NONE, NONE
    replica.queued_requests, replica.running_requests, replica.prefill_tokens = 0, 0, 0
    replica.held_blocks = 0
    replica.free_at_ticks = min(replica.free_at_ticks, ticks)
    while replica.resident_tokens > 0:
        evict_leaf(fleet, number, evictions[evicted])
        evicted += 1
    replica.lost_at_ticks = NEVER_TICKS
    for later in range(fleet.clock[0].next_change + 1, len(fleet.changes)):
        change = fleet.changes[later]
        if change.replica == number and change.what == WIPE and change.ticks > ticks:
            replica.lost_at_ticks = change.ticks
            break
    return evicted
