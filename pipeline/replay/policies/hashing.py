"""Policies that hash a session or a prefix onto a ring of replicas."""

import numpy as np

from pipeline.replay.policies.choice import least
from pipeline.replay.policies.load import score_by_requests
from pipeline.replay.policies.ring import point_of, ring_memory, walk
from pipeline.replay.policies.rule import Parameter, Policy, Score
from pipeline.replay.records import LOAD, PREFIX, SESSION


def session(request, replicas, parameters, memory):
    """One replica for all requests of a session.

    Formula: consistent hash of the session, else of the tenant, else of the first prefix_tokens
    tokens; 256 ring points a replica. Default: prefix_tokens 16, the first block. Ties: none.
    Source: `SessionRouter` of the vLLM production stack. Departs from it: that sends a request
    without a session where the fewest requests a second went.
    """
    for r in range(len(replicas)):
        replicas[r].score = 0
    request.branch = 0 if request.session != np.uint64(0) else 1
    key = request.session if request.branch == 0 else request.prefix
    return walk(memory, replicas, point_of(memory, key))[1]


def prefix_hash(request, replicas, parameters, memory):
    """One replica for all requests with the same first tokens, unless it is overloaded.

    Formula: N replicas, q requests in flight on one, T on all. The owner is the first on the ring
    from the hash of the first prefix_tokens tokens on; it takes the request if
    q <= load_factor x (T + 1) / N. Else the one with the fewest in flight of those that meet the
    bound; if none does, the owner.
    Defaults: prefix_tokens 256, load_factor 1.25; 256 ring points a replica. Ties of the fewest:
    lowest replica. Source: SGLang gateway, policies/prefix_hash.rs.
    Departs from it: another hash than its xxh3, and the namespace is part of the prefix.
    """
    total = score_by_requests(replicas)
    most_requests = parameters[1] * (total + 1)
    owner = walk(memory, replicas, point_of(memory, request.prefix))[1]
    request.branch = 0
    if replicas[owner].score * len(replicas) <= most_requests:
        return owner
    request.branch = 2
    for r in range(len(replicas)):
        if replicas[r].score * len(replicas) <= most_requests:
            request.branch = 1
    if request.branch == 2:
        return owner
    for r in range(len(replicas)):
        if replicas[r].score * len(replicas) > most_requests:
            replicas[r].score = np.inf
    return least(request, replicas)


def chwbl(request, replicas, parameters, memory):
    """Consistent hashing with bounded loads: the next on the ring, if a replica is overloaded.

    Formula: N replicas, q requests in flight on one, T on all. From the hash of the first
    prefix_tokens tokens on, the first replica on the ring with
    q + 1 <= load_factor x (T + 1) / N; if there is none, the first replica on the ring.
    Defaults: prefix_tokens 25, load_factor 1.25; 256 ring points a replica. Ties: none.
    Source: KubeAI, loadbalancer/balance_chwbl.go. Departs from it: that hashes 100 characters,
    with xxhash; 25 tokens are about as many.
    """
    total = score_by_requests(replicas)
    most_requests = parameters[1] * (total + 1)
    point, owner = walk(memory, replicas, point_of(memory, request.prefix))
    # Whether any has room is asked first: else a full fleet would be walked point by point.
    request.branch = 2
    for r in range(len(replicas)):
        if (replicas[r].score + 1) * len(replicas) <= most_requests:
            request.branch = 1
    if request.branch == 2:
        return owner
    place = owner
    while (replicas[place].score + 1) * len(replicas) > most_requests:
        point, place = walk(memory, replicas, point + 1)
    if place == owner:
        request.branch = 0
    return place


def _prefix_tokens(default: int) -> Parameter:
    return Parameter(
        "prefix_tokens", default, 1, 1_000_000, "how many first tokens are hashed", whole=True
    )


_LOAD_FACTOR = Parameter(
    "load_factor", 1.25, 0, 1000, "how many times the mean load a replica may have"
)

_OVERLOADED = Score("consistent hash of the first tokens, all replicas overloaded")

POLICIES = {
    "session": Policy(
        session,
        source="vLLM production stack",
        scores=(
            Score("consistent hash of the session"),
            Score("consistent hash of the first tokens"),
        ),
        parameters=(_prefix_tokens(16),),
        looks_up=False,
        needs=SESSION | PREFIX,
        tie=None,
        memory=ring_memory,
    ),
    "prefix_hash": Policy(
        prefix_hash,
        source="SGLang gateway",
        scores=(
            Score("consistent hash of the first tokens"),
            Score("requests in flight, the owner overloaded", best="least"),
            _OVERLOADED,
        ),
        parameters=(_prefix_tokens(256), _LOAD_FACTOR),
        looks_up=False,
        needs=LOAD | PREFIX,
        memory=ring_memory,
    ),
    "chwbl": Policy(
        chwbl,
        source="KubeAI",
        scores=(
            Score("consistent hash of the first tokens"),
            Score("next on the ring, the owner overloaded"),
            _OVERLOADED,
        ),
        parameters=(_prefix_tokens(25), _LOAD_FACTOR),
        looks_up=False,
        needs=LOAD | PREFIX,
        tie=None,
        memory=ring_memory,
    ),
}
