"""dynamo: blocks to prefill and to decode."""

import numpy as np

from pipeline.kernel import kernel
from pipeline.replay.policies.choice import least, uniform
from pipeline.replay.policies.rule import Parameter, Policy, Score
from pipeline.replay.policies.scored import weight
from pipeline.replay.records import ACTIVE, LOAD


@kernel(inner=True)
def _drawn_by_softmax(request, replicas, temperature):
    """Return a place by chance, weighted by exp(-(score - least) / ((most - least) x T))."""
    low, high = replicas[0].score, replicas[0].score
    for r in range(1, len(replicas)):
        low, high = min(low, replicas[r].score), max(high, replicas[r].score)
    span, total = (high - low) * temperature or 1.0, 0.0
    for r in range(len(replicas)):
        total += np.exp((low - replicas[r].score) / span)
    drawn, reached = uniform(request, 1) * total, 0.0
    for r in range(len(replicas)):
        reached += np.exp((low - replicas[r].score) / span)
        if drawn < reached:
            return r
    return len(replicas) - 1


def dynamo(request, replicas, parameters, memory):
    """Least prefill + decode, in blocks, after a credit for blocks that match.

    Formula: argmin max(0, (P + L) / B - overlap_weight x h) + D. P: tokens of requests in flight
    still to be prefilled; L: of this prompt; B: of a block; h: whole blocks that match; D: whole
    blocks of distinct prompts in flight, this one among them. With a temperature t: by chance,
    weighted by exp(-(cost - least) / ((most - least) x t)).
    Defaults: overlap_weight 1, temperature 0, queue_threshold off. Ties: random.
    Source: Dynamo, lib/kv-router (selector/default.rs), which hears of caches by events.
    Departs from it: blocks in flight are counted from the sum of their tokens. Beyond
    queue_threshold x max_batched_tokens on all replicas Dynamo's router holds a request back until
    one is below; here the one with the least to prefill takes it.
    """
    block, limit = np.int64(parameters[4]), parameters[2] * parameters[3]
    if block == 0:
        block = request.block_tokens if request.block_tokens > 1 else np.int64(16)
    all_busy = parameters[2] > 0
    for r in range(len(replicas)):
        replica = replicas[r]
        credit = parameters[0] * (replica.matched_tokens // block * block)
        prefill = max(0.0, replica.prefill_tokens + request.prompt_tokens - credit)
        new_tokens = request.prompt_tokens - replica.active_matched_tokens
        decode = (replica.active_tokens + new_tokens) // block * block
        # In tokens until the one division, so that equal costs are equal numbers.
        replicas[r].score = (prefill + decode) / block
        all_busy = all_busy and replica.prefill_tokens > limit
    if all_busy:
        request.branch = 2
        for r in range(len(replicas)):
            replicas[r].score = replicas[r].prefill_tokens
        return least(request, replicas)
    request.branch = 1 if parameters[1] > 0 else 0
    if request.branch == 1:
        return _drawn_by_softmax(request, replicas, parameters[1])
    return least(request, replicas)


_PARAMETERS = (
    weight("overlap_weight", 1, "credit for a block that matches, in blocks to prefill"),
    weight("temperature", 0, "how far chance decides; 0: not at all"),
    weight("queue_threshold", 0, "max_batched_tokens beyond which a replica is busy; 0: off"),
    Parameter("max_batched_tokens", 8192, 1, 1e9, "tokens of a replica's batch", whole=True),
    Parameter("block_tokens", 0, 0, 512, "of a block; 0: the engine's, or 16", whole=True),
)

POLICIES = {
    "dynamo": Policy(
        dynamo,
        source="NVIDIA Dynamo",
        scores=(
            Score("blocks to prefill + to decode", best="least"),
            Score("chance, by blocks to prefill + to decode", draws=True),
            Score("tokens to prefill, all replicas busy", best="least"),
        ),
        parameters=_PARAMETERS,
        needs=LOAD | ACTIVE,
        draws=True,
        tie="random",
        router_ttl_ms=120_000,
    ),
}
