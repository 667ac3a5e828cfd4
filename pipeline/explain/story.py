"""All that is told of one request under one policy, as JSON has it."""

import math
from typing import Any

from pipeline.config import TICKS_PER_MS
from pipeline.explain.moment import Moment, Outcome, Seen, went_ahead
from pipeline.explain.names import Named
from pipeline.explain.origins import Bringer, Origins
from pipeline.explain.reasons import no_room, reason
from pipeline.explain.tokens import held_tokens, prompt_parts
from pipeline.plan import Plan
from pipeline.replay.fleet import Fleet
from pipeline.replay.policies.spec import PolicySpec
from pipeline.replay.router import Batch
from pipeline.replay.serve import EMPTY, FAILED, NO_REPLICA, SERVED
from pipeline.tables import OUTCOMES
from pipeline.upcoming import UpcomingRequests

Story = dict[str, Any]


def tell(plan: Plan, policy: str, row: int, before: UpcomingRequests) -> Story:
    """Replay under a policy up to the request in a row of the plan, and tell what happens then.

    `before` are the witnesses of the plan, see moment.witnesses.
    """
    moment = Moment(plan, policy, row)
    request = moment.replay_until(plan)
    seen = moment.seen(request)
    outcome = moment.serve(request, before)
    decision, spec = outcome.decision, moment.spec
    story: Story = {"outcome": OUTCOMES[decision["outcome"]]}
    if decision["outcome"] == EMPTY:
        return story | {"reason": "the prompt has no tokens: nothing is looked up or routed"}
    if decision["outcome"] == NO_REPLICA:
        return story | {"reason": "all replicas are away: nothing is looked up or routed"}
    score = spec.policy.scores[decision["branch"]]
    told = _replicas(moment, seen, row, score.scale)
    ties, first_token_id = _ties(spec, plan), int(request.first_token_id[0])
    story |= {
        "replica_id": outcome.chosen,
        "reason": reason(score, ties, told, outcome.chosen, first_token_id)
        + (f", seed {plan.config.routing.seed}" if score.draws else ""),
        "router_view": str(spec.view),
        "score": {"name": score.name, "unit": score.unit or None, "best": score.best or None},
        "replicas": told,
    }
    if decision["outcome"] == FAILED:
        return story | {"rejected": "the replica was lost before the request completed"}
    if decision["outcome"] != SERVED:
        return story | {"rejected": no_room(seen.fleet, request, outcome)}
    origins = Origins(plan.paths, before, moment.history, outcome.fleet.brought)
    return story | {
        "matched_tokens": int(decision["matched_tokens"]),
        "queue_wait_ms": int(decision["queue_ticks"]) / TICKS_PER_MS,
        "exec_ms": int(decision["exec_ticks"]) / TICKS_PER_MS,
        "ttft_ms": int(decision["ttft_cents"]) / 100,
        "waited_for": _waited_for(seen.fleet, outcome, request),
        "tokens": prompt_parts(plan, outcome, row),
        "evictions": _evictions(plan, outcome, origins),
    }


def _ties(spec: PolicySpec, plan: Plan) -> str:
    """Return in words how ties are broken."""
    seed = plan.config.routing.seed
    rules = ("the lowest replica wins", f"one of them at random, seed {seed}", "the next in turn")
    return rules[spec.tie]


def _replicas(moment: Moment, seen: Seen, row: int, scale: int) -> list[Story]:
    """Return what each replica had for the request, and what the policy saw of it."""
    held = held_tokens(seen.fleet, row)
    shown = {int(replica["replica_id"]): replica for replica in seen.shown}
    late = moment.spec.view.kind == "lag"
    believes = moment.spec.policy.looks_up and moment.spec.view.kind != "exact"
    told = []
    for r, replica in enumerate(seen.fleet.replicas):
        there = shown.get(r)
        matched = int(there["matched_tokens"]) if believes and there is not None else None
        queue_ms = _ms(there["queue_ticks"]) if late and there is not None else None
        counts = {
            name: int(replica[name]) if moment.counts_requests else None
            for name in ("queued_requests", "running_requests")
        }
        told.append(
            {
                "replica_id": r,
                "resident_tokens": int(replica["resident_tokens"]),
                "prefix_tokens": int(held[r]),
                "matched_tokens": int(replica["matched_tokens"]),
                "queue_wait_ms": _ms(replica["queue_ticks"]),
                "exec_ms": _ms(replica["exec_ticks"]),
                **counts,
                "believed_matched_tokens": matched,
                "believed_queue_wait_ms": queue_ms,
                "away": there is None,
                "score": None if there is None else _score(float(there["score"]), scale),
                "chosen": r == seen.chosen,
            }
        )
    return told


def _ms(ticks: Any) -> float:
    return int(ticks) / TICKS_PER_MS


def _score(score: float, scale: int) -> float | None:
    """Return a score in its unit, as a whole number where it is one; None for one put aside."""
    if math.isinf(score):
        return None
    return int(score) if scale == 1 and score.is_integer() else score / scale


def _waited_for(seen: Fleet, outcome: Outcome, request: Batch) -> list[Story]:
    """Return the requests whose completion made room, in order, ahead of the others' clock."""
    before = {int(seen.flights[f]["seq"]) for f in went_ahead(seen, outcome.chosen)}
    flights = outcome.fleet.flights[went_ahead(outcome.fleet, outcome.chosen)]
    return [
        {
            "request": Named(int(flight["seq"])),
            "completed_after_ms": int(flight["key"] - request.clock_ticks[0]) / TICKS_PER_MS,
        }
        for flight in flights
        if int(flight["seq"]) not in before
    ]


def _evictions(plan: Plan, outcome: Outcome, origins: Origins) -> list[Story]:
    """Return what the prompt evicted, in order."""
    arrival_us = plan.columns.arrival_us
    told = []
    for eviction, member in zip(outcome.evictions, outcome.on_paths, strict=True):
        seq, used, start = (int(eviction[n]) for n in ("seq", "last_used_seq", "start_tokens"))
        bringer = origins.bringer(int(member), start, outcome.chosen)
        told.append(
            {
                "evicted_tokens": int(eviction["evicted_tokens"]),
                "evicted_nodes": int(eviction["evicted_nodes"]),
                "start_tokens": start,
                "last_used_by": Named(used),
                "age_requests": int(plan.rank[seq] - plan.rank[used]),
                "age_ms": int(arrival_us[seq] - arrival_us[used]) / 1e3,
                "brought_by": _brought_by(bringer),
            }
        )
    return told


def _brought_by(bringer: Bringer | None) -> Story | None:
    if bringer is None:
        return None
    return {"request": Named(bringer.row), "as": "output" if bringer.output else "prompt"}
