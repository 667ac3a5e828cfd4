"""Random runs for the kernels and the oracle of engines: traces, models, fleets."""

from dataclasses import replace
from random import Random
from typing import Any

from engine import random_trace, seeded
from engine_oracle import Model, Request
from strategies import POLICIES


def random_requests(rng: Random, requests: int, *, added: int = 8) -> list[Request]:
    """Return prompts that often extend an earlier prompt, at times with a part of its output."""
    vocabulary = rng.randint(2, 4)
    names = rng.choice(((None,), (None,), (None, None, "a")))
    made: list[Request] = []
    for tokens in random_trace(rng, requests, vocabulary, added):
        prompt = tokens
        if made and rng.random() < 0.3:
            turn = rng.choice(made)
            answer = turn.output[: rng.randint(0, len(turn.output))]
            prompt = turn.tokens + answer + tokens[: rng.randint(0, len(tokens))]
        output = tuple(rng.randrange(vocabulary) for _ in range(rng.randint(0, added)))
        known = output if rng.random() < 0.8 else ()
        told = rng.choice((None, len(output), rng.randint(0, 50)))
        made.append(Request(prompt, known, told, rng.choice(names)))
    return made


def random_model(rng: Random, **chosen: Any) -> Model:
    """Return settings that the oracle knows, some of them chosen."""
    unit = chosen.get("cache_unit") or rng.choice(("leaf", "block"))
    drawn = {
        "cache_unit": unit,
        "block_tokens": rng.choice((1, 1, 2, 3, 4, 16)),
        "partial_block": rng.choice(("drop", "keep")),
        "recompute_last_token": rng.random() < 0.5,
        "refresh": "insert" if unit == "block" else rng.choice(("probe", "match", "insert")),
        "in_flight": rng.choice(("none", "pins", "pins")),
        "when_full": rng.choice(("wait", "reject")),
        "cache_output": rng.random() < 0.4,
    }
    return Model(**drawn | chosen)


def random_knobs(rng: Random, requests: int, model: Model) -> dict[str, Any]:
    """Return a small fleet, prices and a clock, in which times are often equal."""
    block = model.block_tokens
    gaps = [0.0, *(rng.choice((0, rng.randint(1, 3000))) / 1000 for _ in range(requests - 1))]
    return {
        "model": model,
        "policy": rng.choice(POLICIES),
        "replicas": rng.randint(1, 5),
        "capacity_tokens": max(block, rng.randint(4, 40) * rng.choice((1, 1, block))),
        "prefill_ms_per_token": rng.choice((0.025, 1.0, 0.02513)),
        "lookup_ms_per_token": rng.choice((0.0015, 0.1, 0.0)),
        "decode_ms_per_token": rng.choice((0.0, 0.05, 0.3, 2.0)),
        "drain_ms": rng.choice((gaps, 12.0, 2.0, 0.05, 0.0)),
    }


def large_run(
    seed: int, requests: int = 800, **chosen: Any
) -> tuple[list[Request], dict[str, Any]]:
    """Return a long trace, and a fleet that evicts; at times look-ups touch blocks, too."""
    rng = seeded(seed)
    model = random_model(rng)
    if model.cache_unit == "block":
        model = replace(model, refresh=("insert", "probe", "match")[seed // 2 % 3])
    model = replace(model, **chosen)
    knobs = random_knobs(rng, requests, model)
    knobs["capacity_tokens"] = rng.randint(20, 60) * model.block_tokens
    knobs["drain_ms"] = knobs["drain_ms"] or 1.0
    return random_requests(rng, requests, added=2 + 2 * model.block_tokens), knobs
