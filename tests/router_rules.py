"""The rules of router_cases.RULES as a user writes policies: `router_rules:NAME`."""

from typing import Any

import numpy as np

from pipeline.replay.policies import Policy, Score
from pipeline.replay.policies.choice import least
from pipeline.replay.records import ACTIVE, LOAD, RECENCY, REPLICA_SHOWN

SEEN = [name for name, _, _ in REPLICA_SHOWN if name != "score"]
"""What `witness` writes down of each replica that it sees, after how many numbers that were."""

MOST_REQUESTS = 300
"""So many requests can `witness` remember."""


def _longest_match(request: Any, replicas: Any, _parameters: Any, _memory: Any) -> int:
    for r in range(len(replicas)):
        replicas[r].score = -replicas[r].matched_tokens
    return least(request, replicas)


def _latest_match(request: Any, replicas: Any, _parameters: Any, _memory: Any) -> int:
    longest = 0
    for r in range(len(replicas)):
        longest = max(longest, replicas[r].matched_tokens)
    for r in range(len(replicas)):
        matched = replicas[r].matched_tokens == longest
        replicas[r].score = -replicas[r].matched_seq if matched else 1e18
    return least(request, replicas)


def _least_prefill(request: Any, replicas: Any, _parameters: Any, _memory: Any) -> int:
    for r in range(len(replicas)):
        uncached = request.prompt_tokens - replicas[r].matched_tokens
        replicas[r].score = replicas[r].prefill_tokens + uncached
    return least(request, replicas)


def _mixed(request: Any, replicas: Any, _parameters: Any, _memory: Any) -> int:
    for r in range(len(replicas)):
        replica = replicas[r]
        uncached = request.prompt_tokens - replica.matched_tokens
        fullness = 64 * replica.resident_tokens // replica.capacity_tokens
        loads = 3 * replica.queued_requests + 2 * replica.running_requests
        loads += replica.prefill_tokens
        replica.score = (replica.queue_ticks + replica.exec_ticks) // 1000 + 5 * uncached
        replica.score += fullness + 2 * loads + replica.requests
    return least(request, replicas)


def _least_in_flight(request: Any, replicas: Any, _parameters: Any, _memory: Any) -> int:
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].queued_requests + replicas[r].running_requests
    return least(request, replicas)


def _least_active(request: Any, replicas: Any, _parameters: Any, _memory: Any) -> int:
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].active_tokens - replicas[r].active_matched_tokens
    return least(request, replicas)


def _least_queue(request: Any, replicas: Any, _parameters: Any, _memory: Any) -> int:
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].queue_ticks
    return least(request, replicas)


def _witness(request: Any, replicas: Any, _parameters: Any, memory: Any) -> int:
    """Write down all that it sees, and go by all of it: see SEEN."""
    for r in range(len(replicas)):
        replica, first = replicas[r], 1 + memory[0]
        memory[first] = replica.replica_id
        memory[first + 1] = replica.queue_ticks
        memory[first + 2] = replica.matched_tokens
        memory[first + 3] = replica.matched_seq
        memory[first + 4] = replica.exec_ticks
        memory[first + 5] = replica.resident_tokens
        memory[first + 6] = replica.capacity_tokens
        memory[first + 7] = replica.requests
        memory[first + 8] = replica.queued_requests
        memory[first + 9] = replica.running_requests
        memory[first + 10] = replica.prefill_tokens
        memory[first + 11] = replica.active_tokens
        memory[first + 12] = replica.active_matched_tokens
        memory[0] += 13
        replica.score = memory[first : first + 13].sum() % 7
    return least(request, replicas)


def _policy(rule: Any, *, looks_up: bool = True, needs: int = 0) -> Policy:
    scores = (Score("score", best="least"),)
    return Policy(rule, "tests", scores, looks_up=looks_up, needs=needs)


longest_match = _policy(_longest_match)
latest_match = _policy(_latest_match, needs=RECENCY)
least_prefill = _policy(_least_prefill, needs=LOAD)
mixed = _policy(_mixed, needs=LOAD)
least_in_flight = _policy(_least_in_flight, looks_up=False, needs=LOAD)
least_active = _policy(_least_active, looks_up=False, needs=ACTIVE)
least_queue = _policy(_least_queue, looks_up=False)
witness = _policy(_witness, needs=LOAD | ACTIVE | RECENCY)._replace(
    memory=lambda replicas: np.zeros(1 + 13 * replicas * MOST_REQUESTS, np.int64)
)
BUILT_IN = ("round_robin", "pure_affinity", "cache_aware")
