"""The reference's three policies."""

import numpy as np

from pipeline.replay.policies.choice import least, most
from pipeline.replay.policies.rule import Policy, Score


def round_robin(request, replicas, parameters, memory):
    """Each replica in turn.

    Formula: a cursor over the replicas that take requests. Ties: none. Source: the reference.
    """
    chosen = memory[0] % len(replicas)
    for r in range(len(replicas)):
        replicas[r].score = (r - chosen) % len(replicas)
    memory[0] += 1
    return chosen


def pure_affinity(request, replicas, parameters, memory):
    """Longest match; without a match, first token modulo replicas.

    Formula: argmax matched tokens; if all are 0, first token id mod N. Ties: lowest replica.
    Source: the reference.
    """
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].matched_tokens
    chosen = most(request, replicas)
    if replicas[chosen].matched_tokens == 0:
        return np.int64(request.first_token_id % np.uint64(len(replicas)))
    return chosen


def cache_aware(request, replicas, parameters, memory):
    """Least queue + lookup + prefill of this request.

    Formula: argmin queue wait + matched tokens x lookup + computed tokens x prefill.
    Ties: lowest replica. Source: the reference.
    """
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].queue_ticks + replicas[r].exec_ticks
    return least(request, replicas)


POLICIES = {
    "round_robin": Policy(
        round_robin,
        source="the reference",
        scores=(Score("turns until it is due", best="least"),),
        looks_up=False,
        tie=None,
    ),
    "pure_affinity": Policy(
        pure_affinity,
        source="the reference",
        scores=(
            Score(
                "matched tokens",
                best="most",
                without="first token id {first_token_id} modulo {replicas} replicas",
            ),
        ),
    ),
    "cache_aware": Policy(
        cache_aware,
        source="the reference",
        scores=(Score("queue + lookup + prefill", best="least", unit="ms", scale=10_000),),
    ),
}
