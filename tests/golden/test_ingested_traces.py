"""Public traces, from the file to the trace by one command: an unlimited cache's exact hit ratio.

The ratios are those that others computed from the same files: of full blocks of 16 tokens with
cl100k for texts, of the block ids for block traces. The law beside them: every line is a row, a
skip or a reject, and each link is checked against the tokens.
"""

from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pytest
from samples import common_prefix, token_lists

from pipeline.tokenize import TokenizeSettings, tokenize_logs
from pipeline.trace import TraceFile

TEXTS = {  # requests, prompt tokens, hit ratio of full blocks of 16
    "lmcache_agent_miniswe.share.jsonl.zst": (286, 1_660_881, 0.930725),
    "lmcache_agent_magagent.share.jsonl.zst": (535 - 37, 1_274_842, 0.832605),
    "lmcache_agent_taubench.share.jsonl.zst": (372, 63_612, 0.820474),
    "aibrix_realistic-prefix-share-p1024-s128-rps10.jsonl.gz": (320, 337_273, 0.859411),
}
BLOCKS = {  # requests, prompt tokens, hit ratio
    "mooncake_conversation_trace.jsonl.zst": (12_031, 144_793_823, 0.373624),
    "mooncake_synthetic_trace.jsonl.zst": (3_993, 61_194_628, 0.651244),
    "claude_code_v8_local.small.jsonl.zst": (403, 24_431_006, 0.900354),
    "claude_code_v6_global.small.jsonl.zst": (795, 44_119_300, 0.938343),
}


def _ratio(trace: Path, block_tokens: int = 1) -> tuple[int, int, float]:
    rows = duckdb.read_parquet(str(trace))
    hit = f"sum(prefix_tokens // {block_tokens} * {block_tokens})"
    [(requests, tokens, ratio)] = rows.aggregate(
        f"count(*), sum(prompt_tokens), round({hit} / sum(prompt_tokens), 6)"
    ).fetchall()
    return requests, int(tokens), ratio


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_log_shares_what_its_tokens_share(shared: Path, tmp_path: Path, name: str) -> None:
    trace = tmp_path / "t.parquet"
    settings = TokenizeSettings(tokenizer="cl100k", max_rejects=0.1)
    summary = tokenize_logs([shared / "traces" / name], trace, settings)
    assert _ratio(trace, 16) == TEXTS[name]
    rejected = {"the prompt is empty": 37} if "magagent" in name else {}
    assert (summary.rejects, summary.skips) == (rejected, {})
    _check_links(trace, range(0, summary.requests, 7))


def _check_links(trace: Path, requests: Sequence[int]) -> None:
    """Check that a link's prefix is shared, and that what follows it is not."""
    ids = token_lists(trace)
    columns = TraceFile.open(trace).columns()
    for request in requests:
        earlier, shared = columns.prefix_seq[request], columns.prefix_tokens[request]
        if earlier >= 0:
            assert common_prefix(ids[request].tolist(), ids[earlier].tolist()) == shared
        else:
            firsts = {int(i[0]) for i in ids[:request]}
            assert int(ids[request][0]) not in firsts


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_trace_shares_what_its_blocks_share(
    shared: Path, tmp_path: Path, name: str
) -> None:
    trace = tmp_path / "t.parquet"
    settings = TokenizeSettings(session_starts="in-turn", namespaces="none")
    summary = tokenize_logs([shared / "traces" / name], trace, settings)
    assert _ratio(trace) == BLOCKS[name]
    assert (summary.rejects, summary.skips) == ({}, {})


def test_sessions_that_start_in_another_way_share_the_same(shared: Path, tmp_path: Path) -> None:
    """What an unlimited cache saves is all but the first of each prefix, whoever comes first."""
    log = shared / "traces" / "claude_code_v6_global.small.jsonl.zst"
    for starts in ("together", "random:600"):
        settings = TokenizeSettings(session_starts=starts, namespaces="none")
        tokenize_logs([log], tmp_path / "t.parquet", settings)
        assert _ratio(tmp_path / "t.parquet")[2] == 0.938343


def test_models_that_share_no_kv_share_a_little_less(shared: Path, tmp_path: Path) -> None:
    log = shared / "traces" / "claude_code_v8_local.small.jsonl.zst"
    settings = TokenizeSettings(session_starts="in-turn")
    tokenize_logs([log], tmp_path / "t.parquet", settings)
    assert _ratio(tmp_path / "t.parquet")[2] == 0.90005


def test_tau_bench_differs_from_other_figures_by_its_template_alone(
    shared: Path, tmp_path: Path
) -> None:
    """Elsewhere 0.927598 of 7,201,293 tokens: another way to write roles and tool calls as text.

    Both have the same requests; ours leaves out what a fallback template has no place for.
    """
    log = shared / "traces" / "taubench_gpt-4o-airline.json.zst"
    tokenize_logs([log], tmp_path / "t.parquet", TokenizeSettings(tokenizer="cl100k"))
    requests, tokens, ratio = _ratio(tmp_path / "t.parquet", 16)
    assert requests == 2454
    assert abs(ratio - 0.927598) < 0.001
    assert abs(tokens / 7_201_293 - 1) < 0.02
    metadata = TraceFile.open(tmp_path / "t.parquet").metadata
    assert metadata.tokenizer == "cl100k with plain (fallback)"


@pytest.mark.parametrize(
    "name", ["AzureLLMInferenceTrace_conv.csv.gz", "tracelab_sanitized_round_trace.jsonl"]
)
def test_traces_of_lengths_are_refused_with_the_reason(
    shared: Path, tmp_path: Path, name: str
) -> None:
    with pytest.raises(Exception, match="lengths: only counts of tokens, no content"):
        tokenize_logs([shared / "traces" / name], tmp_path / "t.parquet")
    assert np.array_equal(list(tmp_path.iterdir()), [])
