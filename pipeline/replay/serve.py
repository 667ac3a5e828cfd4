"""What a replica does with a request that was routed to it."""

import numpy as np

from pipeline.kernel import NONE, kernel
from pipeline.replay.cache import insert
from pipeline.replay.cost import decode_ticks, ttft_cents
from pipeline.replay.eviction import next_touch
from pipeline.replay.fleet import BEYOND
from pipeline.replay.flight import keep_output, land, take_off
from pipeline.replay.lookup import bit_of, mark_computed, touch_match
from pipeline.replay.observe import observe
from pipeline.replay.room import blocks_of, has_room
from pipeline.replay.rows import rows_to_land, with_rows

SERVED, EMPTY, TOO_LONG, PINNED, NO_REPLICA, FAILED = 0, 1, 2, 3, 4, 5
"""Outcomes, in the order of tables.OUTCOMES."""


@kernel(inner=True)
def fits(fleet, replica, request, settings):
    """Tell whether a replica has room for what it would have to compute of a request."""
    state, blocks = fleet.replicas[replica], blocks_of(fleet, request.prompt_tokens)
    if blocks > state.capacity_blocks or not settings.pins:
        return blocks <= state.capacity_blocks
    matched = state.matched_tokens
    need = blocks - blocks_of(fleet, matched)
    return has_room(fleet, replica, np.int64(state.match), matched, need)


@kernel(inner=True, inline=False, allocates=True)
def wait_for_room(fleet, replica, request, settings, decision, rows, used):
    """Let requests complete until a request has room on its replica.

    Returns the rows of evictions, how many are used, and when there is room, NONE if never.
    """
    clock = request.clock_ticks
    earliest, state = clock, fleet.replicas[replica]
    decision.outcome = TOO_LONG
    if blocks_of(fleet, request.prompt_tokens) > state.capacity_blocks:
        return rows, used, NONE
    decision.outcome = PINNED
    while not fits(fleet, replica, request, settings):
        if not settings.waits or state.flying == NONE:
            return rows, used, NONE
        earliest = max(clock, fleet.flights[state.flying].key)
        rows = with_rows(rows, used, rows_to_land(fleet, replica, settings))
        used += land(fleet, replica, clock, settings.keeps_output, rows[used:])
        observe(fleet, request, settings, decision)
        touch_match(fleet, replica, request.seq)
    return rows, used, earliest


@kernel(inner=True)
def serve(fleet, chosen, request, output_tokens, earliest, settings, evictions, decision):
    """Insert the prompt on the chosen replica, queue its work and fill in the decision."""
    replica, last = fleet.replicas[chosen], np.int64(fleet.ends[request.seq].last)
    word, bit = bit_of(chosen)
    decision.replica_id = chosen
    decision.matched_tokens = replica.matched_tokens
    decision.resident_tokens_here = replica.matched_tokens
    if fleet.words[BEYOND, word] & bit != 0:
        decision.resident_tokens_here = fleet.nodes[last].end
    decision.queued_requests = replica.queued_requests
    decision.running_requests = replica.running_requests
    path = (np.int64(replica.match), np.int64(replica.missing), last)
    blocks, touch = blocks_of(fleet, request.prompt_tokens), next_touch(fleet)
    need = blocks - blocks_of(fleet, replica.matched_tokens)
    evicted, edge = insert(fleet, chosen, path, request.seq, touch, need, evictions)
    mark_computed(fleet, fleet.ends[request.seq].last_token)
    for row in range(evicted):
        decision.evicted_tokens += evictions[row].evicted_tokens
        decision.evicted_nodes += evictions[row].evicted_nodes
    start = max(replica.free_at_ticks, earliest)
    filled = start + replica.exec_ticks
    done = filled + decode_ticks(output_tokens, replica)
    decision.outcome = SERVED if done <= replica.lost_at_ticks else FAILED
    replica.free_at_ticks = filled
    replica.requests += 1
    waited = start - request.clock_ticks
    decision.queue_ticks, decision.exec_ticks = waited, replica.exec_ticks
    decision.ttft_cents = ttft_cents(waited, replica.exec_ticks)
    if settings.counts:
        held = blocks - blocks_of(fleet, fleet.nodes[last].end) if settings.pins else 0
        pinned = edge if settings.pins else NONE
        take_off(fleet, chosen, request, pinned, held, (start, filled, done))
    if settings.cache_output and not settings.pins:
        rows = evictions[evicted:]
        evicted += keep_output(fleet, chosen, request.seq, rows)
    decision.resident_tokens = replica.resident_tokens
    return evicted
