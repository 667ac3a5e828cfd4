"""The one loop: requests in, decisions and evictions out."""

from typing import NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from pipeline.kernel import NONE, kernel
from pipeline.replay.cache import EVICTION, insert
from pipeline.replay.cost import exec_ticks, ttft_cents
from pipeline.replay.eviction import begin_touches, next_touch
from pipeline.replay.fleet import BEYOND, REQUEST, SEEN, CacheRules, new_fleet, paths_of
from pipeline.replay.flight import keep_output, land, next_due, pass_time, take_off
from pipeline.replay.lookup import (
    bit_of,
    ever_tokens,
    look_up,
    mark_computed,
    matched_until,
    touch_match,
)
from pipeline.replay.policies import SIGNATURE
from pipeline.replay.room import blocks_of, has_room
from pipeline.replay.rows import rows_to_land, rows_to_serve, with_rows
from pipeline.tree import build_tree
from pipeline.upcoming import came, upcoming_requests

SERVED, EMPTY, TOO_LONG, PINNED = 0, 1, 2, 3
"""Outcomes, in the order of tables.OUTCOMES."""

DECISION = np.dtype(
    [
        ("replica_id", np.int32),  # NONE if rejected
        ("outcome", np.int32),
        ("matched_tokens", np.int64),
        ("best_matched_tokens", np.int64),
        ("resident_tokens_here", np.int64),  # longest prefix that the replica holds
        ("resident_tokens_best", np.int64),  # longest prefix that any replica holds
        ("ever_tokens", np.int64),  # longest prefix that any replica ever computed
        ("queue_ticks", np.int64),
        ("exec_ticks", np.int64),
        ("ttft_cents", np.int64),
        ("evicted_tokens", np.int64),
        ("evicted_nodes", np.int64),
        ("resident_tokens", np.int64),
        ("queued_requests", np.int32),
        ("running_requests", np.int32),
        ("kept_once", np.bool_),  # all of it was kept once, a partial last block included
    ],
    align=True,
)


class Settings(NamedTuple):
    """What the loop needs of the configuration, beside the fleet's own rules."""

    lookup_ms_per_token: float
    prefill_ms_per_token: float
    in_flight: bool
    waits: bool  # a request waits for room, else it is rejected
    cache_output: bool


class Batch(NamedTuple):
    """Requests in order of seq, one item each.

    clock_ticks   how far queues have drained, in ticks since the start, when it arrives
    decode_ticks  how long its output takes from the first token on
    """

    seq: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    first_token_id: NDArray[np.uint64]
    clock_ticks: NDArray[np.int64]
    decode_ticks: NDArray[np.int64]


@kernel(inner=True)
def _observe(fleet, request, clock, settings, decision):
    """Look a request up; fill in what each replica has for it, and what any of them has."""
    top = look_up(fleet, request.seq)
    decision.ever_tokens = ever_tokens(fleet, fleet.ends[request.seq].last_token)
    cold = exec_ticks(request.prompt_tokens, 0, settings)
    best, beyond = 0, np.uint64(0)
    for word in range(fleet.words.shape[1]):
        beyond |= fleet.words[BEYOND, word]
    for r in range(len(fleet.replicas)):
        replica, (word, bit) = fleet.replicas[r], bit_of(r)
        replica.queue_ticks = max(0, replica.free_at_ticks - clock)
        if fleet.words[SEEN, word] & bit == 0:
            replica.match, replica.missing = 0, top
            replica.matched_tokens, replica.exec_ticks = 0, cold
        else:
            matched = matched_until(fleet, r, replica.match)
            replica.matched_tokens = matched
            replica.exec_ticks = exec_ticks(request.prompt_tokens, matched, settings)
            best = max(best, matched)
    decision.best_matched_tokens = best
    decision.resident_tokens_best = best
    decision.kept_once = fleet.rules.keep_partial and fleet.kept[fleet.ends[request.seq].last]
    if beyond != 0:
        decision.resident_tokens_best = fleet.nodes[fleet.ends[request.seq].last].end


@kernel(inner=True)
def _serve(fleet, chosen, request, times, settings, evictions, decision):
    """Insert the prompt on the chosen replica, queue its work and fill in the decision."""
    replica, last = fleet.replicas[chosen], np.int64(fleet.ends[request.seq].last)
    clock, earliest, decode_ticks = times
    word, bit = bit_of(chosen)
    decision.outcome, decision.replica_id = SERVED, chosen
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
    replica.free_at_ticks = start + replica.exec_ticks
    replica.requests += 1
    decision.queue_ticks, decision.exec_ticks = start - clock, replica.exec_ticks
    decision.ttft_cents = ttft_cents(start - clock, replica.exec_ticks)
    if settings.in_flight:
        held = blocks - blocks_of(fleet, fleet.nodes[last].end)
        done = start + replica.exec_ticks + decode_ticks
        take_off(fleet, chosen, request.seq, edge, held, (start, done))
    elif settings.cache_output:
        rows = evictions[evicted:]
        evicted += keep_output(fleet, chosen, request.seq, rows)
    decision.resident_tokens = replica.resident_tokens
    return evicted


@kernel(inner=True)
def _fits(fleet, replica, request):
    """Tell whether a replica has room for what it would have to compute of a request."""
    state = fleet.replicas[replica]
    matched = state.matched_tokens
    need = blocks_of(fleet, request.prompt_tokens) - blocks_of(fleet, matched)
    return has_room(fleet, replica, np.int64(state.match), matched, need)


@kernel(inner=True)
def _due(fleet, clock, settings):
    """Let time pass up to `clock`; return the replica of the first completion that is due."""
    if not settings.in_flight or clock < fleet.clock[0].next_event:
        return NONE
    pass_time(fleet, clock)
    return NONE if clock < fleet.clock[0].next_event else next_due(fleet, clock)


def _loop_types():
    """Return the types of `replay_batch`'s arguments, read off small ones."""
    none = np.zeros(0, np.int64)
    tree = build_tree(none.astype(np.uint32), none, none.astype(np.uint32))
    paths = paths_of(tree, tree, upcoming_requests(tree))
    rules = CacheRules(
        1, 1, keep_partial=True, whole_leaves=True, probes_touch=True, match_touches=True
    )
    examples = (
        new_fleet(paths, 1, rules),
        Batch(none, none, none.astype(np.uint64), none, none),
        Settings(0.0, 0.0, in_flight=True, waits=True, cache_output=True),
        np.zeros(1, DECISION),
    )
    return tuple(numba.typeof(e) for e in examples)


_ARGUMENTS = _loop_types()
_ROWS = types.Array(numba.from_dtype(EVICTION), 1, "C")


_RESULT = types.Tuple((types.int64, _ROWS))


@kernel(signature=_RESULT(*_ARGUMENTS, types.FunctionType(SIGNATURE)), allocates=True)
def replay_batch(fleet, batch, settings, decisions, choose):
    """Route and serve a batch; return how many were done and their evictions, in order.

    Whatever completes by a request's arrival does so before it, even if its prompt is empty.
    Fewer than the batch are done if the policy chose a replica that does not exist.
    """
    rows, used = np.empty(1024, EVICTION), 0
    request = np.zeros(1, REQUEST)[0]
    for i in range(len(decisions)):
        seq, clock = batch.seq[i], batch.clock_ticks[i]
        decision = decisions[i]
        begin_touches(fleet, seq)
        due = _due(fleet, clock, settings)
        while due != NONE:
            rows = with_rows(rows, used, rows_to_land(fleet, due, settings))
            used += land(fleet, due, clock, settings.cache_output, rows[used:])
            due = next_due(fleet, clock)
        came(fleet.upcoming, seq)
        fleet.clock[0].latest_seq = seq
        decision.replica_id = NONE
        if batch.prompt_tokens[i] == 0:
            decision.outcome = EMPTY
            continue
        request.seq, request.prompt_tokens = seq, batch.prompt_tokens[i]
        request.first_token_id = batch.first_token_id[i]
        _observe(fleet, request, clock, settings, decision)
        chosen = choose(request, fleet.replicas, fleet.memory)
        if not 0 <= chosen < len(fleet.replicas):
            return i, rows[:used]
        touch_match(fleet, chosen, seq)
        if blocks_of(fleet, request.prompt_tokens) > fleet.rules.capacity_blocks:
            decision.outcome = TOO_LONG
            continue
        earliest = clock
        while settings.in_flight and not _fits(fleet, chosen, request):
            if not settings.waits or fleet.replicas[chosen].flying == NONE:
                earliest = NONE
                break
            earliest = max(clock, fleet.flights[fleet.replicas[chosen].flying].key)
            rows = with_rows(rows, used, rows_to_land(fleet, chosen, settings))
            used += land(fleet, chosen, clock, settings.cache_output, rows[used:])
            _observe(fleet, request, clock, settings, decision)
            touch_match(fleet, chosen, seq)
        if earliest == NONE:
            decision.outcome = PINNED
            continue
        rows = with_rows(rows, used, rows_to_serve(fleet, request, settings))
        times = (clock, earliest, batch.decode_ticks[i])
        used += _serve(fleet, chosen, request, times, settings, rows[used:], decision)
    return len(decisions), rows[:used]
