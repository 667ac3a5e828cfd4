"""README's table of policies says what the command above it gives."""

import re
from pathlib import Path

import pytest
from command import replay_here, replay_ok

from pipeline.report import find_report, open_run, select

ROOT = Path(__file__).parents[2]
CONVERSATION = ROOT / "../shared/traces/mooncake_conversation_trace.jsonl.zst"
ROW = re.compile(r"^\| `(\w+)` \| (0\.\d{4}) \|(.*)\|$", re.MULTILINE)


def test_the_table_of_all_policies_is_what_they_give(tmp_path: Path) -> None:
    if not CONVERSATION.exists():
        pytest.skip("../shared/traces is not there")
    trace = tmp_path / "conversation.parquet"
    assert replay_here("tokenize", CONVERSATION, "-o", trace).returncode == 0
    shown: dict[str, list[str]] = {}
    for replicas in ("4", "16"):
        run = tmp_path / replicas
        settings = ("--policy", "all", "--capacity-tokens", "2048000", "--replicas", replicas)
        replay_ok(trace, *settings, "-o", run)
        for row in select(open_run(run), find_report("policy_comparison").sql).to_pylist():
            shown.setdefault(row["policy"], []).extend(
                [
                    f"{row['cache_hit_ratio']:.4f}",
                    f"{row['mean_ttft_ms']:.0f} ms",
                    f"{row['p99_ttft_ms']:.0f} ms",
                    f"{row['evicted_tokens'] / 1e6:.1f} M",
                    f"{row['requests_max_over_mean']:.2f}",
                ]
            )
    told = {
        name: [first, *(cell.strip() for cell in rest.split("|")[:-1])]
        for name, first, rest in ROW.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    }
    assert told == shown
