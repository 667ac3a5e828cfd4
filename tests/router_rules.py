"""The rules of router_cases.RULES as a user writes policies: `router_rules:NAME`."""

from typing import Any

from pipeline.replay.policies import Policy, Score
from pipeline.replay.policies.choice import least
from pipeline.replay.policies.rule import ACTIVE, LOAD, RECENCY


def _longest_match(request, replicas, parameters, memory):
    for r in range(len(replicas)):
        replicas[r].score = -replicas[r].matched_tokens
    return least(request, replicas)


def _latest_match(request, replicas, parameters, memory):
    longest = 0
    for r in range(len(replicas)):
        longest = max(longest, replicas[r].matched_tokens)
    for r in range(len(replicas)):
        matched = replicas[r].matched_tokens == longest
        replicas[r].score = -replicas[r].matched_seq if matched else 1e18
    return least(request, replicas)


def _least_prefill(request, replicas, parameters, memory):
    for r in range(len(replicas)):
        uncached = request.prompt_tokens - replicas[r].matched_tokens
        replicas[r].score = replicas[r].prefill_tokens + uncached
    return least(request, replicas)


def _mixed(request, replicas, parameters, memory):
    for r in range(len(replicas)):
        replica = replicas[r]
        uncached = request.prompt_tokens - replica.matched_tokens
        fullness = 64 * replica.resident_tokens // replica.capacity_tokens
        loads = 3 * replica.queued_requests + 2 * replica.running_requests
        loads += replica.prefill_tokens
        replica.score = (replica.queue_ticks + replica.exec_ticks) // 1000 + 5 * uncached
        replica.score += fullness + 2 * loads + replica.requests
    return least(request, replicas)


def _least_in_flight(request, replicas, parameters, memory):
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].queued_requests + replicas[r].running_requests
    return least(request, replicas)


def _least_active(request, replicas, parameters, memory):
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].active_tokens - replicas[r].active_matched_tokens
    return least(request, replicas)


def _least_queue(request, replicas, parameters, memory):
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].queue_ticks
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
BUILT_IN = ("round_robin", "pure_affinity", "cache_aware")
