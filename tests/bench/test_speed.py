"""Speed as ratios and rates, printed: pytest -m bench -s tests/bench. No time is asserted."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from pipeline.config import ENGINES, ClockConfig, FleetConfig, ReplayConfig
from pipeline.links import LinkFinder
from pipeline.plan import planned
from pipeline.replay import POLICIES, Replayer, trace_paths
from pipeline.replay.router import Batch
from pipeline.router import CacheAwareRouter
from pipeline.tables import trace_schema
from pipeline.tokenize import tokenize_logs
from pipeline.trace import TraceFile, TraceMetadata
from pipeline.trace.writer import conform, open_parquet

pytestmark = pytest.mark.bench
ROOT = Path(__file__).parents[2]
CONVERSATION = ROOT / "../shared/traces/mooncake_conversation_trace.jsonl.zst"
ONLINE_REQUESTS = 300


def best_seconds(work: Callable[[], object], repeats: int = 7) -> float:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def chat_tokens(requests: int = 12_000) -> tuple[np.ndarray, np.ndarray]:
    """500 chats over 20 system prompts, grown turn by turn and cut at 12,000 tokens."""
    random = np.random.default_rng(0)
    systems = [random.integers(0, 150_000, 2000, dtype=np.uint32) for _ in range(20)]
    chats = [systems[i % 20] for i in range(500)]
    prompts = []
    for _ in range(requests):
        chat, new = int(random.integers(500)), int(random.integers(50, 600))
        turn = random.integers(0, 150_000, new, dtype=np.uint32)
        kept = chats[chat] if len(chats[chat]) < 12_000 else chats[chat][:2000]
        chats[chat] = np.concatenate((kept, turn))
        prompts.append(chats[chat])
    return np.concatenate(prompts), np.cumsum([0, *map(len, prompts)])


def test_links_against_copying_the_tokens() -> None:
    tokens, offsets = chat_tokens()
    target = np.zeros_like(tokens)
    linked = best_seconds(lambda: LinkFinder().link(tokens, offsets), 5)
    copied = best_seconds(lambda: np.copyto(target, tokens), 5)
    rate = len(tokens) / linked / 1e6
    print(f"\nlinks: {rate:.0f} M tokens/s, {linked / copied:.1f} x the time of copying them once")


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> TraceFile:
    if not CONVERSATION.exists():
        pytest.skip("../shared/traces is not there")
    trace = tmp_path_factory.mktemp("bench") / "conversation.parquet"
    tokenize_logs([CONVERSATION], trace)
    return TraceFile.open(trace)


def in_order(prompts: Any, first_ids: Any, clock: Any) -> Batch:
    none = np.zeros_like(prompts)
    names = none.astype(np.uint64)
    return Batch(np.arange(len(prompts)), prompts, first_ids, clock, none, names)


@pytest.mark.parametrize("replicas", [4, 16, 64])
@pytest.mark.parametrize("policy", ["cache_aware", "pure_affinity", "round_robin"])
def test_replay_of_the_conversation_trace(
    conversation: TraceFile, policy: str, replicas: int
) -> None:
    columns = conversation.columns()
    paths = trace_paths(columns.links)
    config = ReplayConfig(FleetConfig(replicas, 4000 * 512), clock=ClockConfig("arrivals"))
    clock = np.arange(1, len(columns.prompt_tokens) + 1) * config.clock.decay_ticks
    prompts = columns.prompt_tokens.astype(np.int64)
    batch = in_order(prompts, columns.first_token_id.copy(), clock)
    replay = best_seconds(lambda: Replayer(paths, config, policy).replay(batch))
    print(f"\n{policy}, {replicas} replicas: {len(prompts) / replay / 1e6:.2f} M requests/s")


def test_all_policies_on_16_replicas(conversation: TraceFile, tmp_path: Path) -> None:
    """Each alone, one core; then all in one command, warm."""
    config = ReplayConfig(FleetConfig(16, 4000 * 512), policies=tuple(POLICIES))
    rates = {}
    with planned(conversation.path, config) as plan:
        [step] = plan.steps(conversation.rows)
        for policy in POLICIES:
            replay = best_seconds(
                lambda policy=policy: Replayer(plan.paths, plan.config, policy).replay(step.batch)
            )
            rates[policy] = conversation.rows / replay / 1e6
    for policy, rate in sorted(rates.items(), key=lambda item: item[1]):
        print(f"\n{policy}: {rate:.2f} M requests/s", end="")
    command = [sys.executable, "-m", "pipeline.cli", str(conversation.path), "--policy", "all"]
    command += [
        "--replicas",
        "16",
        "--capacity-tokens",
        str(4000 * 512),
        "-o",
        str(tmp_path / "run"),
    ]
    whole = best_seconds(lambda: subprocess.run(command, check=True, capture_output=True), 3)
    print(f"\nall {len(rates)} policies in one command: {whole:.1f} s")


def test_engines_side_by_side(conversation: TraceFile) -> None:
    columns = conversation.columns()
    arrival_us = columns.arrival_us - columns.arrival_us[0]
    [outputs] = conversation.batches(["output_tokens"], conversation.rows)
    output_tokens = outputs["output_tokens"].to_numpy().astype(np.int64)
    prompts = columns.prompt_tokens.astype(np.int64)
    seq, first_ids = np.arange(len(prompts)), columns.first_token_id.copy()
    names = np.zeros(len(seq), np.uint64)
    batch = Batch(seq, prompts, first_ids, arrival_us * 10, output_tokens, names)
    leaf = replace(ENGINES["sglang"], block_tokens=512)
    block = replace(ENGINES["vllm"], block_tokens=512)
    kinds = {
        "leaves": leaf,
        "blocks": block,
        "leaves, pins": replace(leaf, in_flight="pins"),
        "blocks, pins": replace(block, in_flight="pins"),
    }
    configs = {n: ReplayConfig(FleetConfig(4, 4000 * 512), e) for n, e in kinds.items()}
    paths = {name: trace_paths(columns.links, engine=e) for name, e in kinds.items()}

    def replay(name: str) -> None:
        replayer = Replayer(paths[name], configs[name], "cache_aware")
        replayer.replay(batch)
        replayer.finish()

    seconds = dict.fromkeys(kinds, float("inf"))
    for _ in range(60):  # in turn, so that a busy moment meets all of them
        for name in kinds:
            seconds[name] = min(seconds[name], best_seconds(partial(replay, name), 1))
    for name, best in seconds.items():
        rate = len(prompts) / best / 1e6
        print(f"\n{name}: {rate:.2f} M requests/s, {best / seconds['leaves']:.2f} x the time")


def test_replay_against_the_online_objects() -> None:
    tokens, offsets = chat_tokens(ONLINE_REQUESTS)
    prompts = [tuple(tokens[a:b].tolist()) for a, b in pairwise(offsets)]

    def online() -> None:
        router = CacheAwareRouter(4, 262_144)
        for prompt in prompts:
            router.route_request(prompt, "cache_aware")

    seq, shared = LinkFinder().link(tokens, offsets)
    lengths = np.diff(offsets)
    paths = trace_paths((lengths.astype(np.uint32), seq, shared.astype(np.uint32)))
    clock = np.arange(1, ONLINE_REQUESTS + 1) * 120_000
    batch = in_order(lengths, tokens[offsets[:-1]].astype(np.uint64), clock)
    fast = best_seconds(lambda: Replayer(paths, ReplayConfig(), "cache_aware").replay(batch))
    print(f"\nreplay: {best_seconds(online, 2) / fast:.0f} x the speed of the online objects")


def run_replay(arguments: list[str], **environment: str) -> float:
    began = time.perf_counter()
    command = [sys.executable, "-m", "pipeline.cli", *arguments]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, **environment})
    return time.perf_counter() - began


def test_day1_end_to_end(tmp_path: Path) -> None:
    arguments = ["run", str(ROOT / "traces/day1.parquet"), "-o", str(tmp_path / "run")]
    run_replay(arguments)
    warm = min(run_replay(arguments) for _ in range(5))
    imports = "import pipeline.run, pipeline.report, pipeline.cli.summaries"
    command = [sys.executable, "-c", imports]
    imported = best_seconds(lambda: subprocess.run(command, check=True), 5)
    cold = run_replay(arguments, REPLAY_CACHE_DIR=str(tmp_path / "cache"))
    print(f"\nday1, three policies: {warm:.2f} s warm, of which {imported:.2f} s start and imports")
    print(f"cold, kernels compiled: {cold:.1f} s")


def test_a_million_requests_on_64_replicas(tmp_path: Path) -> None:
    trace, run = tmp_path / "million.parquet", tmp_path / "run"
    write_generated_trace(trace, 1_000_000)
    program = (
        "import json, re, sys; from pathlib import Path;"
        "from pipeline.config import *; from pipeline.run import replay_trace;"
        "config = ReplayConfig(FleetConfig(64, 262144), policies=('cache_aware',));"
        "run = replay_trace(Path(sys.argv[1]), Path(sys.argv[2]), config);"
        "peak = re.search(r'VmHWM:\\s+(\\d+)', Path('/proc/self/status').read_text())[1];"
        "print(json.dumps({'peak_mb': int(peak) / 1024, **run['timings']}))"
    )
    command = [sys.executable, "-c", program, str(trace), str(run)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    timings = json.loads(done.stdout)
    print(f"\na million requests, 64 replicas: {1 / timings['replay_s']:.2f} M requests/s replay,")
    print(f"{timings['total_s']:.1f} s with reading and writing, peak {timings['peak_mb']:.0f} MB")


def write_generated_trace(path: Path, requests: int) -> None:
    """Chats over 200 system prompts, mean prompt about 2,000 tokens, written as links alone."""
    random = np.random.default_rng(1)
    new = random.integers(20, 500, requests)
    chat = random.integers(0, requests // 6, requests)
    length, link = np.zeros(requests, np.uint32), np.full(requests, -1)
    shared, first = np.zeros(requests, np.uint32), np.zeros(requests, np.uint64)
    latest: dict[int, int] = {}
    opener: dict[int, int] = {}
    for i in range(requests):
        system = int(chat[i]) % 200
        before = latest.get(int(chat[i]), opener.get(system, -1))
        held = length[before] if int(chat[i]) in latest else 1000
        shared[i] = held if before >= 0 else 0
        link[i], first[i] = before, system
        length[i] = max(int(held), 1000) + new[i]
        latest[int(chat[i])] = i
        opener.setdefault(system, i)
    arrival = pa.array(np.cumsum(random.integers(0, 2000, requests))).cast(pa.timestamp("us"))
    seq = np.arange(requests)
    columns = {
        "seq": seq.astype(np.uint64),
        "request_id": pa.array(seq).cast(pa.string()),
        "arrival": arrival,
        "prompt_tokens": length,
        "first_token_id": first,
        "prefix_seq": pa.array(link, mask=link < 0),
        "prefix_tokens": shared,
    }
    schema = trace_schema(None).with_metadata(TraceMetadata().as_parquet())
    with open_parquet(path, schema) as file:
        file.write_table(conform(pa.table({"seq": seq}), columns, schema))
    print(f"\nmean prompt {length.mean():.0f} tokens, {shared.sum() / length.sum():.0%} shared")
