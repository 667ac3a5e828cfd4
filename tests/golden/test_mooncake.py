"""Exact numbers on real traces; each beside a law that could catch it lying."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pipeline.config import ClockConfig, FleetConfig, ReplayConfig
from pipeline.replay import Replayer, trace_paths
from pipeline.replay.router import Batch
from pipeline.tokenize import tokenize_logs
from pipeline.trace import TraceFile
from pipeline.trace.checks import TraceColumns

TRACES = Path(__file__).parents[2] / "../shared/traces"
UNLIMITED = 10**12
BLOCK = 512
pytestmark = pytest.mark.skipif(not TRACES.exists(), reason="../shared/traces is not there")


class Expected(NamedTuple):
    requests: int
    prompt_tokens: int
    unlimited_matched: int
    round_robin_matched: int | None
    round_robin_ratio: float
    round_robin_blocks: tuple[int, ...]


EXPECTED = {
    "conversation": Expected(
        12_031, 144_793_823, 54_098_411, 28_317_997, 0.195575, (58_868, 58_358, 58_134, 57_817)
    ),
    "synthetic": Expected(
        3_993, 61_194_628, 39_852_661, None, 0.371503, (18_808, 19_586, 19_643, 19_398)
    ),
}


@pytest.fixture(scope="module", params=list(EXPECTED))
def trace(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TraceColumns, Expected]:
    name: str = request.param
    target = tmp_path_factory.mktemp("mooncake") / f"{name}.parquet"
    tokenize_logs([TRACES / f"mooncake_{name}_trace.jsonl.zst"], target)
    return TraceFile.open(target).columns(), EXPECTED[name]


class Replayed(NamedTuple):
    decisions: np.ndarray
    evictions: np.ndarray


def replay(columns: TraceColumns, policy: str, replicas: int, capacity: int) -> Replayed:
    config = ReplayConfig(FleetConfig(replicas, capacity), clock=ClockConfig("arrivals"))
    replayer = Replayer(trace_paths(columns.links), config, policy)
    clock = np.arange(1, len(columns.prompt_tokens) + 1) * config.clock.decay_ticks
    prompts = columns.prompt_tokens.astype(np.int64)
    seq, none = np.arange(len(prompts)), np.zeros(len(prompts), np.int64)
    names = none.astype(np.uint64)
    batch = Batch(seq, prompts, columns.first_token_id.copy(), clock, none, names)
    decisions, evictions = replayer.replay(batch)
    return Replayed(decisions, evictions)


@pytest.mark.parametrize("policy", ["round_robin", "pure_affinity", "cache_aware"])
def test_one_unlimited_replica_matches_what_the_links_say(
    trace: tuple[TraceColumns, Expected], policy: str
) -> None:
    columns, expected = trace
    decisions = replay(columns, policy, 1, UNLIMITED).decisions
    assert len(decisions) == expected.requests
    assert columns.prompt_tokens.sum(dtype=np.int64) == expected.prompt_tokens
    assert decisions["matched_tokens"].sum() == expected.unlimited_matched
    np.testing.assert_array_equal(decisions["matched_tokens"], columns.prefix_tokens)


def test_round_robin_over_four_unlimited_replicas_splits_the_cache(
    trace: tuple[TraceColumns, Expected],
) -> None:
    columns, expected = trace
    decisions = replay(columns, "round_robin", 4, UNLIMITED).decisions
    matched = int(decisions["matched_tokens"].sum())
    assert round(matched / expected.prompt_tokens, 6) == expected.round_robin_ratio
    if expected.round_robin_matched is not None:
        assert matched == expected.round_robin_matched
    for replica in range(4):
        mine = decisions[decisions["replica_id"] == replica]
        new = columns.prompt_tokens[replica::4].astype(np.int64) - mine["matched_tokens"]
        assert mine["resident_tokens"][-1] == new.sum()


def test_round_robin_holds_the_blocks_that_were_counted(
    trace: tuple[TraceColumns, Expected],
) -> None:
    columns, expected = trace
    decisions = replay(columns, "round_robin", 4, UNLIMITED).decisions
    blocks = -(-columns.prompt_tokens.astype(np.int64) // BLOCK)
    new_blocks = blocks - -(-decisions["matched_tokens"] // BLOCK)
    held = [int(new_blocks[replica::4].sum()) for replica in range(4)]
    assert tuple(held) == expected.round_robin_blocks


@pytest.mark.parametrize("policy", ["round_robin", "pure_affinity", "cache_aware"])
def test_limited_replicas_lose_exactly_what_they_evict(
    trace: tuple[TraceColumns, Expected], policy: str
) -> None:
    columns, _ = trace
    decisions, evictions = replay(columns, policy, 4, 4000 * BLOCK)
    assert decisions["resident_tokens"].max() <= 4000 * BLOCK
    computed = columns.prompt_tokens - decisions["matched_tokens"]
    for replica in range(4):
        mine = decisions["replica_id"] == replica
        if mine.any():
            gone = evictions["evicted_tokens"][evictions["replica_id"] == replica].sum()
            assert computed[mine].sum() - gone == decisions["resident_tokens"][mine][-1]
