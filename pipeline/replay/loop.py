"""The one loop: requests in, decisions and evictions out."""

from typing import NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

from pipeline.kernel import NONE, kernel
from pipeline.replay.cache import EVICTION, insert, look_up, touch_match
from pipeline.replay.cost import exec_ticks, ttft_cents
from pipeline.replay.fleet import REQUEST, new_fleet
from pipeline.replay.policies import SIGNATURE
from pipeline.tree import TraceTree, came

SERVED, EMPTY, TOO_LONG = 0, 1, 2
"""Outcomes, in the order of tables.OUTCOMES."""

DECISION = np.dtype(
    [
        ("replica_id", np.int32),  # NONE if rejected
        ("outcome", np.int32),
        ("matched_tokens", np.int64),
        ("best_matched_tokens", np.int64),
        ("ever_tokens", np.int64),  # longest prefix that any replica ever held
        ("queue_ticks", np.int64),
        ("exec_ticks", np.int64),
        ("ttft_cents", np.int64),
        ("evicted_tokens", np.int64),
        ("evicted_nodes", np.int64),
        ("resident_tokens", np.int64),
    ]
)


class Settings(NamedTuple):
    """What the loop needs of the configuration."""

    capacity_tokens: int
    lookup_ms_per_token: float
    prefill_ms_per_token: float
    probes_touch: bool  # a look-up touches what it finds on every replica
    match_touches: bool  # it touches only what it finds on the chosen one


class Batch(NamedTuple):
    """Consecutive requests: seq of the first, and one item a request.

    clock_ticks says how far queues have drained, in ticks since the start, when it arrives.
    """

    first_seq: int
    prompt_tokens: NDArray[np.int64]
    first_token_id: NDArray[np.uint64]
    clock_ticks: NDArray[np.int64]


@kernel
def _observe(fleet, prompt_tokens, clock, settings):
    """Fill in each replica's queue, match and cost for a request; return the longest match."""
    cold = exec_ticks(prompt_tokens, 0, settings)
    best = 0
    for r in range(len(fleet.replicas)):
        replica = fleet.replicas[r]
        matched = fleet.tree.end[fleet.match[r]]
        replica.queue_ticks = max(0, replica.free_at_ticks - clock)
        replica.matched_tokens = matched
        replica.exec_ticks = cold
        if matched > 0:
            replica.exec_ticks = exec_ticks(prompt_tokens, matched, settings)
            best = max(best, matched)
    return best


@kernel
def _serve(fleet, chosen, request, clock, settings, evictions, decision):
    """Insert the prompt on the chosen replica, queue its work and fill in the decision."""
    replica, last = fleet.replicas[chosen], fleet.tree.last[request.seq]
    new_tokens = request.prompt_tokens - replica.matched_tokens
    overflow = replica.resident_tokens + new_tokens - settings.capacity_tokens
    resident = replica.resident_tokens
    evicted = insert(fleet, chosen, last, request.seq, overflow, evictions)
    replica.free_at_ticks = max(replica.free_at_ticks, clock) + replica.exec_ticks
    replica.requests += 1
    decision.outcome, decision.replica_id = SERVED, chosen
    decision.matched_tokens = replica.matched_tokens
    decision.queue_ticks, decision.exec_ticks = replica.queue_ticks, replica.exec_ticks
    decision.ttft_cents = ttft_cents(replica.queue_ticks, replica.exec_ticks)
    decision.evicted_tokens = resident + new_tokens - replica.resident_tokens
    decision.evicted_nodes = evicted
    decision.resident_tokens = replica.resident_tokens
    return evicted


def _loop_types():
    """Return the types of `replay_batch`'s arguments, read off small ones."""
    tree = TraceTree(np.full(1, NONE, np.int32), np.zeros(1, np.int64), np.zeros(1, np.int32))
    column = np.zeros(1, np.int64)
    batch = Batch(0, column, np.zeros(1, np.uint64), column)
    examples = (
        new_fleet(tree, 1),
        batch,
        Settings(1, 0.0, 0.0, probes_touch=True, match_touches=True),
        np.zeros(1, DECISION),
    )
    return tuple(numba.typeof(e) for e in examples)


_ARGUMENTS = _loop_types()
_RESULT = types.Tuple((types.int64, types.Array(numba.from_dtype(EVICTION), 1, "C")))


@kernel(signature=_RESULT(*_ARGUMENTS, types.FunctionType(SIGNATURE)), allocates=True)
def replay_batch(fleet, batch, settings, decisions, choose):
    """Route and serve a batch; return how many were done and their evictions, in order.

    Fewer than the batch are done if the policy chose a replica that does not exist.
    """
    evictions, evicted = np.empty(1024, EVICTION), 0
    request = np.zeros(1, REQUEST)[0]
    for i in range(len(decisions)):
        seq, clock = batch.first_seq + i, batch.clock_ticks[i]
        decision, last = decisions[i], fleet.tree.last[seq]
        came(fleet.upcoming, seq)
        decision.replica_id = NONE
        if batch.prompt_tokens[i] == 0:
            decision.outcome = EMPTY
            continue
        request.seq, request.prompt_tokens = seq, batch.prompt_tokens[i]
        request.first_token_id = batch.first_token_id[i]
        decision.ever_tokens = look_up(fleet, last, seq, settings.probes_touch)
        decision.best_matched_tokens = _observe(fleet, request.prompt_tokens, clock, settings)
        chosen = choose(request, fleet.replicas, fleet.memory)
        if not 0 <= chosen < len(fleet.replicas):
            return i, evictions[:evicted]
        if settings.match_touches:
            touch_match(fleet, chosen, seq)
        if request.prompt_tokens > settings.capacity_tokens:
            decision.outcome = TOO_LONG
            continue
        # a victim is an edge of at least one token, so this request can't need more rows
        most = min(request.prompt_tokens, fleet.pool[0] - fleet.pool[2])
        while len(evictions) - evicted < most:
            evictions = np.concatenate((evictions, np.empty_like(evictions)))
        rows = evictions[evicted:]
        evicted += _serve(fleet, chosen, request, clock, settings, rows, decision)
    return len(decisions), evictions[:evicted]
