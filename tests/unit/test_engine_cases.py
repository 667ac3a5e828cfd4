"""Each engine by example, from a trace file to its tables; values are worked out beforehand."""

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from engine_oracle import Model, Request
from model_engine import ModelEngine
from samples import Prompts, Row, column, requests, rows_of, write_trace
from samples import decisions as decisions_of
from strategies import Tokens

from pipeline.config import ENGINES, ClockConfig, CostModel, EngineConfig, FleetConfig, ReplayConfig
from pipeline.run import replay_trace
from pipeline.trace import Lists, TraceMetadata, TraceWriter

every_engine = pytest.mark.parametrize("engine", list(ENGINES))
PINS: dict[str, Any] = {"in_flight": "pins", "when_full": "reject"}
WAITS: dict[str, Any] = {"in_flight": "pins", "when_full": "wait"}


def span(first: int, last: int) -> Tokens:
    return tuple(range(first, last + 1))


def wide(engine: str, blocks: Sequence[int]) -> Tokens:
    """Return a prompt of these blocks, each as many tokens as the preset's blocks have."""
    size = ENGINES[engine].block_tokens
    return tuple(size * block + i for block in blocks for i in range(size))


def in_blocks(engine: str, rows: list[Row], name: str) -> list[float | None]:
    """Return a column of tokens in blocks of the preset."""
    size = ENGINES[engine].block_tokens
    return [None if row[name] is None else row[name] / size for row in rows]


class Told:
    """A run of one policy on one replica: its decisions and its evictions."""

    def __init__(
        self, trace: Path, engine: EngineConfig, capacity_tokens: int, **config: Any
    ) -> None:
        run = trace.with_name("run")
        fleet = FleetConfig(1, capacity_tokens)
        usual: dict[str, Any] = {"clock": ClockConfig("timestamps"), "policies": ("cache_aware",)}
        settings = ReplayConfig(fleet, engine, **usual | config)
        self.run = replay_trace(trace, run, settings)
        self.rows = decisions_of(run, settings.policies[0])
        parts = f"evictions/policy={settings.policies[0]}/part-0.parquet"
        self.evictions = rows_of(run / parts)

    def __getitem__(self, name: str) -> list[Any]:
        return column(self.rows, name)


def tell(
    folder: Path,
    engine: str,
    prompts: Prompts,
    capacity_blocks: int,
    *,
    ms: Sequence[int],
    outputs: Sequence[int],
    **settings: Any,
) -> Told:
    """Replay prompts of blocks; 1 ms for a block, 0.1 ms if found, 10 ms for an output token."""
    size = ENGINES[engine].block_tokens
    path = write_trace(
        folder / "trace.parquet",
        [wide(engine, prompt) for prompt in prompts],
        [1000 * time for time in ms],
        output_tokens=pa.array(outputs, pa.uint32()),
    )
    cost = CostModel(1.0 / size, 0.1 / size, 10.0)
    engine_config = replace(ENGINES[engine], **settings)
    return Told(path, engine_config, capacity_blocks * size, cost=cost)


@pytest.mark.parametrize(
    ("engine", "matched", "evicted", "resident"),
    [
        # The third takes exactly what is below the path in flight.
        ("reference", [0, 3, 0, 3], [0, 0, 3, 3], [6, 6, 6, 6]),
        # The second finds two tokens and computes the third again, in whose place a leaf of four
        # was; the third finds three free.
        ("sglang", [0, 2, 0, 3], [0, 4, 0, 3], [6, 3, 6, 6]),
        # The second needs one block for that, which is the last of the first; then tails go.
        ("vllm", [0, 2, 0, 3], [0, 1, 2, 3], [6, 5, 6, 6]),
    ],
)
def test_exactly_the_matched_path_is_pinned_and_not_what_is_below(
    tmp_path: Path, engine: str, matched: list[int], evicted: list[int], resident: list[int]
) -> None:
    prompts = [span(1, 6), span(1, 3), span(7, 9), span(1, 6)]
    told = tell(tmp_path, engine, prompts, 6, ms=[0, 10, 20, 30], outputs=[0, 100, 0, 0], **PINS)
    assert told["outcome"] == ["served"] * 4
    assert in_blocks(engine, told.rows, "matched_tokens") == matched
    assert in_blocks(engine, told.rows, "evicted_tokens") == evicted
    assert in_blocks(engine, told.rows, "resident_tokens") == resident
    assert told["running_requests"] == [0, 0, 1, 1]


@every_engine
def test_the_whole_path_in_flight_is_pinned_and_its_end_too(tmp_path: Path, engine: str) -> None:
    prompts = [(1, 2), (1, 2, 3, 4), (9, 9, 9), (9, 8), (7, 6, 5), (9, 8)]
    times, outputs = [0, 10, 20, 30, 40, 50], [0, 100, 0, 0, 0, 0]
    told = tell(tmp_path, engine, prompts, 6, ms=times, outputs=outputs, **PINS)
    full = "rejected_pinned"
    assert told["outcome"] == ["served", "served", full, "served", full, "served"]
    resident = in_blocks(engine, told.rows, "resident_tokens")
    assert resident == [2, 4, None, 6, None, 6]
    # The engines compute the last block again, and make room for it in its own place.
    again = 0 if engine == "reference" else 1
    assert in_blocks(engine, told.rows[5:], "matched_tokens") == [2 - again]
    assert in_blocks(engine, told.rows[5:], "recomputed_tokens") == [again]
    assert [row["seq"] for row in told.evictions] == [5] * again


@every_engine
@pytest.mark.parametrize(
    ("prompts", "outputs", "sizes"),
    [
        (
            # Nothing but time comes with an empty prompt: the request before it completes.
            [span(1, 6), (1, 2, 3, 7, 8), (), (1, 2, 9), (), ()],
            [50, 0, 0, 0, 0, 0],
            [(6, 6, 0), (8, 8, 0), (8, 6, 2), (9, 7, 2), (9, 6, 3), (9, 0, 9)],
        ),
        (
            [span(1, 4), span(1, 6), (1, 2, 7), (), (), ()],
            [30, 50, 0, 0, 0, 0],
            [(4, 4, 0), (6, 6, 0), (7, 7, 0), (7, 6, 1), (7, 6, 1), (7, 0, 7)],
        ),
    ],
)
def test_pinned_and_evictable_are_all_blocks_through_splits_and_releases(
    engine: str, prompts: list[Tokens], outputs: list[int], sizes: list[tuple[int, int, int]]
) -> None:
    known = {field.name for field in fields(Model)}
    preset = asdict(replace(ENGINES[engine], **PINS))
    size = preset["block_tokens"]
    replayed = ModelEngine(
        [Request(wide(engine, p), (), o) for p, o in zip(prompts, outputs, strict=True)],
        model=Model(**{name: value for name, value in preset.items() if name in known}),
        policy="cache_aware",
        replicas=1,
        capacity_tokens=16 * size,
        prefill_ms_per_token=1.0 / size,
        decode_ms_per_token=10.0,
        drain_ms=[0.0, 20.0, 20.0, 20.0, 300.0, 300.0],
    )
    told = []
    for _ in prompts:
        replayed.step(1)
        state = replayed.replayer.fleet.replicas[0]
        resident, pinned = int(state["resident_blocks"]), int(state["pinned_blocks"])
        told.append((resident, pinned, resident - pinned))
        assert state["resident_tokens"] == size * resident
    assert told == sizes


@pytest.mark.parametrize(
    ("engine", "tokens", "hit"),
    [
        ("reference", 1000, 1000),
        ("sglang", 1000, 999),
        ("vllm", 16, 0),
        ("vllm", 17, 16),
        ("vllm", 1000, 992),
        ("vllm", 1024, 1008),
    ],
)
def test_a_prompt_that_is_cached_whole_counts_as_the_engine_counts_it(
    tmp_path: Path, engine: str, tokens: int, hit: int
) -> None:
    path = write_trace(tmp_path / "trace.parquet", [range(tokens)] * 3)
    told = Told(path, ENGINES[engine], 2048, clock=ClockConfig("arrivals"))
    assert told["matched_tokens"] == [0, hit, hit]
    assert told["recomputed_tokens"] == [0, tokens - hit, tokens - hit]
    assert told["cold_tokens"] == [tokens, 0, 0]
    assert told["queued_requests"] == told["running_requests"] == [None] * 3
    if engine == "reference":
        assert told["ttft_ms"] == [25.0, 14.5, 4.0]


@pytest.mark.parametrize(("tokens", "hit"), [(16, 0), (17, 16), (1000, 992), (1024, 1008)])
def test_pages_of_16_tokens_are_found_by_sglang_as_blocks_are_by_vllm(
    tmp_path: Path, tokens: int, hit: int
) -> None:
    path = write_trace(tmp_path / "trace.parquet", [range(tokens)] * 3)
    told = Told(path, replace(ENGINES["sglang"], block_tokens=16), 2048)
    assert told["matched_tokens"] == [0, hit, hit]


@pytest.mark.parametrize(
    ("engine", "matched", "evicted", "ttft"),
    [
        ("reference", [0, 0, 0], [0, 3, 2], [3.0, 14.0, 17.0]),
        ("sglang", [0, 0, 0], [0, 3, 2], [3.0, 14.0, 17.0]),
        # Of the first only its last block has gone, so that the third finds two.
        ("vllm", [0, 0, 2], [0, 1, 2], [3.0, 14.0, 15.2]),
    ],
)
def test_a_request_waits_for_room_and_that_is_part_of_its_queue_wait(
    tmp_path: Path, engine: str, matched: list[int], evicted: list[int], ttft: list[float]
) -> None:
    prompts = [span(1, 3), (4, 5), span(1, 4)]
    told = tell(tmp_path, engine, prompts, 4, ms=[0, 1, 2], outputs=[1, 0, 0], **WAITS)
    # The first is computed until 3 and answers until 13; the second follows until 15.
    assert told["outcome"] == ["served"] * 3
    assert told["queue_wait_ms"] == [0.0, 12.0, 13.0]
    assert told["ttft_ms"] == ttft
    assert in_blocks(engine, told.rows, "matched_tokens") == matched
    assert in_blocks(engine, told.rows, "evicted_tokens") == evicted
    assert in_blocks(engine, told.rows, "cold_tokens") == [3, 2, 1]
    # The first still answers when the third comes, though its room was given away.
    assert told["queued_requests"] == [0, 0, 1]
    assert told["running_requests"] == [0, 1, 1]


@every_engine
def test_a_request_that_may_not_wait_is_rejected_and_leaves_no_trace(
    tmp_path: Path, engine: str
) -> None:
    prompts = [span(1, 3), (4, 5), span(1, 4)]
    told = tell(tmp_path, engine, prompts, 4, ms=[0, 1, 2], outputs=[1, 0, 0], **PINS)
    assert told["outcome"] == ["served", "rejected_pinned", "served"]
    for name in ("replica_id", "matched_tokens", "ttft_ms", "queued_requests"):
        assert told[name][1] is None
    assert told["queue_wait_ms"] == [0.0, None, 1.0]
    assert told["ttft_ms"] == [3.0, None, 2.3]
    assert told["running_requests"] == [0, None, 1]
    assert in_blocks(engine, told.rows, "matched_tokens") == [0, None, 3]
    assert told.evictions == []


@every_engine
def test_the_partial_block_of_a_request_takes_room_while_it_runs(
    tmp_path: Path, engine: str
) -> None:
    prompts = [span(1, 5), span(50, 53), span(60, 63), span(70, 73)]
    path = write_trace(
        tmp_path / "trace.parquet",
        prompts,
        [0, 10_000, 20_000, 300_000],
        output_tokens=pa.array([10, 0, 0, 0], pa.uint32()),
    )
    pages = replace(ENGINES[engine], block_tokens=4, **PINS)
    told = Told(path, pages, 12, cost=CostModel(1.0, 0.1, 10.0))
    # Two blocks for the first, of which one is kept; with the second, all three are taken.
    assert told["evicted_tokens"] == [0, 0, 4, 0]
    assert told["resident_tokens"] == [4, 8, 8, 12]
    assert [(row["seq"], row["last_used_seq"]) for row in told.evictions] == [(2, 1)]


def write_turns(path: Path, engine: str, ms: int) -> Path:
    """Write a conversation of two turns, the second so much later."""
    answers = [wide(engine, span(4, 6)), ()]
    ids = np.array(answers[0], np.uint32)
    outputs = Lists(ids, np.array([0, len(ids), len(ids)], np.int64))
    prompts = [wide(engine, span(1, 3)), wide(engine, span(1, 7))]
    counts = pa.array([len(ids), 0], pa.uint32())
    batch = requests(prompts, [0, 1000 * ms], output_tokens=counts)
    with TraceWriter(path, TraceMetadata(), outputs=True) as trace:
        trace.write(batch._replace(outputs=outputs))
    return path


@pytest.mark.parametrize("in_flight", ["none", "pins"])
@pytest.mark.parametrize(
    ("engine", "matched", "cold", "recomputed"),
    [
        ("reference", 6, 1, 0),
        # The last token of an answer was never an input, so nobody computed it.
        ("sglang", 5, 2, 0),
        # 95 tokens are known, in 5 whole blocks of 16.
        ("vllm", 80, 17, 15),
    ],
)
def test_the_next_turn_finds_the_answer_where_outputs_are_cached(
    tmp_path: Path, engine: str, matched: int, cold: int, recomputed: int, in_flight: str
) -> None:
    path, size = write_turns(tmp_path / "trace.parquet", engine, 2000), len(wide(engine, [1]))
    config = replace(ENGINES[engine], in_flight=in_flight, cache_output=True)
    told = Told(path, config, 100 * size)
    assert told["matched_tokens"] == [0, matched]
    assert told["cold_tokens"] == [3 * size, cold]
    assert told["recomputed_tokens"] == [0, recomputed]
    kept = matched if in_flight == "none" else 3 * size
    assert told["resident_tokens"] == [kept, 7 * size]

    told = Told(path, replace(config, cache_output=False), 100 * size)
    assert told["matched_tokens"] == [0, 3 * size]


@every_engine
def test_an_answer_that_is_not_complete_is_not_found(tmp_path: Path, engine: str) -> None:
    path, size = write_turns(tmp_path / "trace.parquet", engine, 40), len(wide(engine, [1]))
    config = replace(ENGINES[engine], in_flight="pins", cache_output=True)
    told = Told(path, config, 100 * size)
    assert told["matched_tokens"] == [0, 3 * size]
    assert told["running_requests"] == [0, 1]
