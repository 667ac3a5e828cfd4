"""Policies of gateways: the replica with the longest match, unless load is out of balance."""

import math

import numpy as np

from pipeline.kernel import kernel
from pipeline.replay.policies.choice import below, least, most
from pipeline.replay.policies.load import in_flight
from pipeline.replay.policies.rule import Parameter, Policy, Score
from pipeline.replay.records import LOAD, RECENCY

_MANY = 1_000_000


@kernel(inner=True)
def _fewest_and_most(replicas):
    """Return the least and the highest number of requests in flight on a replica."""
    fewest = fullest = in_flight(replicas[0])
    for r in range(1, len(replicas)):
        fewest = min(fewest, in_flight(replicas[r]))
        fullest = max(fullest, in_flight(replicas[r]))
    return fewest, fullest


@kernel(inner=True)
def _longest_match(replicas):
    longest = replicas[0].matched_tokens
    for r in range(1, len(replicas)):
        longest = max(longest, replicas[r].matched_tokens)
    return longest


@kernel(inner=True)
def _share(tokens, request):
    """Return tokens as a share of the prompt, 0 for an empty one."""
    return tokens / request.prompt_tokens if request.prompt_tokens > 0 else 0.0


def sglang(request, replicas, parameters, memory):
    """Longest match if it is long enough and load is in balance, else least loaded.

    Formula: q = requests in flight, m = matched tokens. If max q - min q > imbalance_abs and
    max q > imbalance_rel x min q: argmin q. Else, if max m / prompt tokens > match_threshold:
    argmax m. Else argmin q. Defaults: 0.5, 32 and 1.1 (Rust gateway, `sglang`); 0.3, 64 and 1.5
    (Python command line, `sglang_python`). Ties: of equal matches the one touched last; else the
    lowest replica. Source: sgl-project/sglang, sgl-model-gateway, policies/cache_aware.rs;
    sglang-router 0.3.2, router_args.py.

    Departs from it: tokens for characters, 4 a token, so that 2^26 characters are 2^24 tokens; the
    router forgets as soon as it is full, not once in a while; a match is looked for on replicas
    that take requests only.
    """
    longest = _longest_match(replicas)
    fewest, fullest = _fewest_and_most(replicas)
    imbalanced = fullest - fewest > parameters[1] and fullest > parameters[2] * fewest
    owned = not imbalanced and _share(longest, request) > parameters[0]
    request.branch = 0 if owned else 1 if imbalanced else 2
    for r in range(len(replicas)):
        if not owned:
            replicas[r].score = in_flight(replicas[r])
        elif replicas[r].matched_tokens == longest:
            replicas[r].score = replicas[r].matched_seq
        else:
            replicas[r].score = -np.inf
    return most(request, replicas) if owned else least(request, replicas)


def prefix_aware(request, replicas, parameters, memory):
    """One of the replicas with the longest chain of whole chunks, at random.

    Formula: argmax floor(matched tokens / chunk_tokens), without any signal of load. Default:
    chunks of 32 tokens (128 characters). Ties: random, so a prompt that no replica knows goes
    anywhere. Source: vllm-project/production-stack, routers/routing_logic.py, prefix/hashtrie.py.

    Departs from it: tokens for characters; a prompt's last chunk counts only if it is whole, where
    the product also finds a shorter one if the prompt is exactly the same.
    """
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].matched_tokens // np.int64(parameters[0])
    return most(request, replicas)


@kernel(inner=True)
def _loaded_at_most(replicas, factor):
    """Return mean + factor x standard deviation of the requests in flight."""
    mean, variance = 0.0, 0.0
    for r in range(len(replicas)):
        mean += in_flight(replicas[r]) / len(replicas)
    for r in range(len(replicas)):
        variance += (in_flight(replicas[r]) - mean) ** 2 / len(replicas)
    return mean + factor * math.sqrt(variance)


@kernel(inner=True)
def _usable_percent(request, replica, limit):
    """Return the whole percent of the prompt that matches, -1 if nothing does or load is higher."""
    if replica.matched_tokens == 0 or in_flight(replica) > limit:
        return -1
    return replica.matched_tokens * 100 // request.prompt_tokens


def aibrix(request, replicas, parameters, memory):
    """Highest match percent among replicas that are not too loaded, else fewest in flight.

    Formula: q = requests in flight. If max q - min q > imbalance_abs, only replicas with min q
    stay. Of these, those that match at all and have q <= mean q + std_factor x standard deviation
    of q (both of all replicas): the highest whole percent of the prompt, then the fewest in
    flight. If there is none: argmin q of all. Defaults: 8, 1. Ties: random. Source:
    vllm-project/aibrix, pkg/plugins/gateway/algorithms/prefix_cache.go.

    Departs from it: tokens for blocks of characters. Later versions ask for a gap of 8 and for
    max q > 2 x (mean q + 1).
    """
    fewest, fullest = _fewest_and_most(replicas)
    imbalanced = fullest - fewest > parameters[0]
    limit = float(fewest) if imbalanced else _loaded_at_most(replicas, parameters[1])
    highest = -1
    for r in range(len(replicas)):
        highest = max(highest, _usable_percent(request, replicas[r], limit))
    for r in range(len(replicas)):
        replicas[r].score = in_flight(replicas[r])
        if highest >= 0 and _usable_percent(request, replicas[r], limit) < highest:
            replicas[r].score = np.inf
    request.branch = 2 if highest < 0 else 1 if imbalanced else 0
    return least(request, replicas)


def ray(request, replicas, parameters, memory):
    """Shortest queue among the owners of a match, else among the smallest trees.

    Formula: q = requests in flight, m = matched tokens. If max q - min q > threshold: the lesser q
    of two replicas taken at random. Else, if max m / prompt tokens >= match_rate: argmin q of
    those with max m. Else argmin q of those of which the router remembers the fewest tokens.
    Defaults: infinite, 0.1. Ties: lowest replica. Source: ray 2.60, ray.llm, serve,
    routing_policies/prefix_aware/prefix_aware_router.py.

    Departs from it: tokens for characters; a replica has no limit of requests in flight; no
    preference for replicas nearby or with an adapter loaded. The product does not evict from its
    trees unless told to (400,000 characters): router_capacity_tokens=100000 is that.
    """
    longest, smallest = _longest_match(replicas), replicas[0].resident_tokens
    for r in range(1, len(replicas)):
        smallest = min(smallest, replicas[r].resident_tokens)
    fewest, fullest = _fewest_and_most(replicas)
    first = below(request, 1, len(replicas))
    second = (first + 1 + below(request, 2, len(replicas) - 1)) % len(replicas)
    matches = _share(longest, request) >= parameters[1]
    request.branch = 2 if fullest - fewest > parameters[0] else 0 if matches else 1
    for r in range(len(replicas)):
        if request.branch == 0:
            stays = replicas[r].matched_tokens == longest
        elif request.branch == 1:
            stays = replicas[r].resident_tokens == smallest
        else:
            stays = r in (first, second)
        replicas[r].score = in_flight(replicas[r]) if stays else np.inf
    return least(request, replicas)


_SGLANG = Policy(
    sglang,
    source="SGLang gateway (Rust)",
    scores=(
        Score("recent use of the longest match", best="most", unit="(seq)"),
        Score("requests in flight, as load is out of balance", best="least"),
        Score("requests in flight, as no match is long enough", best="least"),
    ),
    parameters=(
        Parameter(
            "match_threshold", 0.5, 0, 1, "a match has to be a larger share (--cache-threshold)"
        ),
        Parameter(
            "imbalance_abs", 32, 0, _MANY, "unbalanced: max - min is more (--balance-abs-threshold)"
        ),
        Parameter(
            "imbalance_rel", 1.1, 1, _MANY, "and max > so many x min (--balance-rel-threshold)"
        ),
    ),
    needs=LOAD | RECENCY,
    view="routed",
    router_tokens=2**24,
)


def _with_defaults(policy: Policy, source: str, *defaults: float) -> Policy:
    changed = zip(policy.parameters, defaults, strict=True)
    parameters = tuple(parameter._replace(default=default) for parameter, default in changed)
    return policy._replace(source=source, parameters=parameters)


POLICIES = {
    "sglang": _SGLANG,
    "sglang_python": _with_defaults(_SGLANG, "SGLang router (Python)", 0.3, 64, 1.5),
    "prefix_aware": Policy(
        prefix_aware,
        source="vLLM production stack",
        scores=(Score("matched chunks", best="most"),),
        parameters=(Parameter("chunk_tokens", 32, 1, _MANY, "tokens of a chunk", whole=True),),
        tie="random",
        view="routed",
    ),
    "aibrix": Policy(
        aibrix,
        source="AIBrix",
        scores=(
            Score("requests in flight, of those with the highest match percent", best="least"),
            Score("requests in flight, of the least loaded with the most percent", best="least"),
            Score("requests in flight, as no match may be used", best="least"),
        ),
        parameters=(
            Parameter("imbalance_abs", 8, 0, _MANY, "out of balance: max - min in flight is more"),
            Parameter("std_factor", 1, 0, _MANY, "in flight at most: mean + so many deviations"),
        ),
        needs=LOAD,
        tie="random",
        view="routed",
        router_ttl_ms=1_200_000,
    ),
    "ray": Policy(
        ray,
        source="Ray Serve LLM",
        scores=(
            Score("requests in flight, of those with the longest match", best="least"),
            Score("requests in flight, of those with the smallest tree", best="least"),
            Score("requests in flight, of two at random", best="least"),
        ),
        parameters=(
            Parameter("threshold", math.inf, 0, math.inf, "out of balance: max - min is more"),
            Parameter("match_rate", 0.1, 0, 1, "share of the prompt that a match needs"),
        ),
        needs=LOAD,
        draws=True,
        view="routed",
    ),
}
