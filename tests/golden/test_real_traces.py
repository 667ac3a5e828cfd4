"""Real block traces and data sets as log families read them, recounted without the engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from family_reading import read_file

from pipeline.logs.reading import LogFile, read_log
from pipeline.logs.records import BadLine, Blocks, Chat, LogRecord, Skip

What = LogRecord | Skip | BadLine


_read = read_file


class Expected(NamedTuple):
    file: str
    family: str
    requests: int
    prompt_tokens: int
    hit_tokens: int | None
    hit_ratio: float
    blocks: int


SMALL = [
    Expected(
        "mooncake_conversation_trace.jsonl.zst",
        "mooncake",
        12_031,
        144_793_823,
        54_098_411,
        0.373624,
        182_790,
    ),
    Expected(
        "mooncake_synthetic_trace.jsonl.zst",
        "mooncake",
        3_993,
        61_194_628,
        39_852_661,
        0.651244,
        43_924,
    ),
    Expected(
        "claude_code_v8_local.small.jsonl.zst",
        "coding-agent",
        403,
        24_431_006,
        None,
        0.900354,
        37_843,
    ),
    Expected(
        "claude_code_v6_global.small.jsonl.zst",
        "coding-agent",
        795,
        44_119_300,
        None,
        0.938343,
        42_116,
    ),
]
LARGE = [
    Expected(
        "claude_code_v8_local.share.jsonl.zst",
        "coding-agent",
        39_459,
        4_821_321_488,
        None,
        0.964106,
        2_684_411,
    ),
    Expected(
        "claude_code_v6_global.share.jsonl.zst",
        "coding-agent",
        37_772,
        3_405_065_260,
        None,
        0.979209,
        1_087_283,
    ),
]


def _prompts(path: Path, family: str) -> Iterator[Blocks]:
    log = LogFile(path)
    for found in read_log(log):
        assert isinstance(found.what, LogRecord)
        assert isinstance(found.what.prompt, Blocks)
        assert not found.what.cut
        yield found.what.prompt
    assert log.family is not None
    assert log.family.name == family


@pytest.mark.parametrize(
    "expected",
    [*SMALL, *(pytest.param(large, marks=pytest.mark.bench) for large in LARGE)],
    ids=lambda expected: expected.file.partition(".jsonl")[0],
)
def test_a_cache_without_end_hits_what_was_counted_from_the_file(
    shared: Path, expected: Expected
) -> None:
    requests = tokens = hits = 0
    children: dict[tuple[int, int], int] = {}
    for prompt in _prompts(shared / "traces" / expected.file, expected.family):
        node, depth = 0, 0
        for at, block in enumerate(prompt.ids, 1):
            child = children.get((node, block))
            if child is None:
                child = children[node, block] = len(children) + 1
            else:
                depth = at  # a new node has no children: this can't come after one
            node = child
        requests += 1
        tokens += prompt.prompt_tokens
        hits += min(depth * prompt.block_tokens, prompt.prompt_tokens)
    assert (requests, tokens, len(children)) == (*expected[2:4], expected.blocks)
    assert round(hits / tokens, 6) == expected.hit_ratio
    assert expected.hit_tokens in (None, hits)


@pytest.mark.parametrize("name", ["conversation", "synthetic"])
def test_mooncake_traces_are_in_the_order_of_their_times(shared: Path, name: str) -> None:
    found = _read(shared / f"traces/mooncake_{name}_trace.jsonl.zst", "mooncake")
    times = [what.time for what in found if isinstance(what, LogRecord)]
    assert times == sorted(times, key=float)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("file", "family", "requests", "empty", "sessions"),
    [
        ("lmcache_agent_miniswe.share.jsonl.zst", "lmcache", 286, 0, 15),
        ("lmcache_agent_magagent.share.jsonl.zst", "lmcache", 535 - 37, 37, 19),
        ("lmcache_agent_taubench.share.jsonl.zst", "lmcache", 372, 0, 18),
        ("taubench_gpt-4o-airline.json.zst", "tau-bench", 2_454, 0, 200),
        ("aibrix_realistic-prefix-share-p1024-s128-rps10.jsonl.gz", "aibrix", 320, 0, 1),
    ],
)
def test_text_traces_hold_the_requests_that_were_counted(
    shared: Path, file: str, family: str, requests: int, empty: int, sessions: int
) -> None:
    found = _read(shared / "traces" / file, family)
    records = [what for what in found if isinstance(what, LogRecord)]
    rejected = [str(what) for what in found if not isinstance(what, LogRecord)]
    assert len(records) == requests
    assert rejected == ["the prompt is empty"] * empty
    assert len({record.carried["session_id"] for record in records}) == sessions


def test_all_tau_bench_requests_share_their_system_prompt(shared: Path) -> None:
    found = _read(shared / "traces/taubench_gpt-4o-airline.json.zst", "tau-bench")
    prompts = [what.prompt for what in found if isinstance(what, LogRecord)]
    first = [prompt.messages[0] for prompt in prompts if isinstance(prompt, Chat)]
    assert len(first) == len(prompts)
    assert {message["role"] for message in first} == {"system"}
    assert {len(message["content"]) for message in first} == {6_155}


def test_aibrix_requests_report_outputs_of_eight_tokens(shared: Path) -> None:
    file = "traces/aibrix_realistic-prefix-share-p1024-s128-rps10.jsonl.gz"
    records = [what for what in _read(shared / file, "aibrix") if isinstance(what, LogRecord)]
    assert {record.output_tokens for record in records} == {8}
    times = [float(record.time) for record in records if record.time is not None]
    assert len(times) == 320
    assert round((max(times) - min(times)) / 1000, 1) == 31.8
