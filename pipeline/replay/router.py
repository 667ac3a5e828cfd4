"""The router: what it believes of the replicas, and what its policy goes by and remembers.

What it believes is a fleet: the very one that serves (exact), one that does the same later (lag),
or one whose caches are the router's own trees of what it sent where (routed).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import NONE, kernel
from pipeline.replay.cache import evict_leaf, insert
from pipeline.replay.eviction import (
    TOUCH_BITS,
    begin_touches,
    enqueue,
    next_touch,
    next_victim,
    recency,
)
from pipeline.replay.fleet import Fleet
from pipeline.replay.lookup import holds
from pipeline.replay.room import blocks_of

EXACT, LAG, ROUTED, AGAIN = 0, 1, 2, 3
"""Values of Settings.sees: the first three in the order of config.VIEWS; with the last, no policy
is asked: what was chosen before is chosen again."""


class Settings(NamedTuple):
    """What the loop needs of the configuration, beside the fleet's own rules."""

    pins: bool  # a request in flight pins its path
    counts: bool  # requests in flight are followed, for their pins or for the policy
    waits: bool  # a request waits for room, else it is rejected
    cache_output: bool
    keeps_output: bool  # as requests complete; else as they are served
    sees: int  # EXACT, LAG, ROUTED or AGAIN
    delay_ticks: int  # how late the router sees replicas, or how long it remembers, 0 for ever
    needs: int  # of the policy, see records.LOAD
    draws: bool  # REQUEST.chance is wanted
    guarded: bool  # the policy is not ours: it gets copies
    prefix_tokens: int  # REQUEST.prefix names so many
    tie: int
    seed: int


class Batch(NamedTuple):
    """Requests in order of seq, one item each.

    clock_ticks    how far queues have drained, in ticks since the start, when it arrives
    output_tokens  0 where it is not known
    session        names its session or tenant, 0 for none; may be empty if nobody asks
    """

    seq: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    first_token_id: NDArray[np.uint64]
    clock_ticks: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    session: NDArray[np.uint64]


class Router(NamedTuple):
    """All that a router has.

    belief      the fleet as it sees it
    here        REPLICA[N]       room for the records of those that take requests
    request     REQUEST[2]       the request at hand, and the one that the policy is shown
    parameters  float64[…]       of the policy
    memory      int64[…]         of the policy
    progress    int64[2]         items TOLD and CALLS
    choices     int64[…]         for a belief that does the same later: how often it chose, then
                                 what the policy chose
    exactly     the settings under which it does
    """

    belief: Fleet
    here: NDArray
    request: NDArray
    parameters: NDArray[np.float64]
    memory: NDArray[np.int64]
    progress: NDArray[np.int64]
    choices: NDArray[np.int64]
    exactly: Settings


TOLD, CALLS = 0, 1
"""Items of Router.progress: how many of the requests before have reached the belief, or left it;
how often the policy was asked since the first of these."""


@kernel(inner=True)
def until_when(past, told, known, ticks):
    """Return how many of the first `known` requests in `past` came by a time; `told` did."""
    while told < known and past.clock_ticks[told] <= ticks:
        told += 1
    return told


@kernel(inner=True, allocates=True)
def those_told(past, told, until):
    """Return the requests of the past from one number to before another."""
    return Batch(
        past.seq[told:until],
        past.prompt_tokens[told:until],
        past.first_token_id[told:until],
        past.clock_ticks[told:until],
        past.output_tokens[told:until],
        past.session[told:until],
    )


@kernel(inner=True, allocates=True)
def router_of_belief(router):
    """Return the router of the fleet that does the same later, which has a request of its own."""
    return Router(
        router.belief,
        router.here,
        np.zeros_like(router.request),
        router.parameters,
        router.memory,
        router.progress,
        router.choices,
        router.exactly,
    )


@kernel(inner=True, inline=False)
def remember(belief, replica, request, evictions):
    """Keep a prompt in the router's tree of a replica, at the cost of what was used least."""
    state, last = belief.replicas[replica], np.int64(belief.ends[request.seq].last)
    kept = blocks_of(belief, belief.nodes[last].end)
    if kept > state.capacity_blocks:
        return
    begin_touches(belief, request.seq)
    touch = next_touch(belief)
    belief.clock[0].look_up_touch = touch
    node, below = last, np.int64(NONE)
    while node > 0 and not holds(belief, replica, node):
        below, node = node, np.int64(belief.nodes[node].parent)
    need = kept - blocks_of(belief, belief.nodes[node].end)
    insert(belief, replica, (node, below, last), request.seq, touch, need, evictions)


@kernel(inner=True, inline=False)
def forget_old(router, past, known, ticks, row):
    """Drop what was not routed again after a time; `row` is overwritten.

    `past` has `known` requests that came before the one at hand.
    """
    until = until_when(past, router.progress[TOLD], known, ticks)
    if until > router.progress[TOLD]:
        router.progress[TOLD] = until
        _forget(router.belief, past.seq[until - 1], row)


@kernel(inner=True)
def _forget(belief, seq, row):
    """Drop what was routed last by request `seq` or before."""
    for r in range(len(belief.replicas)):
        state = belief.replicas[r]
        while state.queue != NONE and belief.edges[state.queue].key < (seq + 1) << TOUCH_BITS:
            oldest = next_victim(belief, r)
            enqueue(belief, r, oldest)
            if recency(belief, oldest) >= (seq + 1) << TOUCH_BITS:
                break
            evict_leaf(belief, r, row)
