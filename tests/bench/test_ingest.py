"""Figures of tokenize, as ratios within one run: `pytest -m bench -s tests/bench`.

Texts are Python's own library, which is on every machine. BENCH_LOG_MB sets the size of the large
log (default 500).
"""

import os
import random
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command import environment

from pipeline.logs.reading import LogFile, read_log
from pipeline.logs.records import Chat, LogRecord
from pipeline.templates import find_template
from pipeline.tokenize import TokenizeSettings, tokenize_logs
from pipeline.vocabularies import find_vocabulary

pytestmark = [pytest.mark.bench, pytest.mark.usefixtures("compiled")]

_BARE_MB = 20
_PEAK = """
import resource, sys
from pathlib import Path
from pipeline.tokenize import TokenizeSettings, tokenize_logs
tokenize_logs([Path(sys.argv[1])], Path(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def _words() -> list[str]:
    library = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(library.glob("*.py"))
    return [w for f in files for w in f.read_text("utf-8", "replace").split(" ")]


def _texts(rng: random.Random) -> Callable[[int], str]:
    words = _words()

    def text(count: int) -> str:
        begin = rng.randrange(len(words) - count)
        return " ".join(words[begin : begin + count])

    return text


def _single_turns(megabytes: int) -> Iterator[dict[str, Any]]:
    """Yield documents of 1 to 16 kB, each asked about once."""
    rng = random.Random(1)
    text = _texts(rng)
    size = 0
    while size < megabytes << 20:
        content = text(rng.randrange(100, 2_000))
        size += len(content)
        yield {"messages": [{"role": "user", "content": content}]}


def _multi_turns(megabytes: int) -> Iterator[dict[str, Any]]:
    """Yield chats that grow turn by turn up to some 20 turns, 80 of them at a time."""
    rng = random.Random(2)
    text = _texts(rng)
    rules = [text(900) for _ in range(40)]
    size, live = 0, []
    while size < megabytes << 20:
        if len(live) < 80:
            live.append([{"role": "system", "content": rng.choice(rules)}])
        chat = rng.choice(live)
        chat.append({"role": "user", "content": text(rng.randrange(20, 300))})
        size += sum(len(message["content"]) for message in chat)
        yield {"messages": chat}
        chat.append({"role": "assistant", "content": text(rng.randrange(40, 400))})
        if len(chat) > rng.randrange(10, 44):
            live.remove(chat)


def _log(path: Path, bodies: Iterator[dict[str, Any]]) -> Path:
    with path.open("wb") as stream:
        for number, body in enumerate(bodies):
            line = {"timestamp": 1_772_359_200 + number / 4, "body": {"model": "m", **body}}
            stream.write(orjson.dumps(line) + b"\n")
    return path


def _rendered(log: Path) -> list[str]:
    template = find_template(None, find_vocabulary("qwen3", fast=False))
    records = [f.what for f in read_log(LogFile(log)) if isinstance(f.what, LogRecord)]
    return [template.render(r.prompt) for r in records if isinstance(r.prompt, Chat)]


def _seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


@pytest.mark.parametrize(
    ("name", "bodies", "megabytes"),
    [("single turns", _single_turns, 100), ("chats that grow", _multi_turns, 250)],
)
def test_a_log_is_tokenized_at_a_good_part_of_the_engines_own_speed(
    tmp_path: Path, name: str, bodies: Callable[[int], Iterator[dict[str, Any]]], megabytes: int
) -> None:
    log = _log(tmp_path / "a.jsonl", bodies(megabytes))
    texts = _rendered(log)
    whole = sum(map(len, texts)) / 1e6
    part = texts[: max(1, int(len(texts) * min(1, _BARE_MB / whole)))]
    size = sum(map(len, part)) / 1e6
    engine = find_vocabulary("qwen3", fast=False).engine
    bare = size / min(_seconds(lambda: engine.encode(part)) for _ in range(2))
    trace = tmp_path / "t.parquet"
    settings = TokenizeSettings(fast=False)
    command = whole / min(_seconds(lambda: tokenize_logs([log], trace, settings)) for _ in range(2))
    with_fast = whole / _seconds(lambda: tokenize_logs([log], trace, TokenizeSettings()))
    tokens = pq.read_table(trace, columns=["prompt_tokens"])["prompt_tokens"].to_numpy().sum()
    print(
        f"\n{name}: {whole:.0f} MB, engine alone {bare:.1f} MB/s on all cores, whole tokenize"
        f" {command:.1f} MB/s = {command / bare:.2f} of it; with the fast engine"
        f" {with_fast:.1f} MB/s = {with_fast / bare:.2f};"
        f" {trace.stat().st_size / tokens:.3f} bytes a token"
    )


def test_the_token_column_reads_as_fast_as_an_uncompressed_one(tmp_path: Path) -> None:
    log = _log(tmp_path / "a.jsonl", _multi_turns(150))
    trace, plain = tmp_path / "t.parquet", tmp_path / "plain.parquet"
    tokenize_logs([log], trace)
    column = "prompt_token_ids"
    table = pq.read_table(trace, columns=[column])
    ids = table[column].combine_chunks()
    lists = pa.LargeListArray.from_arrays(ids.offsets, ids.values)
    pq.write_table(pa.table({column: lists}), plain, compression="none", use_dictionary=False)
    tokens = len(ids.values)

    def read(path: Path) -> float:
        return min(_seconds(lambda: pq.read_table(path, columns=[column])) for _ in range(5))

    ours, theirs = read(trace), read(plain)
    print(
        f"\n{tokens / 1e6:.0f} M tokens: {trace.stat().st_size / tokens:.3f} bytes a token, read"
        f" at {tokens / ours / 1e6:.0f} M tokens/s; uncompressed"
        f" {plain.stat().st_size / tokens:.3f} bytes, {tokens / theirs / 1e6:.0f} M tokens/s"
    )
    assert np.array_equal(pq.read_table(plain)[column].combine_chunks().values, ids.values)


def test_memory_does_not_follow_the_size_of_a_log(tmp_path: Path) -> None:
    megabytes = int(os.environ.get("BENCH_LOG_MB", "500"))
    log = _log(tmp_path / "a.jsonl", _multi_turns(megabytes))
    script = [sys.executable, "-c", _PEAK, str(log), str(tmp_path / "t.parquet")]
    begin = time.perf_counter()
    done = subprocess.run(script, env=environment(), capture_output=True, text=True, check=True)
    took = time.perf_counter() - begin
    size = log.stat().st_size / 1e6
    print(
        f"\na log of {size:,.0f} MB: peak memory {done.stdout.strip()} MB, {size / took:.1f} MB/s"
    )
