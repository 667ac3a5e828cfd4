"""Cases that other pipelines got wrong, from the log to the decision."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import column, decisions, names_in, rows_of, write_log

from pipeline.config import ClockConfig, CostModel, FleetConfig, ReplayConfig
from pipeline.encode.settings import TokenizeSettings
from pipeline.errors import LogError
from pipeline.run import replay_trace
from pipeline.tokenize import tokenize_logs
from pipeline.trace.writer import ROW_GROUP_TOKENS


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "t.parquet"


def _small(replicas: int, capacity: int) -> ReplayConfig:
    return ReplayConfig(
        fleet=FleetConfig(replicas, capacity),
        cost=CostModel(1.0, 0.1),
        clock=ClockConfig("arrivals", 1.0),
        policies=("cache_aware",),
    )


def test_o15_a_field_that_appears_late_is_in_every_row_from_there_on(trace: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"prompt": [1, i], "timestamp": i, **({"tenant": "noon"} if i >= 100 else {})}
        for i in range(1000)
    ]
    tokenize_logs([write_log(trace.with_name("a.jsonl"), lines)], trace)
    assert Counter(column(rows_of(trace), "tenant")) == {"noon": 900, None: 100}


def test_o15_a_field_that_only_the_second_log_has_is_kept(trace: Path) -> None:
    one = write_log(trace.with_name("a.jsonl"), [{"prompt": [1], "timestamp": 1}])
    two = write_log(trace.with_name("b.jsonl"), [{"prompt": [1], "timestamp": 2, "tenant": "noon"}])
    for logs in ([one, two], [two, one]):
        tokenize_logs(logs, trace)
        assert column(rows_of(trace), "tenant") == [None, "noon"]


def test_o16_lines_end_at_line_feeds_alone(trace: Path) -> None:
    texts = ("a\u2028b", "c\u0085d", "e\u2029f")
    lines = [json.dumps({"id": i, "prompt": t}, ensure_ascii=False) for i, t in enumerate(texts)]
    log = trace.with_name("a.jsonl")
    log.write_text("\ufeff" + "\r\n\n".join(lines), encoding="utf-8", newline="")
    summary = tokenize_logs([log], trace)
    assert (summary.lines, summary.requests, summary.rejects) == (3, 3, {})


def test_o17_a_cut_archive_ends_without_a_trace(trace: Path) -> None:
    whole = gzip.compress(b"".join(b'{"prompt": [1, %d]}\n' % i for i in range(10_000)))
    log = trace.with_name("a.jsonl.gz")
    log.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(LogError, match=r"a\.jsonl\.gz: damaged or truncated"):
        tokenize_logs([log], trace)
    assert names_in(trace.parent) == {"a.jsonl.gz"}


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_o17_several_frames_are_one_log(trace: Path, codec: str) -> None:
    frames = [pa.compress(b'{"prompt": [%d]}\n' % i, codec, asbytes=True) for i in (1, 2)]
    if codec == "gzip":
        frames = [gzip.compress(b'{"prompt": [%d]}\n' % i) for i in (1, 2)]
    log = trace.with_name("a.ndjson")
    log.write_bytes(b"".join(frames))
    assert tokenize_logs([log], trace).requests == 2


def test_o19_half_a_line_is_no_line(trace: Path) -> None:
    log = trace.with_name("a.jsonl")
    log.write_text('{"prompt":[1]}\n{"prompt":[2]}TRAILER\n{"prompt":[3]}\n{"prompt":[4')
    with pytest.raises(LogError, match="2 of 4 lines rejected"):
        tokenize_logs([log], trace)
    tokenize_logs([log], trace, TokenizeSettings(max_rejects=0.5))
    assert [ids for [ids] in pl.read_parquet(trace)["prompt_token_ids"].to_list()] == [1, 3]
    rejects = trace.with_name("t.parquet.rejects.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line) for line in rejects.splitlines()] == [
        {"file": str(log), "line": 2, "reason": "not a JSON object"},
        {"file": str(log), "line": 4, "reason": "the last line is cut off"},
    ]


def test_o21_equal_times_keep_the_order_of_the_log_and_so_the_decisions(trace: Path) -> None:
    prompts = {"a": [1, 2, 3, 4], "b": [1, 2, 9, 9], "c": [7, 7, 7, 7]}
    run = trace.with_name("run")
    for order, matched, evicted in (("abc", [0, 0, 0], 4), ("acb", [0, 0, 2], 0)):
        lines = [{"request_id": n, "timestamp": 7, "prompt": prompts[n]} for n in order]
        tokenize_logs([write_log(trace.with_name("a.jsonl"), lines)], trace)
        replay_trace(trace, run, _small(2, 6))
        rows = decisions(run, "cache_aware")
        assert column(rows, "request_id") == list(order)
        assert column(rows, "matched_tokens") == matched
        assert sum(column(rows, "evicted_tokens")) == evicted


def test_o22_an_empty_prompt_is_rejected_with_the_reason(trace: Path) -> None:
    lines = [{"prompt": ""}, {"prompt": [1]}, {"messages": []}, {"prompt": None}]
    log = write_log(trace.with_name("a.jsonl"), lines)
    summary = tokenize_logs([log], trace, TokenizeSettings(max_rejects=1))
    assert (summary.requests, summary.rejects) == (1, {"the prompt is empty": 3})


def test_o24_row_groups_are_cut_by_tokens_not_by_rows(trace: Path) -> None:
    lines = [{"prompt": list(range(i, i + 4000))} for i in range(2100)]
    tokenize_logs([write_log(trace.with_name("a.jsonl"), lines)], trace)
    footer = pq.ParquetFile(trace).metadata
    [leaf] = [
        i for i in range(footer.num_columns)
        if footer.schema.column(i).path.startswith("prompt_token_ids")
    ]  # fmt: skip
    sizes = [footer.row_group(g).column(leaf).num_values for g in range(footer.num_row_groups)]
    assert sum(sizes) == 2100 * 4000
    assert max(sizes) <= ROW_GROUP_TOKENS
    assert len(sizes) == 2
