"""Real engines' own figures on real traces; each beside a law that could catch it lying."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest
from command import replay_ok

from pipeline.config import ENGINES, ClockConfig, EngineConfig, FleetConfig, ReplayConfig
from pipeline.replay import Replayer, trace_paths
from pipeline.replay.router import Batch
from pipeline.tokenize import tokenize_logs
from pipeline.trace import TraceFile
from pipeline.trace.checks import TraceColumns

TRACES = Path(__file__).parents[2] / "../shared/traces"
BLOCK = 512
UNLIMITED = 2**40
TAILS_FIRST = EngineConfig(
    cache_unit="block", block_tokens=BLOCK, partial_block="keep", refresh="insert"
)
pytestmark = pytest.mark.skipif(not TRACES.exists(), reason="../shared/traces is not there")


class Trace(NamedTuple):
    path: Path
    columns: TraceColumns

    @property
    def prompts(self) -> np.ndarray:
        return self.columns.prompt_tokens.astype(np.int64)


class Replayed(NamedTuple):
    decisions: np.ndarray
    evictions: np.ndarray
    replica: np.void

    @property
    def matched(self) -> int:
        return int(self.decisions["matched_tokens"].sum())


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Trace]:
    folder = tmp_path_factory.mktemp("mooncake")
    made = {}
    for name in ("conversation", "synthetic"):
        path = folder / f"{name}.parquet"
        tokenize_logs([TRACES / f"mooncake_{name}_trace.jsonl.zst"], path)
        made[name] = Trace(path, TraceFile.open(path).columns())
    return made


def preset(name: str) -> EngineConfig:
    """Return a preset in the blocks that the traces know."""
    assert ENGINES[name].own_blocks
    return replace(ENGINES[name], block_tokens=BLOCK)


def replay(trace: Trace, engine: EngineConfig, blocks: int) -> Replayed:
    """Replay on one replica, one request after another."""
    config = ReplayConfig(FleetConfig(1, blocks * BLOCK), engine, clock=ClockConfig("arrivals"))
    replayer = Replayer(trace_paths(trace.columns.links, engine=engine), config, "round_robin")
    seq = np.arange(len(trace.prompts))
    clock, none = (seq + 1) * config.clock.decay_ticks, np.zeros(len(seq), np.int64)
    first_ids = trace.columns.first_token_id.copy()
    names = none.astype(np.uint64)
    batch = Batch(seq, trace.prompts, first_ids, clock, none, names)
    decisions, evictions = replayer.replay(batch)
    assert len(replayer.finish()) == 0
    assert (decisions["outcome"] == 0).all()
    return Replayed(decisions, evictions, replayer.fleet.replicas[0])


def findable(trace: Trace) -> np.ndarray:
    """Return what an unlimited cache finds of each prompt in whole blocks, never the whole."""
    key = (trace.prompts - 1) // BLOCK * BLOCK
    return np.minimum(trace.columns.prefix_tokens.astype(np.int64) // BLOCK * BLOCK, key)


def check_laws(trace: Trace, run: Replayed, engine: EngineConfig, blocks: int) -> None:
    """What is resident was inserted and not evicted, fits, and no hit is more than links allow."""
    kept = trace.prompts if engine.partial_block == "keep" else trace.prompts // BLOCK * BLOCK
    gone = np.zeros(len(kept), np.int64)
    np.add.at(gone, run.evictions["seq"], run.evictions["evicted_tokens"])
    resident = run.decisions["resident_tokens"]
    inserted = np.diff(resident, prepend=0) + gone
    # A block beyond the hit, that is computed again, may have been evicted for that.
    assert (inserted <= kept - run.decisions["matched_tokens"]).all()
    assert (inserted >= kept - run.decisions["resident_tokens_here"]).all()
    assert run.replica["resident_tokens"] == resident[-1]
    assert run.replica["resident_blocks"] <= blocks
    assert run.replica["pinned_blocks"] == run.replica["held_blocks"] == 0
    assert resident.max() <= blocks * BLOCK
    assert (run.decisions["matched_tokens"] <= trace.columns.prefix_tokens).all()
    if engine.recompute_last_token:
        assert (run.decisions["matched_tokens"] <= findable(trace)).all()


@pytest.mark.parametrize(
    ("engine", "blocks", "matched"),
    [
        ("vllm", 1_500, 7_212_544),
        ("vllm", 4_000, 13_312_000),
        ("vllm", 16_384, 39_999_488),
        ("vllm", UNLIMITED, 54_063_104),
        ("sglang", 1_500, 7_131_648),
        ("sglang", 4_000, 13_085_184),
        ("sglang", 16_384, 39_738_880),
        ("sglang", UNLIMITED, 54_063_104),
    ],
)
def test_a_preset_finds_on_the_conversation_trace_what_the_engine_itself_finds(
    traces: dict[str, Trace], engine: str, blocks: int, matched: int
) -> None:
    trace = traces["conversation"]
    run = replay(trace, preset(engine), blocks)
    assert run.matched == matched
    check_laws(trace, run, preset(engine), blocks)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize(
    ("name", "matched"), [("conversation", 54_063_104), ("synthetic", 39_802_880)]
)
def test_an_unlimited_cache_finds_every_link_in_whole_blocks_but_never_the_last_token(
    traces: dict[str, Trace], engine: str, name: str, matched: int
) -> None:
    run = replay(traces[name], preset(engine), UNLIMITED)
    np.testing.assert_array_equal(run.decisions["matched_tokens"], findable(traces[name]))
    assert run.matched == matched
    assert len(run.evictions) == 0


@pytest.mark.parametrize(
    ("name", "blocks", "ratio", "evicted"),
    [
        ("conversation", 1_000, 0.045413, 274_653),
        ("conversation", 10_000, 0.215748, 217_454),
        ("conversation", 50_000, 0.361530, 136_210),
        ("conversation", 100_000, 0.370844, 83_576),
        ("synthetic", 1_000, 0.085718, 110_625),
        ("synthetic", 10_000, 0.431764, 60_208),
        ("synthetic", 50_000, 0.651244, 0),
        ("synthetic", 100_000, 0.651244, 0),
    ],
)
def test_partial_blocks_that_are_kept_and_tails_that_go_first_give_the_independent_figures(
    traces: dict[str, Trace], name: str, blocks: int, ratio: float, evicted: int
) -> None:
    trace = traces[name]
    run = replay(trace, TAILS_FIRST, blocks)
    assert round(run.matched / int(trace.prompts.sum()), 6) == ratio
    assert run.evictions["evicted_nodes"].sum() == evicted
    assert run.decisions["evicted_nodes"].sum() == evicted
    check_laws(trace, run, TAILS_FIRST, blocks)
    all_blocks = -(-trace.prompts // BLOCK)
    found = -(-run.decisions["matched_tokens"] // BLOCK)
    assert (all_blocks - found).sum() - evicted == run.replica["resident_blocks"]


def test_more_room_never_finds_less_in_an_engine_that_evicts_tails_first(
    traces: dict[str, Trace],
) -> None:
    rooms = (1_500, 4_000, 16_384, 50_000, UNLIMITED)
    found = [replay(traces["conversation"], preset("vllm"), room).matched for room in rooms]
    assert found == sorted(found)
    assert len(set(found)) == len(rooms)


@pytest.mark.usefixtures("compiled")
def test_the_command_finds_the_same_in_the_traces_own_blocks(
    traces: dict[str, Trace], tmp_path: Path
) -> None:
    trace = traces["conversation"]
    options = ("--engine", "vllm", "--clock", "arrivals", "--policy", "round_robin")
    fleet = ("--replicas", "1", "--capacity-tokens", str(4_000 * BLOCK))
    replay_ok(trace.path, "-o", tmp_path / "run", *options, *fleet)
    told = pl.read_parquet(tmp_path / "run" / "decisions" / "**" / "*.parquet")
    assert told["matched_tokens"].sum() == 13_312_000
    assert (told["matched_tokens"] + told["computed_tokens"] == told["prompt_tokens"]).all()
    run = replay(trace, preset("vllm"), 4_000)
    assert told["matched_tokens"].to_list() == run.decisions["matched_tokens"].tolist()
