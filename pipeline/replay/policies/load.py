"""Policies that go by load alone, or by chance."""

import numpy as np

from pipeline.kernel import kernel
from pipeline.replay.policies.choice import below, least
from pipeline.replay.policies.rule import Parameter, Policy, Score
from pipeline.replay.records import LOAD


@kernel(inner=True)
def in_flight(replica):
    """Return how many requests were routed to a replica and have not completed."""
    return replica.queued_requests + replica.running_requests


@kernel(inner=True)
def score_by_requests(replicas):
    """Score all replicas by their requests in flight; return the sum."""
    total = 0
    for r in range(len(replicas)):
        requests = in_flight(replicas[r])
        replicas[r].score = requests
        total += requests
    return total


@kernel(inner=True)
def _load(replica, by_requests):
    """Return the requests in flight on a replica, or the time until its queue is empty."""
    return in_flight(replica) if by_requests else replica.queue_ticks


def random(request, replicas, parameters, memory):
    """Any replica.

    Formula: uniform over the replicas that take requests. Ties: none. Source: the baseline of all
    gateways, for example `random` of the SGLang gateway.
    """
    for r in range(len(replicas)):
        replicas[r].score = 0
    return below(request, 1, len(replicas))


def least_loaded(request, replicas, parameters, memory):
    """Least load.

    Formula: argmin queue wait; with by_requests, argmin requests in flight. Default: by wait.
    Ties: lowest replica. Source: `LeastLoad` of KubeAI, `least request` of most load balancers.
    Departs from them: they know no queue wait; by_requests is what they count.
    """
    by_requests = parameters[0] != 0
    request.branch = 1 if by_requests else 0
    for r in range(len(replicas)):
        replicas[r].score = _load(replicas[r], by_requests)
    return least(request, replicas)


def power_of_two(request, replicas, parameters, memory):
    """Less load of two replicas drawn at random.

    Formula: two different replicas, uniform; the one with the shorter queue wait or, with
    by_requests, with fewer requests in flight. Default: by wait. Ties: the first that was drawn.
    Source: SGLang gateway, policies/power_of_two.rs. Departs from it: that compares the tokens that
    replicas report, and requests in flight where one of the two reports none.
    """
    by_requests = parameters[0] != 0
    request.branch = 1 if by_requests else 0
    for r in range(len(replicas)):
        replicas[r].score = np.inf
    first = below(request, 1, len(replicas))
    replicas[first].score = _load(replicas[first], by_requests)
    if len(replicas) == 1:
        return first
    second = (first + 1 + below(request, 2, len(replicas) - 1)) % len(replicas)
    replicas[second].score = _load(replicas[second], by_requests)
    return second if replicas[second].score < replicas[first].score else first


def vllm_dp(request, replicas, parameters, memory):
    """Least load, where a request that waits counts as four that run.

    Formula: argmin 4 x queued + running requests. No parameters. Ties: lowest replica.
    Source: vLLM, v1/engine/core_client.py, its balancer over data parallel engines. Departs from
    it: engines report their counts every 100 ms, and a client adds what it sent since; here the
    counts are those of the moment. Of several clients each begins at another engine: this is the
    first one.
    """
    for r in range(len(replicas)):
        replicas[r].score = 4 * replicas[r].queued_requests + replicas[r].running_requests
    return least(request, replicas)


_BY_REQUESTS = Parameter(
    "by_requests", 0, 0, 1, "1: load is requests in flight, 0: queue wait", whole=True
)

_FIRST_DRAWN = "the first that was drawn wins"

POLICIES = {
    "random": Policy(
        random,
        source="any gateway",
        scores=(Score("chance", draws=True),),
        looks_up=False,
        draws=True,
        tie=None,
    ),
    "least_loaded": Policy(
        least_loaded,
        source="KubeAI and most load balancers",
        scores=(
            Score("queue", best="least", unit="ms", scale=10_000),
            Score("requests in flight", best="least"),
        ),
        parameters=(_BY_REQUESTS,),
        looks_up=False,
        needs=LOAD,
    ),
    "power_of_two": Policy(
        power_of_two,
        source="SGLang gateway",
        scores=(
            Score("queue, of two drawn", best="least", unit="ms", scale=10_000, ties=_FIRST_DRAWN),
            Score("requests in flight, of two drawn", best="least", ties=_FIRST_DRAWN),
        ),
        parameters=(_BY_REQUESTS,),
        looks_up=False,
        needs=LOAD,
        draws=True,
        tie=None,
    ),
    "vllm_dp": Policy(
        vllm_dp,
        source="vLLM, data parallel",
        scores=(Score("4 x queued + running requests", best="least"),),
        looks_up=False,
        needs=LOAD,
    ),
}
