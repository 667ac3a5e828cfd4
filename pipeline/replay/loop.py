"""The one loop: requests in, decisions and evictions out."""

import numba
import numpy as np
from numba import types

from pipeline.config import CostModel, ReplicaConfig
from pipeline.kernel import NONE, kernel
from pipeline.replay.absences import pass_until
from pipeline.replay.cache import EVICTION
from pipeline.replay.eviction import begin_touches
from pipeline.replay.fleet import CacheRules, new_fleet, paths_of
from pipeline.replay.lookup import prefix_node, touch_match
from pipeline.replay.observe import believe, copy_those_here, note_best, observe
from pipeline.replay.policies.choice import chance_of
from pipeline.replay.policies.rule import SIGNATURE
from pipeline.replay.records import PREFIX, REQUEST, SESSION, new_replicas
from pipeline.replay.router import (
    AGAIN,
    CALLS,
    EXACT,
    LAG,
    ROUTED,
    TOLD,
    Batch,
    Router,
    Settings,
    forget_old,
    remember,
    router_of_belief,
    those_told,
    until_when,
)
from pipeline.replay.rows import rows_to_serve, with_rows
from pipeline.replay.serve import (
    EMPTY,
    NO_REPLICA,
    SERVED,
    fits,
    serve,
    wait_for_room,
)
from pipeline.tree import build_tree
from pipeline.upcoming import came, upcoming_requests

DECISION = np.dtype(
    [
        ("replica_id", np.int32),  # NONE if rejected
        ("routed_to", np.int32),  # NONE if the policy was not asked
        ("branch", np.int32),  # which of the policy's scores decided
        ("best_replica_id", np.int32),  # with the least queue + execution, NONE if none could
        ("outcome", np.int32),
        ("matched_tokens", np.int64),
        ("believed_matched_tokens", np.int64),  # what the router expected
        ("best_matched_tokens", np.int64),
        ("resident_tokens_here", np.int64),  # longest prefix that the replica holds
        ("resident_tokens_best", np.int64),  # longest prefix that any replica holds
        ("ever_tokens", np.int64),  # longest prefix that any replica ever computed
        ("queue_ticks", np.int64),
        ("exec_ticks", np.int64),
        ("ttft_cents", np.int64),
        ("regret_ticks", np.int64),  # how much less it was on best_replica_id
        ("evicted_tokens", np.int64),
        ("evicted_nodes", np.int64),
        ("resident_tokens", np.int64),
        ("queued_requests", np.int32),
        ("running_requests", np.int32),
        ("kept_once", np.bool_),  # all of it was kept once, a partial last block included
    ],
    align=True,
)


def _loop_types():
    """Return the types of `replay_batch`'s arguments, read off small ones."""
    none = np.zeros(0, np.int64)
    tree = build_tree(none.astype(np.uint32), none, none.astype(np.uint32))
    paths = paths_of(tree, tree, upcoming_requests(tree))
    rules = CacheRules(
        1, keep_partial=True, whole_leaves=True, probes_touch=True, match_touches=True
    )
    replicas = new_replicas((ReplicaConfig(1),), CostModel(), 1)
    fleet, request = new_fleet(paths, replicas, rules), np.zeros(2, REQUEST)
    batch = Batch(none, none, none.astype(np.uint64), none, none, none.astype(np.uint64))
    settings = Settings(
        pins=True, counts=True, waits=True, cache_output=True, keeps_output=True, sees=EXACT,
        delay_ticks=0, needs=0, draws=True, guarded=True, prefix_tokens=0, tie=0, seed=0,
    )  # fmt: skip
    router = Router(fleet, replicas, request, np.zeros(0), none, none, none, settings)
    return tuple(numba.typeof(e) for e in (fleet, router, batch, settings, np.zeros(1, DECISION)))


_FLEET, _ROUTER, _BATCH, _SETTINGS, _DECISIONS = _loop_types()
_ROWS = types.Array(numba.from_dtype(EVICTION), 1, "C")
_RULE = types.FunctionType(SIGNATURE)
_RESULT = types.Tuple((types.int64, _ROWS))
_REPLAY_SIGNATURE = _RESULT(_FLEET, _ROUTER, _BATCH, _BATCH, _SETTINGS, _DECISIONS, _RULE)


@kernel(inner=True)
def _ask(request, fleet, batch, i, settings):
    """Fill in what the policy sees of a request."""
    request.seq, request.prompt_tokens = batch.seq[i], batch.prompt_tokens[i]
    request.first_token_id, request.clock_ticks = batch.first_token_id[i], batch.clock_ticks[i]
    request.block_tokens, request.tie = fleet.rules.block_tokens, settings.tie
    request.branch = 0
    if settings.needs & PREFIX != 0:
        request.prefix = np.uint64(prefix_node(fleet, request.seq, settings.prefix_tokens))
    if settings.needs & SESSION != 0:
        request.session = batch.session[i]
    if settings.draws:
        request.chance = chance_of(settings.seed, request.seq)


@kernel(inner=True)
def _not_routed(fleet, prompt_tokens):
    """Return why a request is rejected before anybody is asked, SERVED if it is not."""
    if prompt_tokens == 0:
        return EMPTY
    return NO_REPLICA if fleet.clock[0].away == len(fleet.replicas) else SERVED


@kernel(inner=True)
def _route(fleet, router, past, known, settings, decision, row, choose):
    """Ask the policy; return its replica, NONE if there is no such.

    `past` has `known` requests that came before; `row` is overwritten.
    """
    request = asked = router.request[0]
    least, shown = note_best(fleet, request, decision), fleet.replicas
    if settings.sees in (LAG, ROUTED):
        if settings.sees == ROUTED and settings.delay_ticks > 0:
            forget_old(router, past, known, request.clock_ticks - settings.delay_ticks, row)
        believe(router.belief, fleet, request, settings)
        shown = router.belief.replicas
    if fleet.clock[0].away > 0 or settings.guarded:
        shown = router.here[: copy_those_here(fleet, shown, router.here)]
    if settings.sees == AGAIN:
        router.choices[0] += 1
        place = router.choices[router.choices[0]]
    else:
        if settings.guarded:
            router.request[1] = request
            asked = router.request[1]
        place = choose(asked, shown, router.parameters, router.memory)
    if not 0 <= place < len(shown):
        return NONE
    if settings.sees == LAG:
        router.progress[CALLS] += 1
        router.choices[router.progress[CALLS]] = place
    chosen = shown[place].replica_id
    decision.routed_to, decision.branch, request.turn = chosen, asked.branch, chosen + 1
    decision.believed_matched_tokens = shown[place].matched_tokens
    here = fleet.replicas[chosen]
    decision.regret_ticks = here.queue_ticks + here.exec_ticks - least
    return chosen


@kernel(signature=_REPLAY_SIGNATURE, allocates=True)
def replay_batch(fleet, router, batch, past, settings, decisions, choose):
    """Route and serve a batch; return how many were done and their evictions, in order.

    `past` ends with the batch, after the requests that the router's belief has yet to hear of.
    Whatever is due by a request's arrival happens before it, even if its prompt is empty. Fewer
    than the batch are done if the policy chose a replica that does not exist.
    """
    rows, used = np.empty(1024, EVICTION), np.int64(0)
    request, before = router.request[0], len(past.seq) - len(decisions)
    for i in range(len(decisions)):
        seq, clock, decision = batch.seq[i], batch.clock_ticks[i], decisions[i]
        begin_touches(fleet, seq)
        if clock >= fleet.clock[0].next_event:
            rows, used = pass_until(fleet, clock, seq, settings, rows, used)
        came(fleet.upcoming, seq)
        fleet.clock[0].latest_seq = seq
        decision.replica_id, decision.routed_to = NONE, NONE
        decision.outcome = _not_routed(fleet, batch.prompt_tokens[i])
        if decision.outcome != SERVED:
            continue
        seen_at = clock
        if settings.sees == LAG:
            told, seen_at = router.progress[TOLD], clock - settings.delay_ticks
            router.progress[TOLD] = until_when(past, told, before + i, seen_at)
            again = those_told(past, told, router.progress[TOLD])
            unread, later = np.zeros(len(again.seq), DECISION), router_of_belief(router)
            replay_batch(router.belief, later, again, again, router.exactly, unread, choose)
        if settings.sees in (LAG, ROUTED) and seen_at >= router.belief.clock[0].next_event:
            known_seq = seq if settings.sees == ROUTED else router.belief.clock[0].latest_seq
            rows, _ = pass_until(router.belief, seen_at, known_seq, settings, rows, used)
        _ask(request, fleet, batch, i, settings)
        observe(fleet, request, settings, decision)
        rows = with_rows(rows, used, np.int64(1))
        known, row = before + i, rows[used]
        chosen = _route(fleet, router, past, known, settings, decision, row, choose)
        if chosen == NONE:
            return i, rows[:used]
        touch_match(fleet, chosen, seq)
        earliest = clock
        if not fits(fleet, chosen, request, settings):
            rows, used, earliest = wait_for_room(
                fleet, chosen, request, settings, decision, rows, used
            )
        if earliest == NONE:
            continue
        rows = with_rows(rows, used, rows_to_serve(fleet, request, settings))
        output, row = batch.output_tokens[i], rows[used:]
        used += serve(fleet, chosen, request, output, earliest, settings, row, decision)
        if settings.sees == ROUTED:
            rows = with_rows(rows, used, rows_to_serve(router.belief, request, settings))
            remember(router.belief, chosen, request, rows[used:])
    return len(decisions), rows[:used]
