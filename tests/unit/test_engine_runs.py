"""Runs under engines' settings, from a trace's Parquet to the rows of the run."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_days import table
from samples import Row, column, decisions, requests, write_log, write_trace

from pipeline.config import ENGINES, ClockConfig, CostModel, FleetConfig, ReplayConfig
from pipeline.errors import UsageError
from pipeline.run import replay_trace
from pipeline.tokenize import TokenizeSettings, tokenize_logs
from pipeline.trace import TraceFile, TraceMetadata, TraceWriter

EVICTED = (
    "seq", "evicted_tokens", "evicted_nodes", "start_tokens", "last_used_seq", "asked_again_seq",
    "asked_again_tokens",
)  # fmt: skip


def alone(engine: str, capacity_tokens: int, **settings: Any) -> ReplayConfig:
    """Return one replica of a preset whose queue is empty whenever a request comes."""
    return ReplayConfig(
        fleet=FleetConfig(1, capacity_tokens),
        engine=replace(ENGINES[engine], **settings),
        cost=CostModel(1.0, 0.1, 10.0),
        clock=ClockConfig("arrivals", 1000.0),
        policies=("cache_aware",),
    )


def rows_of(run: Path, trace: Path, config: ReplayConfig) -> list[Row]:
    replay_trace(trace, run, config)
    return decisions(run, "cache_aware")


def columns(rows: Sequence[Row], *names: str) -> dict[str, list[Any]]:
    return {name: column(rows, name) for name in names}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace.parquet"


def test_vllm_keeps_whole_blocks_evicts_single_ones_and_recomputes_the_last_token(
    trace: Path, run: Path
) -> None:
    # Four blocks of 16. The third takes the second block of the first two, whose tail it is; the
    # fifth finds one block less than is there, and the tail of the third makes room for it.
    prompts = [range(40), range(40), range(100, 133), range(32), range(32), range(200, 300)]
    rows = rows_of(run, write_trace(trace, prompts), alone("vllm", 79))
    assert column(rows, "outcome") == ["served"] * 5 + ["rejected_too_long"]
    assert columns(
        rows[:5], "matched_tokens", "cold_tokens", "evicted_tokens_missed", "recomputed_tokens",
        "resident_tokens", "evicted_tokens", "evicted_nodes", "exec_ms",
    ) == {
        "matched_tokens": [0, 32, 0, 16, 16],
        "cold_tokens": [40, 0, 33, 0, 0],
        "evicted_tokens_missed": [0, 0, 0, 16, 0],
        "recomputed_tokens": [0, 8, 0, 0, 16],
        "resident_tokens": [32, 32, 48, 64, 48],
        "evicted_tokens": [0, 0, 16, 0, 16],
        "evicted_nodes": [0, 0, 1, 0, 1],
        "exec_ms": [40.0, 11.2, 33.0, 17.6, 17.6],
    }  # fmt: skip
    assert column(rows, "queue_wait_ms") == [0.0] * 5 + [None]
    lost = table(run, "evictions", "cache_aware")
    assert [tuple(row[name] for name in EVICTED) for row in lost] == [
        (2, 16, 1, 16, 1, 3, 16),
        (4, 16, 1, 16, 2, None, 0),
    ]


def test_sglang_evicts_leaves_and_the_look_up_counts_as_use(trace: Path, run: Path) -> None:
    # The third cuts (1, 2, 3, 4, 5) (6) into (1, 2, 3) (4, 5) (6), having touched all but the
    # last; the fourth takes (6), then (4, 5), which is older than (9, 9).
    prompts = [
        (1, 2, 3, 4, 5, 6),
        (1, 2, 3, 4, 5, 6),
        (1, 2, 3, 9, 9),
        (7,) * 6,
        (1, 2, 3, 4),
        (8, 8),
    ]
    rows = rows_of(run, write_trace(trace, prompts), alone("sglang", 12))
    assert columns(
        rows, "matched_tokens", "cold_tokens", "evicted_tokens_missed", "recomputed_tokens",
        "resident_tokens", "evicted_tokens", "evicted_nodes", "exec_ms",
    ) == {
        "matched_tokens": [0, 5, 3, 0, 3, 0],
        "cold_tokens": [6, 0, 2, 6, 0, 2],
        "evicted_tokens_missed": [0, 0, 0, 0, 1, 0],
        "recomputed_tokens": [0, 1, 0, 0, 0, 0],
        "resident_tokens": [6, 6, 8, 11, 12, 12],
        "evicted_tokens": [0, 0, 0, 3, 0, 2],
        "evicted_nodes": [0, 0, 0, 2, 0, 1],
        "exec_ms": [6.0, 1.5, 2.3, 6.0, 1.3, 2.0],
    }  # fmt: skip
    lost = table(run, "evictions", "cache_aware")
    assert [tuple(row[name] for name in EVICTED) for row in lost] == [
        (3, 1, 1, 5, 1, None, 0),
        (3, 2, 1, 3, 2, 4, 1),
        (5, 2, 1, 3, 2, None, 0),
    ]


def write_blocks(path: Path, lengths: Sequence[int], prompts: Sequence[Sequence[int]]) -> Path:
    """Write a linked trace of blocks of 4 tokens, partial last ones included."""
    batch = requests(prompts, range(len(prompts)))
    with TraceWriter(path, TraceMetadata(block_tokens=4, partial_block="ceil")) as writer:
        tokens = [min(4 * len(p), length) for p, length in zip(prompts, lengths, strict=True)]
        ids = batch.ids.astype("uint64")
        writer.write(batch._replace(ids=ids, prompt_tokens=np.array(tokens, np.uint32)))
    return path


@pytest.mark.parametrize(
    ("engine", "block_tokens", "chosen", "matched"),
    [
        ("vllm", None, 4, 12),
        ("sglang", None, 4, 12),
        ("vllm", 4, 4, 12),
        ("vllm", 8, 8, 8),
        ("sglang", 16, 16, 0),
        ("sglang", 1, 1, 15),
        ("reference", None, 1, 16),
        ("reference", 8, 8, 16),
    ],
)
def test_a_block_trace_is_replayed_in_its_own_blocks_or_a_multiple(
    trace: Path, run: Path, engine: str, block_tokens: int | None, chosen: int, matched: int
) -> None:
    write_blocks(trace, [16, 16], [(1, 2, 3, 4), (1, 2, 3, 4)])
    settings = {"block_tokens": block_tokens, "own_blocks": False} if block_tokens else {}
    config = alone(engine, 64, **settings)
    told = replay_trace(trace, run, config)["config"]
    assert column(decisions(run, "cache_aware"), "matched_tokens") == [0, matched]
    assert told["chosen_block_tokens"] == chosen
    assert told["engine"] == asdict(config.engine)
    assert told["engine"]["block_tokens"] == (block_tokens or ENGINES[engine].block_tokens)


@pytest.mark.parametrize("block_tokens", [2, 6, 16, 512])
def test_a_block_trace_refuses_blocks_that_it_does_not_know(
    trace: Path, run: Path, block_tokens: int
) -> None:
    with TraceWriter(trace, TraceMetadata(block_tokens=12, partial_block="floor")) as writer:
        batch = requests([(1,)], [0])._replace(prompt_tokens=np.array([12], np.uint32))
        writer.write(batch._replace(ids=batch.ids.astype("uint64")))
    with pytest.raises(UsageError, match=r"but the trace knows only blocks of 12 tokens: give a"):
        replay_trace(trace, run, alone("vllm", 64, block_tokens=block_tokens, own_blocks=False))
    assert not run.exists()


@pytest.mark.parametrize(("engine", "hit"), [("reference", 32), ("sglang", 31), ("vllm", 16)])
def test_namespaces_share_nothing(trace: Path, run: Path, engine: str, hit: int) -> None:
    names = [None, "model", "model/lora", "model/lora/salt", "model", "model/lora/salt", None]
    write_trace(trace, [range(32)] * 7, namespace=names)
    rows = rows_of(run, trace, alone(engine, 4096))
    assert column(rows, "matched_tokens") == [0, 0, 0, 0, hit, hit, hit]
    assert column(rows, "cold_tokens") == [32] * 4 + [0] * 3
    assert column(rows, "namespace") == names


def chat(time: int, messages: list[dict[str, str]], answer: str) -> Row:
    said = {"choices": [{"message": {"content": answer}}]}
    return {"timestamp": time, "body": {"messages": messages}, "response": said}


@pytest.mark.parametrize(
    ("engine", "settings", "unknown"),
    [
        ("reference", {}, 0),
        ("sglang", {}, 1),  # the last token of an answer is never computed
        ("sglang", {"recompute_last_token": False}, 0),
        ("sglang", {"in_flight": "pins"}, 1),
        ("vllm", {"block_tokens": 1}, 1),
    ],
)
def test_the_next_turn_finds_prompt_and_answer_where_outputs_are_kept(
    tmp_path: Path, run: Path, engine: str, settings: Row, unknown: int
) -> None:
    first = [{"role": "user", "content": "Name three colours"}]
    answer = {"role": "assistant", "content": "Red, green and blue."}
    second = [*first, answer, {"role": "user", "content": "More"}]
    log = write_log(
        tmp_path / "a.jsonl", [chat(1, first, answer["content"]), chat(99, second, "No.")]
    )
    trace = tmp_path / "a.parquet"
    tokenize_logs([log], trace, TokenizeSettings(output_ids=True, chat_template="chatml"))
    one = TraceFile.open(trace).columns()
    prompt, whole = int(one.prompt_tokens[0]), int(one.whole_tokens[0])
    assert whole > prompt + 3
    for kept, found in ((True, whole - unknown), (False, prompt)):
        config = alone(engine, 4096, own_blocks=False, cache_output=kept, **settings)
        rows = rows_of(run, trace, replace(config, clock=ClockConfig("timestamps")))
        assert column(rows, "matched_tokens") == [0, found]
        assert column(rows, "cold_tokens") == [prompt, rows[1]["prompt_tokens"] - found]
