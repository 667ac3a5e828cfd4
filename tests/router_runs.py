"""Small random runs behind any router, and what the oracle of routers tells of them."""

from random import Random
from typing import Any, NamedTuple

from engine import seeded
from engine_oracle import TICKS_PER_MS, Request
from model_cases import random_model, random_requests
from router_cases import RULES, random_routing
from router_oracle import OracleRun, replay
from router_views import WIPE


class Case(NamedTuple):
    """A trace, the name of a rule, knobs of the oracle, and how many requests a batch has."""

    requests: list[Request]
    rule: str
    knobs: dict[str, Any]
    size: int


def random_case(seed: int) -> Case:
    """Return a run of any rule, which is `witness` rather often.

    Of each four, one waits for outputs, one touches what it looks up, and one restarts as a request
    completes; in the latter two the router is often late.
    """
    rng = seeded(seed)
    rule = rng.choice((*sorted(RULES), *["witness"] * 4))
    added, chosen = rng.choice((3, 8, 20)), {}
    if seed % 4 == 0:
        chosen = {"in_flight": "pins", "when_full": "wait", "cache_output": True}
    elif seed % 4 == 1:
        chosen = {"cache_unit": "leaf", "refresh": "probe"}
    case = case_of(rng, rng.randint(1, 40), rule, added=added, **chosen)
    if seed % 4 in (1, 2) and rng.random() < 0.5:
        case.knobs["view"] = ("lag", rng.randint(0, 60_000))
    return restarted(rng, case) if seed % 4 == 2 else case


def case_of(rng: Random, requests: int, rule: str, *, added: int = 8, **chosen: Any) -> Case:
    """Return a run of that rule, with any model but for the settings chosen."""
    trace = random_requests(rng, requests, added=added)
    knobs = random_routing(rng, requests, random_model(rng, **chosen)) | {
        "prefill_ms_per_token": rng.choice((0.025, 1.0, 0.02513)),
        "lookup_ms_per_token": rng.choice((0.0015, 0.1, 0.0)),
        "decode_ms_per_token": rng.choice((0.0, 0.3, 2.0)),
    }
    return Case(trace, rule, knobs, rng.randint(1, requests))


def restarted(rng: Random, case: Case) -> Case:
    """Return a case in which a replica restarts at the tick at which a request completes there."""
    knobs = case.knobs | {"decode_ms_per_token": 0.0}
    told = told_by_oracle(case._replace(knobs=knobs | {"changes": []})).decisions
    served = [one for one in told if one.outcome == "served"]
    if not served:
        return case
    one = rng.choice(served[: 1 + len(served) // 2])
    took = round((one.queue_wait_ms + one.exec_ms) * TICKS_PER_MS)
    changes = [(knobs["clock"][one.seq] + took, one.replica_id, WIPE)]
    return case._replace(knobs=knobs | {"changes": changes})


def told_by_oracle(case: Case) -> OracleRun:
    """Serve a case with the oracle, as far as the kernels do before they finish."""
    rule = RULES[case.rule]
    return replay(
        case.requests, rule=rule.rule(), looks_up=rule.looks_up, **case.knobs, to_the_end=False
    )
