"""Routing policies: plain functions of one signature, and the table that lists them all.

A policy sees the request at hand and one record a replica (fleet.REQUEST, fleet.REPLICA) and
returns the number of the replica it chooses. It leaves what it compared in each replica's
`score`, which no decision reads. `memory` is 8 integers, 0 at the start, that only the policy
itself changes. Ties are broken in the open.
"""

from collections.abc import Callable
from typing import NamedTuple

import numba
import numpy as np
from numba import types

from pipeline.errors import unknown
from pipeline.kernel import kernel
from pipeline.replay.fleet import REPLICA, REQUEST

SIGNATURE = types.int64(
    numba.from_dtype(REQUEST),
    types.Array(numba.from_dtype(REPLICA), 1, "C"),
    types.Array(types.int64, 1, "C"),
)


class Score(NamedTuple):
    """What a policy compares, in words: nothing here decides anything.

    name     what the score of a replica is
    best     which score wins: "least" or "most"
    unit     "" where the name says it
    scale    so much of the score is one unit
    ties     which one of the replicas with the best score is chosen
    without  what decides instead if all scores are 0; "" if nothing else does. It may name
             {first_token_id} and {replicas}
    """

    name: str
    best: str
    unit: str = ""
    scale: int = 1
    ties: str = "the lowest replica wins"
    without: str = ""


class Policy(NamedTuple):
    """A policy's function, whether it looks the prompt up everywhere, and what its score is."""

    choose: Callable[..., int]
    probes: bool
    score: Score


@kernel(signature=SIGNATURE)
def round_robin(request, replicas, memory):
    """Each replica in turn."""
    chosen = memory[0] % len(replicas)
    for r in range(len(replicas)):
        replicas[r].score = (r - chosen) % len(replicas)
    memory[0] += 1
    return chosen


@kernel(signature=SIGNATURE)
def pure_affinity(request, replicas, memory):
    """Longest match, lowest replica on ties; without a match, first token modulo replicas."""
    chosen = 0
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].matched_tokens
        if replicas[r].matched_tokens > replicas[chosen].matched_tokens:
            chosen = r
    if replicas[chosen].matched_tokens == 0:
        return np.int64(request.first_token_id % np.uint64(len(replicas)))
    return chosen


@kernel(signature=SIGNATURE)
def cache_aware(request, replicas, memory):
    """Least queue + lookup + prefill of this request, lowest replica on ties."""
    chosen = 0
    least = replicas[0].queue_ticks + replicas[0].exec_ticks
    for r in range(len(replicas)):
        ticks = replicas[r].queue_ticks + replicas[r].exec_ticks
        replicas[r].score = ticks
        if ticks < least:
            chosen, least = r, ticks
    return chosen


POLICIES = {
    "round_robin": Policy(
        round_robin, probes=False, score=Score("turns until it is due", best="least")
    ),
    "pure_affinity": Policy(
        pure_affinity,
        probes=True,
        score=Score(
            "matched tokens",
            best="most",
            without="first token id {first_token_id} modulo {replicas} replicas",
        ),
    ),
    "cache_aware": Policy(
        cache_aware,
        probes=True,
        score=Score("queue + lookup + prefill", best="least", unit="ms", scale=10_000),
    ),
}


def find_policy(name: str) -> Policy:
    """Return the policy of that name; UsageError, with the nearest name, if there is none."""
    if name not in POLICIES:
        raise unknown("policy", name, POLICIES)
    return POLICIES[name]
