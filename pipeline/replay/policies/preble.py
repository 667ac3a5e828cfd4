"""Preble: exploit a long match, else spread what was routed in a window of time."""

import numpy as np

from pipeline.kernel import kernel
from pipeline.replay.cost import TICKS_PER_MS
from pipeline.replay.policies.choice import least
from pipeline.replay.policies.rule import Parameter, Policy, Score

_BUCKETS = 60
_CLOCK, _FIRST = 0, 1
_FIELDS = _BUCKETS + 1
"""Memory: number of the latest bucket, then for each replica its buckets and their sum."""


def _windows(replicas):
    return np.zeros(_FIRST + replicas * _FIELDS, np.int64)


@kernel(inner=True)
def _turn(memory, bucket):
    """Make that bucket the latest one: forget what is a window older."""
    passed = min(bucket - memory[_CLOCK], _BUCKETS)
    for b in range(bucket - passed + 1, bucket + 1):
        for start in range(_FIRST, len(memory), _FIELDS):
            memory[start + _BUCKETS] -= memory[start + b % _BUCKETS]
            memory[start + b % _BUCKETS] = 0
    memory[_CLOCK] = max(bucket, memory[_CLOCK])


@kernel(inner=True)
def _load(memory, replica):
    return memory[_FIRST + replica.replica_id * _FIELDS + _BUCKETS]


@kernel(inner=True)
def _add_load(memory, replica, tokens):
    start = _FIRST + replica.replica_id * _FIELDS
    memory[start + memory[_CLOCK] % _BUCKETS] += tokens
    memory[start + _BUCKETS] += tokens


@kernel(inner=True)
def _evicted(request, replica):
    """Return how many tokens would have to go to make room for the request."""
    computed = request.prompt_tokens - replica.matched_tokens
    return max(0, replica.resident_tokens + computed - replica.capacity_tokens)


def preble(request, replicas, parameters, memory):
    """Owner of the match if that is most of the prompt, else least load and eviction.

    Formula: load = tokens to compute of what was routed to a replica in the last window_ms, at
    least 1 a request; cost = load + tokens that would be evicted. If the suffix is shorter than
    the shared context (prompt - max m < max m, m = matched tokens): argmin cost of those with
    max m; but if that one has the highest load and max load > rebalance_factor x min load, argmin
    load. Else argmin cost. Defaults: 180,000 ms (3 minutes), 1.5. Ties: lowest replica. Source:
    WukLab/preble, global_scheduler_with_time.py.

    Departs from it: a token computed costs 1, where the product has a fitted time of prefill; load
    is what this very rule routed where, not shared out among a prefix's replicas by its rate of
    misses; decoding is left out, as a router does not know output lengths; every token evicted
    counts once, not as often as the window asked for it; rebalancing moves the request at hand, not
    a whole prefix, and needs no number of requests to begin. The window moves in 60 steps.
    """
    width = max(1, np.int64(parameters[0] * TICKS_PER_MS) // _BUCKETS)
    _turn(memory, request.clock_ticks // width)
    longest = replicas[0].matched_tokens
    lightest = heaviest = _load(memory, replicas[0])
    for r in range(1, len(replicas)):
        longest = max(longest, replicas[r].matched_tokens)
        lightest = min(lightest, _load(memory, replicas[r]))
        heaviest = max(heaviest, _load(memory, replicas[r]))
    shared = request.prompt_tokens - longest < longest
    request.branch = 0 if shared else 1
    for r in range(len(replicas)):
        replicas[r].score = _load(memory, replicas[r]) + _evicted(request, replicas[r])
        if shared and replicas[r].matched_tokens < longest:
            replicas[r].score = np.inf
    chosen = least(request, replicas)
    if (
        shared
        and _load(memory, replicas[chosen]) == heaviest
        and heaviest > parameters[1] * lightest
    ):
        request.branch = 2
        for r in range(len(replicas)):
            replicas[r].score = _load(memory, replicas[r])
        chosen = least(request, replicas)
    computed = request.prompt_tokens - replicas[chosen].matched_tokens
    _add_load(memory, replicas[chosen], max(1, computed))
    return chosen


POLICIES = {
    "preble": Policy(
        preble,
        source="Preble",
        scores=(
            Score("load + eviction of those with the longest match, in tokens", best="least"),
            Score("load + eviction, in tokens, as no match is most of the prompt", best="least"),
            Score("load in tokens, as the owner of the match has too much", best="least"),
        ),
        parameters=(
            Parameter("window_ms", 180_000, 1, 1e9, "load is what was routed in so many ms"),
            Parameter("rebalance_factor", 1.5, 1, 1e6, "too much: more than so many times least"),
        ),
        view="routed",
        router_tokens=0,
        memory=_windows,
    ),
}
