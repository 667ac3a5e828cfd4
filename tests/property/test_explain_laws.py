"""What `explain` tells of any request of any replay is what the obvious fleet knows of it."""

from itertools import accumulate, pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from engine_oracle import Eviction, Model, OracleRun, Request, replay
from samples import write_trace

from pipeline.config import ClockConfig, CostModel, EngineConfig, FleetConfig, ReplayConfig
from pipeline.explain.moment import witnesses
from pipeline.explain.story import Story, tell
from pipeline.plan import planned

pytestmark = pytest.mark.usefixtures("compiled")

MODELS = {
    "reference": Model(),
    "sglang": Model(block_tokens=2, recompute_last_token=True, refresh="match"),
    "vllm": Model("block", block_tokens=2, recompute_last_token=True, refresh="insert"),
    "partial": Model("block", block_tokens=3, partial_block="keep", refresh="insert"),
    "waits": Model(in_flight="pins", when_full="wait", refresh="match"),
    "rejects": Model("block", block_tokens=2, refresh="insert", in_flight="pins"),
}
POLICIES = ("round_robin", "pure_affinity", "cache_aware")
PREFILL_MS, LOOKUP_MS, DECODE_MS = 1.0, 0.1, 2.0


def _requests(rng: Random) -> list[Request]:
    """Return requests that often go on where an earlier one ended, or leave it on the way."""
    made: list[tuple[int, ...]] = [()]
    for _ in range(rng.randint(6, 12)):
        earlier = rng.choice(made)
        kept = earlier[: rng.randint(0, len(earlier))]
        made.append(kept + tuple(rng.randint(0, 2) for _ in range(rng.randint(1, 5))))
    return [Request(tokens, output_tokens=rng.randint(0, 3)) for tokens in made]


def _config(model: Model, replicas: int, capacity: int, policy: str) -> ReplayConfig:
    return ReplayConfig(
        fleet=FleetConfig(replicas, capacity),
        engine=EngineConfig(**vars(model)),
        cost=CostModel(PREFILL_MS, LOOKUP_MS, DECODE_MS),
        clock=ClockConfig("timestamps"),
        policies=(policy,),
    )


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", MODELS)
def test_every_request_is_explained_as_the_obvious_fleet_has_it(
    tmp_path: Path, name: str, policy: str
) -> None:
    model, rng = MODELS[name], Random(f"{name} {policy}")  # noqa: S311 - not a secret
    for number in range(8):
        requests, replicas, capacity = _requests(rng), rng.randint(1, 3), rng.randint(6, 16)
        arrival_ms = sorted(rng.randint(0, 40) for _ in requests)
        run = replay(
            requests,
            policy=policy,
            replicas=replicas,
            capacity_tokens=capacity,
            model=model,
            prefill_ms_per_token=PREFILL_MS,
            lookup_ms_per_token=LOOKUP_MS,
            decode_ms_per_token=DECODE_MS,
            drain_ms=[0.0, *(float(b - a) for a, b in pairwise(arrival_ms))],
        )
        trace = write_trace(
            tmp_path / f"{number}.parquet",
            [request.tokens for request in requests],
            [1000 * ms for ms in arrival_ms],
            output_tokens=[request.output_tokens for request in requests],
        )
        with planned(trace, _config(model, replicas, capacity, policy)) as plan:
            for row in range(len(requests)):
                story = tell(plan, policy, row, witnesses(plan, row))
                _check_decision(story, run, row)
                if story["outcome"] == "served":
                    _check_tokens(story, run, requests[row], model, row)
                    _check_evictions(story, run, requests, model, row)


def _check_decision(story: Story, run: OracleRun, row: int) -> None:
    decision = run.decisions[row]
    assert story["outcome"] == decision.outcome
    if story["outcome"] != "served":
        assert ("rejected" in story) == bool(decision.prompt_tokens)
        return
    chosen = story["replicas"][story["replica_id"]]
    assert [r["replica_id"] for r in story["replicas"] if r["chosen"]] == [decision.replica_id]
    same = ("matched_tokens", "queue_wait_ms", "exec_ms", "ttft_ms")
    assert [story[n] for n in same] == [getattr(decision, n) for n in same]
    in_flight = ("queued_requests", "running_requests")
    assert [chosen[n] for n in in_flight] == [getattr(decision, n) for n in in_flight]
    if not story["waited_for"]:
        assert [chosen[n] for n in same[:3]] == [story[n] for n in same[:3]]
        best = max(r["matched_tokens"] for r in story["replicas"])
        assert best == decision.best_matched_tokens


def _check_tokens(story: Story, run: OracleRun, request: Request, model: Model, row: int) -> None:
    decision, sums, end = run.decisions[row], dict[str, int](), 0
    for part in story["tokens"]:
        assert (part["start_tokens"], part["tokens"] > 0) == (end, True)
        end += part["tokens"]
        sums[part["part"]] = sums.get(part["part"], 0) + part["tokens"]
    assert end == decision.prompt_tokens
    wanted = {
        "matched": decision.matched_tokens,
        "recomputed": decision.recomputed_tokens,
        "elsewhere": decision.elsewhere_tokens,
        "evicted": decision.evicted_tokens_missed,
        "cold": decision.cold_tokens,
    }
    assert sums == {part: tokens for part, tokens in wanted.items() if tokens}
    for part in story["tokens"]:
        if part["part"] != "evicted":
            continue
        # What was computed beyond whole blocks goes with the block before it.
        start, end = part["start_tokens"], part["start_tokens"] + part["tokens"]
        for block in _blocks(model, request):
            if not start < len(block) <= end:
                continue
            eviction = _last_loss(run, block, row)
            assert part["replica_id"] == eviction.replica_id
            assert part["evicted_for"].row == eviction.for_seq
            assert part["last_used_by"].row == eviction.last_used_seq


def _blocks(model: Model, request: Request) -> list[tuple[int, ...]]:
    """Return what is kept of a prompt: each block named by all tokens until its end."""
    ends = accumulate(map(len, model.kept(request.prompt)))
    return [request.tokens[:end] for end in ends]


def _last_loss(run: OracleRun, block: tuple[int, ...], row: int) -> Eviction:
    """Return the last eviction before a request that took a block."""
    return [
        eviction
        for eviction in run.evictions
        if eviction.for_seq < row
        and eviction.start_tokens < len(block)
        and eviction.path[: len(block)] == block
    ][-1]


def _check_evictions(
    story: Story, run: OracleRun, requests: list[Request], model: Model, row: int
) -> None:
    decision = run.decisions[row]
    told = story["evictions"]
    assert sum(eviction["evicted_tokens"] for eviction in told) == decision.evicted_tokens
    assert sum(eviction["evicted_nodes"] for eviction in told) == decision.evicted_nodes
    assert decision.replica_id is not None
    brought = _bringers(run, requests, model, row, decision.replica_id)
    lost = [e for e in run.evictions if e.for_seq == row]
    firsts = [e.path[: e.start_tokens + model.block_tokens] for e in lost]
    wanted = {
        (e.start_tokens, e.last_used_seq, brought[first])
        for e, first in zip(lost, firsts, strict=True)
    }
    found: set[Any] = {
        (e["start_tokens"], e["last_used_by"].row, e["brought_by"]["request"].row) for e in told
    }
    # The oracle evicts blocks one by one, the engine in runs.
    assert found <= wanted
    if model.cache_unit == "leaf":
        assert found == wanted


def _bringers(
    run: OracleRun, requests: list[Request], model: Model, row: int, replica: int
) -> dict[tuple[int, ...], int]:
    """Return who brought each block that a replica holds as a request comes."""
    brought: dict[tuple[int, ...], int] = {}
    for seq in range(row):
        for eviction in run.evictions:
            if eviction.for_seq == seq and eviction.replica_id == replica:
                start, path = eviction.start_tokens, Request(eviction.path)
                for block in _blocks(model, path):
                    if len(block) > start:
                        del brought[block]
        if run.decisions[seq].replica_id == replica:
            for block in _blocks(model, requests[seq]):
                brought.setdefault(block, seq)
    return brought
