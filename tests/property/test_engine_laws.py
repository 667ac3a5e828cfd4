"""Under any engine's settings the kernels tell what the oracle tells, and obey their own laws."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cache_oracle import common
from engine import random_trace, seeded
from engine_oracle import Decision, Model, Request
from engine_oracle import replay as replay_oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from model_cases import large_run, random_knobs, random_model, random_requests
from model_engine import ModelEngine, ModelRun, check_same, paths_of, replay_model
from strategies import (
    POLICIES,
    Costs,
    Fleet,
    Served,
    arrival_gaps,
    costs,
    decays,
    fleets,
    models,
    policies,
    served_traces,
)

UNITS = ("leaf", "block")
every_unit = pytest.mark.parametrize("unit", UNITS)
REASONS = ("cold_tokens", "evicted_tokens_missed", "elsewhere_tokens", "recomputed_tokens")


def served(run: ModelRun) -> list[Decision]:
    return [one for one in run.decisions if one.outcome == "served"]


def unlimited(model: Model) -> dict[str, Any]:
    """Return one replica that has room for everything."""
    room = {"replicas": 1, "capacity_tokens": 10**9}
    return {"model": model, "policy": "round_robin", "drain_ms": 10.0, **room}


@every_unit
@settings(max_examples=120, deadline=None)
@given(data=st.data(), trace=served_traces(), fleet=fleets(), price=costs(), policy=policies())
def test_every_decision_every_eviction_and_the_caches_at_the_end_are_the_oracles(
    data: st.DataObject, unit: str, trace: Served, fleet: Fleet, price: Costs, policy: str
) -> None:
    requests, model = trace.requests, data.draw(models(unit, trace.width), "model")
    wide = fleet.capacity_tokens * data.draw(st.sampled_from((1, trace.width)), "wide")
    knobs = {
        "policy": policy,
        "replicas": fleet.replicas,
        "capacity_tokens": max(wide, model.block_tokens),
        **price._asdict(),
        "decode_ms_per_token": data.draw(st.sampled_from((0.0, 0.05, 0.3, 2.0)), "decode"),
        "drain_ms": data.draw(st.one_of(decays(), arrival_gaps(len(requests))), "drain"),
        "to_the_end": data.draw(st.booleans(), "to the end"),
    }
    wanted = replay_oracle(requests, model=model, **knobs)
    batch = data.draw(st.integers(1, 21), "batch")
    told = replay_model(requests, model=model, batch_requests=batch, **knobs)
    check_same(requests, model, told, wanted)


@every_unit
@pytest.mark.parametrize("replicas", [65, 130])
def test_a_fleet_of_more_than_one_word_of_replicas_decides_as_the_oracle(
    unit: str, replicas: int
) -> None:
    rng = seeded(replicas)
    prompts = random_trace(rng, 330, vocabulary=replicas, added=9)
    requests = [Request(tokens, output_tokens=rng.randint(0, 40)) for tokens in prompts]
    model = random_model(rng, cache_unit=unit, block_tokens=2, in_flight="pins", when_full="wait")
    model = replace(model, refresh="insert" if unit == "block" else "probe")
    knobs = random_knobs(rng, len(requests), model) | {
        "policy": "cache_aware",
        "replicas": replicas,
        "capacity_tokens": 12,
        "prefill_ms_per_token": 0.3,
        "drain_ms": 0.001,
    }
    told = replay_model(requests, batch_requests=100, **knobs)
    check_same(requests, model, told, replay_oracle(requests, **knobs))
    assert max(one.replica_id or 0 for one in told.decisions) > replicas - 10
    assert len(told.evictions) > 10


@pytest.mark.parametrize("seed", range(24))
def test_every_token_is_accounted_for(seed: int) -> None:
    requests, knobs = large_run(seed)
    model, block = knobs["model"], knobs["model"].block_tokens
    run = replay_model(requests, batch_requests=300, **knobs)
    assert [one.seq for one in run.decisions] == list(range(len(requests)))
    lost: Counter[int] = Counter()
    for row in run.evictions:
        assert row["last_used_seq"] <= row["seq"]
        assert row["for_seq"] <= row["seq"]
        assert row["start_tokens"] % block == 0
        assert row["evicted_tokens"] > 0
        if model.cache_unit == "block":
            assert row["evicted_nodes"] == -(-row["evicted_tokens"] // block)
        lost[row["for_seq"]] += row["evicted_tokens"]
    for one in served(run):
        reasons = [getattr(one, name) for name in REASONS]
        assert min(reasons) >= 0
        assert sum(reasons) == one.computed_tokens
        assert one.matched_tokens + one.computed_tokens == one.prompt_tokens
        assert 0 <= one.matched_tokens <= one.best_matched_tokens
        assert one.best_matched_tokens <= one.prompt_tokens - model.recompute_last_token
        assert one.recomputed_tokens < block + model.recompute_last_token
        assert one.resident_tokens <= knobs["capacity_tokens"] // block * block
        kept_of_output = lost[one.seq] - one.evicted_tokens
        assert kept_of_output >= 0 if model.cache_output else kept_of_output == 0
    assert len(run.evictions) > 50


@pytest.mark.parametrize("seed", range(16))
def test_what_is_resident_is_what_was_inserted_less_what_was_evicted(seed: int) -> None:
    requests, knobs = large_run(seed, 400, cache_output=False)
    model, block = knobs["model"], knobs["model"].block_tokens
    engine = ModelEngine(requests, **knobs)
    resident = [0] * knobs["replicas"]
    for request in requests:
        step = engine.step(1)
        row, replica = step.rows[0], int(step.rows[0]["replica_id"])
        if replica < 0:
            assert len(step.lost) == 0
            continue
        assert (step.lost["replica_id"] == replica).all()
        gone = int(step.lost["evicted_tokens"].sum())
        assert gone == row["evicted_tokens"]
        inserted = int(row["resident_tokens"]) - resident[replica] + gone
        resident[replica] = int(row["resident_tokens"])
        length = len(request.tokens)
        kept = length if model.partial_block == "keep" else length // block * block
        # The block beyond the match may itself have made room.
        beyond = kept - int(row["resident_tokens_here"]), kept - int(row["matched_tokens"])
        assert inserted in (beyond if gone else beyond[:1])
        state = engine.replayer.fleet.replicas[replica]
        free = knobs["capacity_tokens"] // block - state["resident_blocks"] - state["held_blocks"]
        assert free >= 0
        if model.cache_unit == "block" and gone:
            dropped = 0 if model.in_flight == "pins" else -(-length // block) - -(-kept // block)
            assert free - dropped in (0, int(beyond[0] < beyond[1]))


@pytest.mark.parametrize("seed", range(12))
def test_cold_is_what_no_earlier_prompt_that_was_served_has(seed: int) -> None:
    requests, knobs = large_run(seed, 400, cache_output=False)
    seen: set[tuple[str | None, tuple[int, ...]]] = set()
    for one in served(replay_model(requests, **knobs)):
        request = requests[one.seq]
        heads = [
            (request.namespace, request.tokens[:end]) for end in range(1, 1 + len(request.tokens))
        ]
        assert one.cold_tokens == sum(head not in seen for head in heads)
        seen.update(heads)


@pytest.mark.parametrize("seed", range(20))
def test_one_replica_that_never_evicts_finds_the_longest_prefix_in_whole_blocks(seed: int) -> None:
    rng = seeded(seed)
    requests, model = random_requests(rng, 200, added=20), random_model(rng, in_flight="none")
    run = replay_model(requests, **unlimited(model))
    earlier: list[tuple[Any, ...]] = []
    block, keeps = model.block_tokens, model.partial_block == "keep"
    for request, one in zip(requests, run.decisions, strict=True):
        prompt = request.prompt
        if not prompt:
            continue
        longest = max((common(prompt, other) for other in earlier), default=0)
        findable = (len(prompt) - model.recompute_last_token) // block * block
        wanted = min(longest // block * block, findable)
        if keeps and not model.recompute_last_token and prompt in earlier:
            wanted = len(prompt)
        assert one.matched_tokens == wanted
        earlier.append(prompt)
        if model.cache_output:
            earlier.append(model.whole(prompt, request.answer))
    assert run.evictions == []


@pytest.mark.parametrize("seed", range(4))
def test_with_room_for_all_neither_unit_nor_refresh_nor_pins_change_a_hit(seed: int) -> None:
    rng = seeded(seed)
    requests = random_requests(rng, 300)
    first = random_model(rng, cache_output=False)
    found = set()
    for unit in UNITS:
        for refresh in ("probe", "match", "insert"):
            for in_flight in ("none", "pins"):
                model = replace(first, cache_unit=unit, refresh=refresh, in_flight=in_flight)
                run = replay_model(requests, **unlimited(model))
                found.add(tuple(one.matched_tokens for one in run.decisions))
    assert len(found) == 1


@pytest.mark.parametrize("seed", range(12))
def test_pins_that_are_gone_before_the_next_request_change_nothing(seed: int) -> None:
    requests, knobs = large_run(seed, 400, in_flight="none")
    knobs["drain_ms"] = [60_000.0] * len(requests)
    alone = replay_model(requests, **knobs)
    for when_full in ("wait", "reject"):
        model = replace(knobs["model"], in_flight="pins", when_full=when_full)
        told = replay_model(requests, **knobs | {"model": model})
        same = {"queued_requests": None, "running_requests": None}
        for one, other in zip(told.decisions, alone.decisions, strict=True):
            if one.outcome == "served":
                assert (one.queued_requests, one.running_requests) == (0, 0)
            if model.cache_output:
                same["resident_tokens"] = other.resident_tokens
            assert replace(one, **same) == other
        assert told.evictions == alone.evictions


@pytest.mark.parametrize("seed", range(12))
def test_the_size_of_a_batch_changes_nothing(seed: int) -> None:
    requests, knobs = large_run(seed, 500)
    whole = replay_model(requests, batch_requests=len(requests), **knobs)
    for batch in (1, 3, 64, 499):
        told = replay_model(requests, batch_requests=batch, **knobs)
        assert told[:2] == whole[:2]
        for name in ("resident", "cut", "ever", "touched", "replicas", "clock"):
            np.testing.assert_array_equal(getattr(told.fleet, name), getattr(whole.fleet, name))


@pytest.mark.parametrize("seed", range(12))
def test_queued_and_running_are_what_the_times_of_the_decisions_say(seed: int) -> None:
    requests, knobs = large_run(seed, 500, in_flight="pins")
    knobs |= {"drain_ms": (0.05, 2.0)[seed % 2], "decode_ms_per_token": 0.3}
    engine = ModelEngine(requests, **knobs)
    batch, rows, _ = engine.step(len(requests))
    here = np.flatnonzero(rows["outcome"] == 0)
    now, rows = batch.clock_ticks[here], rows[here]
    start = now + rows["queue_ticks"]
    first_token = start + rows["exec_ticks"]
    end = first_token + np.rint(batch.output_tokens[here] * 0.3 * 1e4).astype(np.int64)
    for i in range(len(rows)):
        mine = np.flatnonzero(rows["replica_id"][:i] == rows["replica_id"][i])
        queued, running = start[mine] > now[i], (start[mine] <= now[i]) & (now[i] < end[mine])
        assert rows["queued_requests"][i] == queued.sum()
        assert rows["running_requests"][i] == running.sum()
        assert (first_token[mine] <= start[i]).all()
    assert rows["running_requests"].max() > 0


@every_unit
@pytest.mark.parametrize("policy", POLICIES)
def test_a_name_for_the_only_namespace_costs_nothing(unit: str, policy: str) -> None:
    requests, knobs = large_run(3, 300, cache_unit=unit, cache_output=True)
    knobs["policy"] = policy
    none: Sequence[Request] = [replace(request, namespace=None) for request in requests]
    named = [replace(request, namespace="a") for request in requests]
    for one, other in zip(
        paths_of(none, knobs["model"]), paths_of(named, knobs["model"]), strict=True
    ):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)
    runs = [replay_model(trace, **knobs) for trace in (none, named)]
    assert runs[0][:2] == runs[1][:2]
    for left, right in zip(runs[0].fleet, runs[1].fleet, strict=True):
        if isinstance(left, np.ndarray):
            np.testing.assert_array_equal(left, right)
