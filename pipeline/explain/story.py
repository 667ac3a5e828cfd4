"""All that is told of one request under one policy, as JSON has it."""

from typing import Any

from pipeline.config import TICKS_PER_MS
from pipeline.explain.moment import Moment, Outcome, batches_until, went_ahead
from pipeline.explain.names import Named
from pipeline.explain.origins import Bringer, Origins
from pipeline.explain.reasons import no_room, reason
from pipeline.explain.tokens import held_tokens, prompt_parts
from pipeline.plan import Plan
from pipeline.replay import find_policy
from pipeline.replay.fleet import Fleet
from pipeline.replay.loop import EMPTY, SERVED, Batch
from pipeline.tables import OUTCOMES
from pipeline.upcoming import UpcomingRequests

Story = dict[str, Any]


def tell(plan: Plan, policy: str, row: int, before: UpcomingRequests) -> Story:
    """Replay under a policy up to the request in a row of the plan, and tell what happens then.

    `before` are the witnesses of the plan, see moment.witnesses.
    """
    moment = Moment(plan, policy, row)
    for batch in batches_until(plan, row):
        if batch.seq[0] == row:
            request = batch
        else:
            moment.replay(batch)
    seen = moment.seen(request)
    outcome = moment.serve(request, seen, before)
    decision, score = outcome.decision, find_policy(policy).score
    story: Story = {"outcome": OUTCOMES[decision["outcome"]]}
    if decision["outcome"] == EMPTY:
        return story | {"reason": "the prompt has no tokens: nothing is looked up or routed"}
    told = _replicas(plan, seen, row, outcome.chosen, score.scale)
    story |= {
        "replica_id": outcome.chosen,
        "reason": reason(score, told, outcome.chosen, int(request.first_token_id[0])),
        "score": {"name": score.name, "unit": score.unit or None, "best": score.best},
        "replicas": told,
    }
    if decision["outcome"] != SERVED:
        return story | {"rejected": no_room(seen, request, outcome)}
    origins = Origins(plan.paths, before, moment.history, outcome.fleet.brought)
    return story | {
        "matched_tokens": int(decision["matched_tokens"]),
        "queue_wait_ms": int(decision["queue_ticks"]) / TICKS_PER_MS,
        "exec_ms": int(decision["exec_ticks"]) / TICKS_PER_MS,
        "ttft_ms": int(decision["ttft_cents"]) / 100,
        "waited_for": _waited_for(seen, outcome, request),
        "tokens": prompt_parts(plan, outcome, row),
        "evictions": _evictions(plan, outcome, origins),
    }


def _replicas(plan: Plan, seen: Fleet, row: int, chosen: int, scale: int) -> list[Story]:
    """Return what each replica had for the request, as the policy saw it."""
    in_flight = plan.config.engine.in_flight != "none"
    held = held_tokens(seen, row)
    return [
        {
            "replica_id": r,
            "resident_tokens": int(replica["resident_tokens"]),
            "prefix_tokens": int(held[r]),
            "matched_tokens": int(replica["matched_tokens"]),
            "queue_wait_ms": int(replica["queue_ticks"]) / TICKS_PER_MS,
            "exec_ms": int(replica["exec_ticks"]) / TICKS_PER_MS,
            "queued_requests": int(replica["queued_requests"]) if in_flight else None,
            "running_requests": int(replica["running_requests"]) if in_flight else None,
            "score": _score(float(replica["score"]), scale),
            "chosen": r == chosen,
        }
        for r, replica in enumerate(seen.replicas)
    ]


def _score(score: float, scale: int) -> float:
    """Return a score in its unit, as a whole number where it is one by nature."""
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
