"""Block traces as engines replay them: prompts without blocks, and blocks of any size."""

import json
from pathlib import Path

import pytest
from samples import column, decisions

from pipeline.config import ENGINES, ClockConfig, FleetConfig, ReplayConfig
from pipeline.encode.settings import TokenizeSettings
from pipeline.run import replay_trace
from pipeline.tokenize import tokenize_logs
from pipeline.trace import TraceFile

pytestmark = pytest.mark.usefixtures("compiled")

ARRIVALS = ClockConfig("arrivals")


def mooncake(path: Path, rows: list[tuple[int, list[int]]]) -> Path:
    """Tokenize prompts that are given by their length and their blocks."""
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    lines = [
        json.dumps(dict(zip(names, (10 * i, length, 1, ids), strict=True)))
        for i, (length, ids) in enumerate(rows)
    ]
    log, trace = path / "log.jsonl", path / "log.parquet"
    log.write_text("\n".join(lines) + "\n")
    tokenize_logs([log], trace, TokenizeSettings())
    return trace


def matched(path: Path, trace: Path, config: ReplayConfig) -> list[int]:
    replay_trace(trace, path / "run", config)
    return column(decisions(path / "run", config.policies[0]), "matched_tokens")


@pytest.mark.parametrize("engine", ["reference", "sglang", "vllm"])
def test_prompts_shorter_than_a_block_share_nothing_and_break_no_link(
    tmp_path: Path, engine: str
) -> None:
    rows = [(300, []), (200, []), (1024, [0, 1]), (200, []), (1300, [0, 1])]
    trace = mooncake(tmp_path, rows)
    assert TraceFile.open(trace).metadata.partial_block == "floor"
    fleet, policies = FleetConfig(1, 100_000), ("round_robin",)
    config = ReplayConfig(fleet, ENGINES[engine], clock=ARRIVALS, policies=policies)
    assert matched(tmp_path, trace, config) == [0, 0, 0, 0, 1024]


def test_a_trace_may_have_larger_blocks_than_can_be_asked_for(tmp_path: Path) -> None:
    names = ("id", "models", "block_size", "hash_id_scope", "tool_tokens", "system_tokens")
    session = dict(zip(names, ("s", ["m"], 1024, "local", 0, 0), strict=True))
    turn = {"type": "s", "model": "m", "out": 1, "input_types": [], "output_types": [], "stop": ""}
    requests = [{"t": float(i), "in": 2048 + i, "hash_ids": [1, 2], **turn} for i in range(2)]
    log, trace = tmp_path / "log.json", tmp_path / "log.parquet"
    log.write_text(json.dumps({**session, "requests": requests}) + "\n")
    tokenize_logs([log], trace, TokenizeSettings(session_starts="together"))
    config = ReplayConfig(FleetConfig(1, 9000), ENGINES["vllm"], policies=("round_robin",))
    assert matched(tmp_path, trace, config) == [0, 2048]
