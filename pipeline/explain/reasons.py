"""Why a replica was chosen, and why it had no room, in words."""

from typing import Any

import numpy as np

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
    if not score.best:
        return f"by {score.name}"
    scored = [replica for replica in replicas if replica["score"] is not None]
    numbers = np.array([replica["replica_id"] for replica in scored])
    scores = np.array([replica["score"] for replica in scored])
    if score.without and not scores.any():
        rule = score.without.format(first_token_id=first_token_id, replicas=len(scored))
        return f"all scores are 0, so it is {rule}"
    best = scores.min() if score.best == "least" else scores.max()
    tied = numbers[scores == best]
    said = f"{score.best} {score.name}, {_amount(best, score)}"
    if chosen not in tied:
        has = f"{said}, is that of {_replicas(tied.tolist())}"
        return f"the policy did not go by the score alone: {has}"
    if len(tied) > 1:
        return f"{said}, is that of {_replicas(tied.tolist())}: {ties}"
    if len(scores) == 1:
        return f"it is the only one: {score.name} {_amount(best, score)}"
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
            f"the prompt takes {_blocks(blocks, rules.block_tokens)}, and a replica has"
            f" {_blocks(capacity, rules.block_tokens)}"
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
