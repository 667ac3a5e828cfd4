"""Why a replica was chosen, and why it had no room, in words."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.explain.moment import Outcome
from pipeline.replay.fleet import Fleet
from pipeline.replay.policies import Score
from pipeline.replay.router import Batch
from pipeline.replay.serve import TOO_LONG

_SHOWN = 8


def reason(
    score: Score, ties: str, replicas: list[dict[str, Any]], chosen: int, first_token_id: int
) -> str:
    """Return why the policy chose that replica, from the scores that it left.

    A replica without a score could not be chosen; `ties` says how ties are broken.
    """
    scored = [replica for replica in replicas if replica["score"] is not None]
    scores = np.array([replica["score"] for replica in scored])
    if not score.best:
        return f"by {score.name}"
    if not len(scores) or not np.isfinite(scores).all():
        return f"by {score.name}, which is not a number everywhere"
    if score.without and not scores.any():
        rule = score.without.format(first_token_id=first_token_id, replicas=len(scored))
        there = " that are there" if len(scored) < len(replicas) else ""
        return f"all scores are 0, so it is {rule}{there}"
    if len(scores) == 1:
        only = "it is the only one" if len(replicas) == 1 else "it is the only one that counts"
        return f"{only}: {score.name} {_amount(scores[0], score)}"
    numbers = [replica["replica_id"] for replica in scored]
    return _best(score, ties, np.array(numbers), scores, chosen)


def _best(
    score: Score, ties: str, numbers: NDArray[np.int64], scores: NDArray[Any], chosen: int
) -> str:
    """Return which replicas have the best score, and which come next."""
    best = scores.min() if score.best == "least" else scores.max()
    tied = numbers[scores == best]
    said = f"{score.best} {score.name}, {_amount(best, score)}"
    if chosen not in tied:
        has = f"{said}, is that of {_replicas(tied.tolist())}"
        return f"the policy did not go by the score alone: {has}"
    if len(tied) > 1:
        return f"{said}, is that of {_replicas(tied.tolist())}: {score.ties or ties}"
    others = scores[scores != best]
    next_best = others.min() if score.best == "least" else others.max()
    after = numbers[scores == next_best]
    return f"{said}; next: {_replicas(after.tolist())} with {_amount(next_best, score)}"


def no_room(seen: Fleet, request: Batch, outcome: Outcome) -> str:
    """Return why the chosen replica could not take the request."""
    rules = seen.rules
    replica = seen.replicas[outcome.chosen]
    capacity = int(replica["capacity_blocks"])
    tokens, matched = int(request.prompt_tokens[0]), int(replica["matched_tokens"])
    blocks = -(-tokens // rules.block_tokens)
    if outcome.decision["outcome"] == TOO_LONG:
        return (
            f"the prompt takes {_blocks(blocks, rules.block_tokens)}, and replica"
            f" {outcome.chosen} has {_blocks(capacity, rules.block_tokens)}"
        )
    match = -(-matched // rules.block_tokens)
    need = blocks - match
    taken = int(replica["resident_blocks"]) + int(replica["held_blocks"])
    pinned = int(replica["pinned_blocks"]) + int(replica["held_blocks"])
    flying = int(replica["queued_requests"]) + int(replica["running_requests"])
    return (
        f"{_blocks(need, rules.block_tokens)} have to be free beside its match, and too much is"
        f" pinned: of {_blocks(capacity, rules.block_tokens)}"
        f" {capacity - taken:,} are free, {pinned:,} pinned by {flying:,}"
        f" request{'' if flying == 1 else 's'} in flight"
        + (f"; what it matches, {match:,} of them, stays" if match else "")
    )


def _amount(value: float, score: Score) -> str:
    plain = f"{value:,}" if isinstance(value, int | np.integer) else f"{float(value)}"
    return f"{plain} {score.unit}" if score.unit else plain


def _replicas(numbers: list[int]) -> str:
    """Return replicas by number, the first of them if they are many."""
    if len(numbers) == 1:
        return f"replica {numbers[0]}"
    if len(numbers) > _SHOWN:
        shown = ", ".join(map(str, numbers[:_SHOWN]))
        return f"replicas {shown} and {len(numbers) - _SHOWN} more"
    return f"replicas {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def _blocks(count: int, block_tokens: int) -> str:
    if block_tokens == 1:
        return f"{count:,} tokens"
    return f"{count:,} blocks of {block_tokens} tokens"
