"""Explaining a request: real runs, outputs, many evictions, and reasons of policies to come."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from samples import Prompts, Row, column, decisions, requests, write_trace

from pipeline.config import ENGINES, EngineConfig, FleetConfig, ReplayConfig
from pipeline.explain import as_text, explain_request
from pipeline.explain.origins import Loss, last_losses
from pipeline.explain.reasons import reason
from pipeline.replay.cache import EVICTION
from pipeline.replay.policies import Score
from pipeline.run import replay_trace
from pipeline.trace import TraceMetadata, TraceWriter
from pipeline.trace.linker import Lists

pytestmark = pytest.mark.usefixtures("compiled")

DAY = Path(__file__).parents[2] / "traces" / "day1.parquet"
PARTS = {
    "matched": "matched_tokens",
    "recomputed": "recomputed_tokens",
    "elsewhere": "elsewhere_tokens",
    "evicted": "evicted_tokens_missed",
    "cold": "cold_tokens",
}
ONE = FleetConfig(replicas=1, capacity_tokens=6)


@pytest.mark.parametrize("engine", ["reference", "vllm"])
def test_requests_of_a_day_are_explained_as_they_were_decided(tmp_path: Path, engine: str) -> None:
    run, policies = tmp_path / "run", ("round_robin", "cache_aware")
    fleet = FleetConfig(3, 60_000)
    replay_trace(DAY, run, ReplayConfig(fleet=fleet, engine=ENGINES[engine], policies=policies))
    rows = {policy: decisions(run, policy) for policy in policies}
    for seq in Random(7).sample(range(len(rows["cache_aware"])), 8):  # noqa: S311 - not a secret
        told = explain_request(run, rows["cache_aware"][seq]["request_id"], seq=seq)
        for policy, story in told["policies"].items():
            _check(story, rows[policy][seq])


def _check(story: dict[str, Any], row: Row) -> None:
    assert story["outcome"] == row["outcome"] == "served"
    chosen = story["replicas"][row["replica_id"]]
    assert chosen["chosen"]
    same = ("matched_tokens", "queue_wait_ms", "exec_ms")
    assert [chosen[name] for name in same] == [row[name] for name in same]
    assert max(column(story["replicas"], "matched_tokens")) == row["best_matched_tokens"]
    found = dict.fromkeys(PARTS, 0)
    for part in story["tokens"]:
        found[part["part"]] += part["tokens"]
    assert found == {part: row[name] for part, name in PARTS.items()}
    assert sum(column(story["evictions"], "evicted_tokens")) == row["evicted_tokens"]
    assert sum(column(story["evictions"], "evicted_nodes")) == row["evicted_nodes"]
    computed = row["computed_tokens"] - row["evicted_tokens"]
    assert chosen["resident_tokens"] + computed >= row["resident_tokens"]
    assert all(eviction["brought_by"] for eviction in story["evictions"])


def _run_of_outputs(
    path: Path, prompts: Prompts, outputs: Prompts, fleet: FleetConfig = ONE, **engine: Any
) -> Path:
    """Replay requests that come one after another, and whose outputs are kept."""
    offsets = np.cumsum([0, *map(len, outputs)], dtype=np.int64)
    ids = np.array([token for output in outputs for token in output], np.uint32)
    trace = path / "a.parquet"
    with TraceWriter(trace, TraceMetadata(), outputs=True) as writer:
        writer.write(requests(prompts, [0] * len(prompts))._replace(outputs=Lists(ids, offsets)))
    settings = EngineConfig(cache_output=True, **engine)
    replay_trace(trace, path / "run", ReplayConfig(fleet, settings, policies=("cache_aware",)))
    return path / "run"


def test_an_output_is_named_as_what_brought_tokens(tmp_path: Path) -> None:
    run = _run_of_outputs(tmp_path, [(1, 2), (1, 2, 3, 4), (7, 8, 9, 5, 6)], [(3,), (), ()])
    told = explain_request(run, "r2")
    evictions = told["policies"]["cache_aware"]["evictions"]
    brought = [(e["start_tokens"], e["brought_by"]["as"]) for e in evictions]
    assert brought == [(3, "prompt"), (2, "output"), (0, "prompt")]
    assert [e["brought_by"]["request"]["seq"] for e in evictions] == [1, 0, 0]
    assert "output of r0 (seq 0)" in as_text(told)


def test_an_output_that_found_its_tokens_there_did_not_bring_them(tmp_path: Path) -> None:
    prompts = [(1, 2, 3, 4, 5), (1, 2), (6, 7, 8, 9)]
    run = _run_of_outputs(tmp_path, prompts, [(), (3, 4), ()])
    [story] = explain_request(run, "r2")["policies"].values()
    brought = [(e["start_tokens"], e["brought_by"]["as"]) for e in story["evictions"]]
    assert brought == [(4, "prompt"), (2, "prompt")]
    assert [e["brought_by"]["request"]["seq"] for e in story["evictions"]] == [0, 0]


def test_an_output_brings_its_block_beside_the_partial_block_of_its_prompt(tmp_path: Path) -> None:
    blocks = {"cache_unit": "block", "block_tokens": 3, "partial_block": "keep"}
    prompts = [(1, 2, 3, 4), (9, 8, 7, 6, 5, 4)]
    fleet = FleetConfig(1, 9)
    run = _run_of_outputs(tmp_path, prompts, [(5, 6), ()], fleet, refresh="insert", **blocks)
    [story] = explain_request(run, "r1")["policies"].values()
    brought = [(e["start_tokens"], e["brought_by"]["as"]) for e in story["evictions"]]
    assert brought == [(3, "prompt"), (3, "output")]


def test_what_an_output_evicts_is_told_apart(tmp_path: Path) -> None:
    run = _run_of_outputs(tmp_path, [(1, 2), (5, 6, 7)], [(), (8, 9)])
    told = explain_request(run, "r1")
    story = told["policies"]["cache_aware"]
    assert story["evictions"] == []
    assert story["output_evictions"] == {"evicted_tokens": 2, "evicted_nodes": 1}
    assert as_text(told).endswith("\nevicted for its output when it completed: 2 tokens\n")


def test_of_many_evictions_the_text_has_the_largest_twenty(tmp_path: Path) -> None:
    prompts: Prompts = [*([n] * (1 + n % 2) for n in range(1, 26)), range(100, 138)]
    trace = write_trace(tmp_path / "a.parquet", prompts)
    config = ReplayConfig(FleetConfig(1, 38), policies=("cache_aware",))
    replay_trace(trace, tmp_path / "run", config)
    told = explain_request(tmp_path / "run", "r25")
    assert len(told["policies"]["cache_aware"]["evictions"]) == 25
    lines = as_text(told).splitlines()
    [title] = [line for line in lines if line.startswith("evicted for it")]
    assert title == (
        "evicted for it on replica 0: 38 tokens in 25 leaves;"
        " the 20 largest evictions, 5 more in json"
    )
    rows = [line.split() for line in lines[lines.index(title) + 4 :]]
    # Prompts of odd ids have two tokens.
    assert [row[0] for row in rows] == 13 * ["2"] + 7 * ["1"]


def test_the_last_eviction_of_each_part_is_found() -> None:
    losses = np.zeros(3, EVICTION)
    losses["start_tokens"], losses["asked_again_tokens"] = (0, 4, 2), (10, 2, 3)
    losses["seq"] = (1, 2, 3)
    found = [(loss.start, loss.end, int(loss.eviction["seq"])) for loss in _losses(losses)]
    assert found == [(1, 2, 1), (2, 5, 3), (5, 6, 2), (6, 9, 1)]


def _losses(losses: Any) -> list[Loss]:
    """Return what took tokens 1 to 8, and one more that was in no whole block."""
    return last_losses(losses, 1, 8, 9)


@pytest.mark.parametrize(
    ("scores", "chosen", "why"),
    [
        ((3, 9, 9), 1, "most hits, 9, is that of replicas 1 and 2: by lot"),
        ((3, 9, 9), 2, "most hits, 9, is that of replicas 1 and 2: by lot"),
        ((3, 9, 4), 1, "most hits, 9; next: replica 2 with 4"),
        (
            (3, 9, 4),
            2,
            "the policy did not go by the score alone: most hits, 9, is that of replica 1",
        ),
        ((0, 0, 0), 1, "all scores are 0, so it is 7 of 3"),
        ((5,), 0, "it is the only one: hits 5"),
        (
            [9] * 20,
            0,
            "most hits, 9, is that of replicas 0, 1, 2, 3, 4, 5, 6, 7 and 12 more: by lot",
        ),
    ],
)
def test_a_policy_tells_why_in_its_own_words(scores: Any, chosen: int, why: str) -> None:
    score = Score("hits", best="most", without="{first_token_id} of {replicas}")
    replicas = [{"replica_id": r, "score": one} for r, one in enumerate(scores)]
    assert reason(score, "by lot", replicas, chosen, 7) == why
