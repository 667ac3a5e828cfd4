"""Policies that weigh what a replica holds of a prompt against its load."""

import numpy as np

from pipeline.kernel import kernel
from pipeline.replay.policies.choice import least, most
from pipeline.replay.policies.load import in_flight, score_by_requests
from pipeline.replay.policies.rule import Parameter, Policy, Score
from pipeline.replay.records import ACTIVE, LOAD


@kernel(inner=True)
def _keep_warm(replicas, blocks, block, least_ratio, most_ticks):
    """Score 0 the replicas that match enough, -inf the others; return whether any is put aside.

    All score 0 if none matches enough, or if the first of those that do is free `most_ticks` later
    than the first of the others; 0 for however much later.
    """
    warm_ticks, other_ticks = np.inf, np.inf
    for r in range(len(replicas)):
        ticks = np.float64(replicas[r].queue_ticks)
        if replicas[r].matched_tokens // block / blocks >= least_ratio:
            replicas[r].score, warm_ticks = 0, min(warm_ticks, ticks)
        else:
            replicas[r].score, other_ticks = -np.inf, min(other_ticks, ticks)
    too_late = most_ticks > 0 and warm_ticks - other_ticks > most_ticks
    if warm_ticks < np.inf and other_ticks < np.inf and not too_late:
        return True
    for r in range(len(replicas)):
        replicas[r].score = 0
    return False


def llm_d(request, replicas, parameters, memory):
    """Best weighted sum of three scores from 0 to 1: prefix, queue, free KV.

    Formula: argmax 3 x h / H + 2 x (most - q) / (most - least) + 2 x (1 - A / C). h of the prompt's
    H whole blocks match; q: requests in flight, 1 if all have as many; A: distinct prompt tokens in
    flight, C: capacity. The affinity filter keeps only replicas with h / H >= affinity_threshold,
    unless the shortest queue of these is more than max_penalty_ms longer than of the others.
    Defaults: the weights; blocks of 64 tokens; filter off (its own defaults: 0.8 and 18,000 ms).
    Ties: random. Source: llm-d-router, config/loader/defaults.go, its scorers and
    prefix-cache-affinity-filter; its index is of what it routed.
    Departs from it: its queue scorer counts waiting requests alone (waiting_only 1), its KV usage
    includes outputs, and the filter's wait is tokens in flight by a fixed prefill speed.
    """
    block = np.int64(parameters[5])
    blocks, waiting_only = max(1, request.prompt_tokens // block), parameters[6] != 0
    filtered = _keep_warm(replicas, blocks, block, parameters[3], parameters[4] * 10_000)
    request.branch = 1 if filtered else 0
    shortest, longest = np.int64(2**62), np.int64(0)
    for r in range(len(replicas)):
        if replicas[r].score == 0:
            queue = replicas[r].queued_requests if waiting_only else in_flight(replicas[r])
            shortest, longest = min(shortest, queue), max(longest, queue)
    for r in range(len(replicas)):
        if replicas[r].score == 0:
            queue = replicas[r].queued_requests if waiting_only else in_flight(replicas[r])
            idle = (longest - queue) / (longest - shortest) if longest > shortest else 1.0
            prefix = replicas[r].matched_tokens // block / blocks
            free = 1.0 - min(1.0, replicas[r].active_tokens / replicas[r].capacity_tokens)
            replicas[r].score = parameters[0] * prefix + parameters[1] * idle + parameters[2] * free
    return most(request, replicas)


def lmetric(request, replicas, parameters, memory):
    """Least new tokens times load.

    Formula: argmin (tokens of the prompt that do not match) x (requests in flight + 1). No
    parameters. Ties: fewer requests in flight, fewer new tokens, lowest replica.
    Source: SGLang gateway, policies/lmetric.rs, with a tree of what it routed, 2^26 characters a
    replica. Departs from it: tokens for characters, four of them each.
    """
    best = 0
    for r in range(len(replicas)):
        load = in_flight(replicas[r])
        replicas[r].score = (request.prompt_tokens - replicas[r].matched_tokens) * (load + 1)
        # Of equal products with equal loads the new tokens are equal, too.
        tied = replicas[r].score == replicas[best].score
        if replicas[r].score < replicas[best].score or (tied and load < in_flight(replicas[best])):
            best = r
    return best


def load_aware(request, replicas, parameters, memory):
    """Best share of the prompt that matches, minus load relative to the mean.

    Formula: argmax m / L - beta x (q - mean) / max(1, mean). m of the prompt's L tokens match; q:
    requests in flight. Default: beta 1. Ties: lowest replica. Source: `LoadAwareRouter` of the vLLM
    production stack, which asks the LMCache controller what replicas hold.
    Departs from it: where nothing matches anywhere it hashes the session, or takes the replica with
    the fewest requests a second; here the formula holds then, too.
    """
    total, count = score_by_requests(replicas), len(replicas)
    prompt_tokens = max(1, request.prompt_tokens)
    for r in range(count):
        # Times N above and below: (q - mean) / max(1, mean), but in whole numbers.
        relative_load = (replicas[r].score * count - total) / max(count, total)
        matched = replicas[r].matched_tokens / prompt_tokens
        replicas[r].score = matched - parameters[0] * relative_load
    return most(request, replicas)


def gorgo(request, replicas, parameters, memory):
    """Least weighted sum of new tokens and tokens ahead.

    Formula: argmin w1 x round trip + prefill_weight x (tokens of the prompt that do not match) +
    load_weight x (tokens of requests in flight still to be prefilled). Defaults: weights 1.
    Ties: lowest replica. Source: gorgo-lb 0.2.0, policy/gorgo.py, with a tree of what it routed
    that forgets nothing. Departs from it: a replay has no network, so the round trip is the same
    for all and w1 decides nothing; the product counts whole prompts until their requests complete.
    """
    for r in range(len(replicas)):
        new_tokens = request.prompt_tokens - replicas[r].matched_tokens
        ahead = replicas[r].prefill_tokens
        replicas[r].score = parameters[0] * new_tokens + parameters[1] * ahead
    return least(request, replicas)


def weight(name: str, default: float, meaning: str) -> Parameter:
    """Return a parameter from 0 to 1000."""
    return Parameter(name, default, 0, 1000, meaning)


_LLM_D = (
    weight("prefix_weight", 3, "of the share of blocks that match"),
    weight("queue_weight", 2, "of how few requests are in flight"),
    weight("kv_weight", 2, "of the share of KV that is free"),
    Parameter("affinity_threshold", 0, 0, 1, "share that must match to be kept; 0: no filter"),
    Parameter("max_penalty_ms", 18_000, 0, 1e9, "longer wait that ends affinity; 0: none does"),
    Parameter("block_tokens", 64, 1, 512, "tokens of a block of the index", whole=True),
    Parameter("waiting_only", 0, 0, 1, "1: count waiting requests alone", whole=True),
)

POLICIES = {
    "llm_d": Policy(
        llm_d,
        source="llm-d",
        scores=(
            Score("prefix + queue + KV", best="most"),
            Score("prefix + queue + KV, of replicas that match", best="most"),
        ),
        parameters=_LLM_D,
        needs=LOAD | ACTIVE,
        tie="random",
        view="routed",
        router_tokens=31_250 * 64,
    ),
    "lmetric": Policy(
        lmetric,
        source="SGLang gateway",
        scores=(
            Score(
                "new tokens x (requests in flight + 1)",
                best="least",
                ties="fewer requests in flight win, then the lowest replica",
            ),
        ),
        needs=LOAD,
        tie=None,
        view="routed",
        router_tokens=2**24,
    ),
    "load_aware": Policy(
        load_aware,
        source="vLLM production stack",
        scores=(Score("share that matches - relative load", best="most"),),
        parameters=(weight("beta", 1, "shares of the prompt that twice the mean load costs"),),
        needs=LOAD,
    ),
    "gorgo": Policy(
        gorgo,
        source="gorgo-lb",
        scores=(Score("new tokens + tokens ahead", best="least"),),
        parameters=(
            weight("prefill_weight", 1, "of tokens of the prompt that do not match"),
            weight("load_weight", 1, "of tokens ahead"),
        ),
        needs=LOAD,
        view="routed",
    ),
}
