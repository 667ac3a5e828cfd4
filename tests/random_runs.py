"""Small random runs that obey the contracts: rows of every table, consistent with each other."""

from typing import NamedTuple

import numpy as np
from query_tables import START_US, WINDOW_US, Row, replica

from pipeline.tables import FAILED, SERVED

FIRST_SEED = 0


class Shape(NamedTuple):
    """How large a run is, and what share of its requests is turned away, is lost, or warms up.

    Every policy but the first has so many seeds.
    """

    requests: int
    policies: tuple[str, ...] = ("cache_aware", "pure_affinity", "round_robin")
    replicas: int = 4
    idle: int = 1
    rejected_ratio: float = 0.1
    longest_prompt: int = 100_000
    warmup_ratio: float = 0.0
    in_flight: bool = False
    failed_ratio: float = 0.0
    seeds: int = 1


def random_run(seed: int, shape: Shape) -> dict[str, list[Row]]:
    """Return rows of every table, lawful and consistent with each other."""
    rng = np.random.default_rng(seed)
    trace = _trace(rng, shape)
    names = ("decisions", "evictions", "replicas", "seed_decisions", "seed_replicas")
    rows: dict[str, list[Row]] = {"trace": trace, **{name: [] for name in names}}
    for policy in shape.policies:
        for name, new in _replayed(rng, trace, shape, policy).items():
            rows[name] += [row | {"policy": policy} for row in new]
    for policy in shape.policies[1:]:
        for further in range(FIRST_SEED + 1, FIRST_SEED + shape.seeds):
            found = _replayed(rng, trace, shape, policy)
            for name in ("decisions", "replicas"):
                labels = {"policy": policy, "seed": further}
                rows[f"seed_{name}"] += [row | labels for row in found[name]]
    return rows


def _replayed(
    rng: np.random.Generator, trace: list[Row], shape: Shape, policy: str
) -> dict[str, list[Row]]:
    """Return one policy's decisions, evictions and windows; a lost request comes with a restart."""
    decisions, evictions = [], []
    for request in trace:
        served = request["outcome"] == SERVED and rng.random() >= shape.failed_ratio
        lost = _evictions(rng, request) if served else []
        decisions.append(_decide(rng, request, shape, lost))
        if request["outcome"] == SERVED and not served:
            decisions[-1] = _failed(decisions[-1])
            restart = {"for_seq": None, "cause": "restart"}
            lost = [row | restart for row in _evictions(rng, request)]
        elif served and policy == "round_robin":  # which doesn't look up
            decisions[-1]["believed_matched_tokens"] = None
        where = decisions[-1]["replica_id"] if served else 0
        evictions += [row | {"replica_id": where} for row in lost]
    windows = _windows(rng, decisions, evictions, shape.replicas)
    return {"decisions": decisions, "evictions": evictions, "replicas": windows}


def _failed(row: Row) -> Row:
    kept = ("seq", "request_id", "arrival", "tenant", "prompt_tokens", "is_warmup")
    return {name: row[name] for name in kept} | {"outcome": FAILED}


def _trace(rng: np.random.Generator, shape: Shape) -> list[Row]:
    tenants = [None, "", "acme", "umlaut-ä", "zeta", "Zeta"]
    arrival = START_US
    rows = []
    for seq in range(shape.requests):
        arrival += int(rng.choice([0, 0, 7, 250_000, 900_001]))
        prompt = int(rng.choice([0, 1, 17, 400, 8192, rng.integers(1, 100_000)]))
        prompt = min(prompt, shape.longest_prompt)
        served = rng.random() >= shape.rejected_ratio
        refusals = ("rejected_too_long", "rejected_pinned") if prompt else ("rejected_empty",)
        rows.append(
            {
                "seq": seq,
                "request_id": f"r{seq % 7}-{seq}",
                "arrival": arrival,
                "tenant": tenants[rng.integers(len(tenants))],
                "prompt_tokens": prompt,
                "outcome": SERVED if served else refusals[rng.integers(len(refusals))],
                "is_warmup": seq < shape.warmup_ratio * shape.requests,
                "first_token_id": 0,
                "prefix_seq": seq - 1 if seq else None,
                "prefix_tokens": int(rng.integers(0, prompt + 1)) if seq else 0,
            }
        )
    return rows


def _decide(rng: np.random.Generator, request: Row, shape: Shape, lost: list[Row]) -> Row:
    links = {"first_token_id", "prefix_seq", "prefix_tokens"}
    row = {name: value for name, value in request.items() if name not in links}
    if row["outcome"] != SERVED:
        return row
    prompt, known = request["prompt_tokens"], request["prefix_tokens"]
    cuts = np.sort(rng.integers(0, known + 1, size=3))
    parts = np.diff(cuts, prepend=0, append=known).tolist()
    rng.shuffle(parts)
    matched, evicted, elsewhere, recomputed = parts
    queue = float(rng.choice([0.0, 0.0, 1.25, 100 / 3, rng.random() * 1000]))
    execution = round(matched * 0.001 + (prompt - matched) * 0.025, 4)
    replica_id = int(rng.integers(max(1, shape.replicas - shape.idle)))
    best = int(rng.integers(shape.replicas))
    regret = round(float(rng.choice([0.0, 0.0001, 2.5, 100 / 3, rng.random() * 1000])), 4)
    waiting = rng.integers(0, 5, size=2).tolist() if shape.in_flight else (None, None)
    return row | {
        "replica_id": replica_id,
        "matched_tokens": matched,
        "computed_tokens": prompt - matched,
        "cold_tokens": prompt - known,
        "evicted_tokens_missed": evicted,
        "elsewhere_tokens": elsewhere,
        "recomputed_tokens": recomputed,
        "best_matched_tokens": matched + elsewhere,
        "believed_matched_tokens": int(rng.choice([matched, 0, rng.integers(0, prompt + 1)])),
        "decided_by": ("least load", "most matched tokens")[rng.integers(2)],
        "queue_wait_ms": queue,
        "exec_ms": execution,
        "ttft_ms": round(queue + execution, 2),
        "best_replica_id": best,
        "regret_ms": 0.0 if best == replica_id else regret,
        "evicted_tokens": sum(e["evicted_tokens"] for e in lost),
        "evicted_nodes": sum(e["evicted_nodes"] for e in lost),
        "resident_tokens": int(rng.integers(prompt, prompt + 10_000)),
        "queued_requests": waiting[0],
        "running_requests": waiting[1],
    }


def _evictions(rng: np.random.Generator, request: Row) -> list[Row]:
    """Return what one request evicted; prefixes of a warm-up trace were used by none of these."""
    rows = []
    for _ in range(rng.integers(0, 3)):
        age = int(rng.integers(0, request["seq"] + 3))
        last_used = request["seq"] - age
        tokens = int(rng.integers(1, 500))
        again = rng.random() < 0.4
        wait = float(rng.choice([0, 999.9, 1000, 10_000, 59_000, 600_001, 3_600_000, 9_999_999]))
        rows.append(
            {
                "seq": request["seq"],
                "arrival": request["arrival"],
                "for_seq": request["seq"] if rng.random() < 0.9 else None,
                "cause": "room",
                "evicted_tokens": tokens,
                "evicted_nodes": int(rng.integers(1, 4)),
                "start_tokens": int(rng.integers(0, 500)),
                "last_used_seq": last_used if last_used >= 0 else None,
                "age_requests": age,
                "age_ms": float(rng.integers(0, 10_000_000)) / 1000,
                "asked_again_seq": request["seq"] + 1 if again else None,
                "asked_again_ms": wait if again else None,
                "asked_again_tokens": int(rng.integers(1, tokens + 1)) if again else 0,
                "is_warmup": request["is_warmup"],
            }
        )
    return rows


def _windows(
    rng: np.random.Generator, decisions: list[Row], evictions: list[Row], replicas: int
) -> list[Row]:
    last = max((row["arrival"] for row in decisions), default=START_US)
    rows = []
    for start in range(START_US, last + 1, WINDOW_US):
        for replica_id in range(replicas):
            here, lost = (
                [
                    row
                    for row in table
                    if row.get("replica_id") == replica_id
                    and not row["is_warmup"]
                    and start <= row["arrival"] < start + WINDOW_US
                ]
                for table in (decisions, evictions)
            )
            sums = {
                name: sum(row[name] for row in here)
                for name in ("prompt_tokens", "matched_tokens", "computed_tokens")
            }
            rows.append(
                replica(
                    replica_id,
                    window_start=start,
                    requests=len(here),
                    evicted_tokens=sum(row["evicted_tokens"] for row in lost),
                    max_queue_wait_ms=max((row["queue_wait_ms"] for row in here), default=0.0),
                    resident_tokens=int(rng.integers(0, 50_000)),
                    **sums,
                )
            )
    return rows
