"""What replicas have for the request at hand: in truth, and as the router sees it."""

import numpy as np

from pipeline.kernel import NONE, kernel
from pipeline.replay.active import look_up_active
from pipeline.replay.cost import exec_ticks
from pipeline.replay.edges import edge_over
from pipeline.replay.eviction import last_user, next_touch
from pipeline.replay.fleet import BEYOND, SEEN
from pipeline.replay.lookup import bit_of, ever_tokens, look_up, matched_until, touch_path
from pipeline.replay.records import ACTIVE, NEVER_TICKS, RECENCY
from pipeline.replay.room import blocks_of
from pipeline.replay.router import ROUTED


@kernel(inner=True)
def observe(fleet, request, settings, decision):
    """Look a request up; fill in what each replica has for it, and what any of them has."""
    touch = next_touch(fleet)
    fleet.clock[0].look_up_touch = touch
    asks_last = settings.needs & RECENCY != 0  # who used it before this look-up
    touches = fleet.rules.probes_touch
    top = look_up(fleet, request.seq, touch if touches and not asks_last else NONE)
    best = _fill(fleet, request, top, request.clock_ticks, settings.needs)
    if touches and asks_last:
        touch_path(fleet, request.seq, touch)
    ends = fleet.ends[request.seq]
    decision.ever_tokens = ever_tokens(fleet, ends.last_token)
    decision.best_matched_tokens = best
    decision.resident_tokens_best = best
    decision.kept_once = fleet.rules.keep_partial and fleet.kept[ends.last]
    beyond = np.uint64(0)
    for word in range(fleet.words.shape[1]):
        beyond |= fleet.words[BEYOND, word]
    if beyond != 0:
        decision.resident_tokens_best = fleet.nodes[ends.last].end


@kernel(inner=True)
def note_best(fleet, request, decision):
    """Note which of the replicas that could take a request has the least queue + execution."""
    blocks, least = blocks_of(fleet, request.prompt_tokens), np.int64(NEVER_TICKS)
    decision.best_replica_id = NONE
    for r in range(len(fleet.replicas)):
        replica = fleet.replicas[r]
        ticks = replica.queue_ticks + replica.exec_ticks
        if ticks < least and replica.away == 0 and blocks <= replica.capacity_blocks:
            decision.best_replica_id, least = r, ticks
    return least


@kernel(inner=True, inline=False)
def believe(belief, fleet, request, settings):
    """Let the replicas of `belief` have what the router expects of them for a request."""
    top, needs = look_up(belief, request.seq, np.int64(NONE)), settings.needs
    if settings.sees == ROUTED:
        needs &= ~ACTIVE
    _fill(belief, request, top, request.clock_ticks - settings.delay_ticks, needs)
    if settings.sees != ROUTED:
        return
    for r in range(len(fleet.replicas)):
        expected, true = belief.replicas[r], fleet.replicas[r]
        expected.queue_ticks = true.queue_ticks
        expected.requests = true.requests
        expected.queued_requests = true.queued_requests
        expected.running_requests = true.running_requests
        expected.prefill_tokens = true.prefill_tokens
        expected.active_tokens = true.active_tokens
        expected.active_matched_tokens = true.active_matched_tokens


@kernel(inner=True)
def copy_those_here(fleet, shown, here):
    """Copy the records of the replicas that take requests to `here`; return how many they are."""
    count = 0
    for r in range(len(shown)):
        if fleet.replicas[r].away == 0:
            here[count] = shown[r]
            count += 1
    return count


@kernel(inner=True)
def _fill(fleet, request, top, now, needs):
    """Fill in what each replica has for a request that was looked up; return the longest match."""
    best, cold, like = 0, 0, NONE
    now = max(now, 0)  # a router that sees the time before the first request sees no queue
    for r in range(len(fleet.replicas)):
        replica, (word, bit) = fleet.replicas[r], bit_of(r)
        replica.queue_ticks = max(0, replica.free_at_ticks - now)
        if fleet.words[SEEN, word] & bit != 0:
            matched = matched_until(fleet, r, replica.match)
            replica.matched_tokens = matched
            replica.exec_ticks = exec_ticks(request.prompt_tokens, matched, replica)
            if needs & RECENCY != 0:
                replica.matched_seq = last_user(fleet, edge_over(fleet, r, replica.match))
            best = max(best, matched)
            continue
        if like == NONE or not _cost_the_same(replica, fleet.replicas[like]):
            cold, like = exec_ticks(request.prompt_tokens, np.int64(0), replica), r
        replica.match, replica.missing, replica.matched_seq = 0, top, NONE
        replica.matched_tokens, replica.exec_ticks = 0, cold
    if needs & ACTIVE != 0:
        look_up_active(fleet, request.seq)
    return best


@kernel(inner=True)
def _cost_the_same(one, other):
    return (
        one.prefill_ms_per_token == other.prefill_ms_per_token
        and one.lookup_ms_per_token == other.lookup_ms_per_token
    )
