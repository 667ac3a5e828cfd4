"""Engine settings that contradict each other or the trace are refused, those that fit are not."""

from pathlib import Path

import numpy as np
import pytest
from command import replay_here, replay_ok
from samples import column, decisions, names_in, requests, write_trace

from pipeline.trace import TraceMetadata, TraceWriter
from pipeline.trace.writer import Requests

pytestmark = pytest.mark.usefixtures("compiled")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a trace with times, one without, and one of blocks of 16 tokens."""
    folder = tmp_path_factory.mktemp("refused")
    prompts = [range(40), range(40)]
    write_trace(folder / "timed.parquet", prompts, [0, 1_000_000])
    write_trace(folder / "at-once.parquet", prompts)
    carried = requests([(), ()], [0, 1_000_000]).carried
    ids, offsets = np.array([1, 2, 3, 1, 2, 3], np.uint64), np.array([0, 3, 6], np.int64)
    with TraceWriter(folder / "blocks.parquet", TraceMetadata(block_tokens=16)) as trace:
        trace.write(Requests(carried, ids, offsets, np.array([40, 40], np.uint32)))
    return folder


NO_CLOCK = (
    "when-full wait needs a clock: with the clock arrivals no request completes between two"
    " others; give --clock timestamps for a trace with times, or --when-full reject"
)
NO_OUTPUTS = (
    "cache-output needs the token ids of the outputs, and the trace has none:"
    " make it with: replay tokenize --output-ids"
)
OTHER_BLOCKS = "but the trace knows only blocks of 16 tokens: give a multiple of 16"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("timed.parquet --cache-output", f"timed.parquet: {NO_OUTPUTS}"),
        ("blocks.parquet --engine vllm --cache-output", f"blocks.parquet: {NO_OUTPUTS}"),
        ("timed.parquet --in-flight pins --when-full wait --clock arrivals", NO_CLOCK),
        ("timed.parquet --engine sglang --in-flight pins --clock arrivals", NO_CLOCK),
        ("at-once.parquet --engine vllm --in-flight pins", NO_CLOCK),
        (
            "blocks.parquet --block-tokens 24",
            f"blocks.parquet: block-tokens is 24, {OTHER_BLOCKS}",
        ),
        (
            "blocks.parquet --engine vllm --block-tokens 8",
            f"blocks.parquet: block-tokens is 8, {OTHER_BLOCKS}",
        ),
        (
            "timed.parquet --block-tokens 64 --capacity-tokens 63",
            "capacity-tokens is 63: that is less than one block of 64 tokens",
        ),
        (
            "timed.parquet --engine vllm --capacity-tokens 15",
            "capacity-tokens is 15: that is less than one block of 16 tokens",
        ),
        (
            "blocks.parquet --engine sglang --capacity-tokens 15",
            "capacity-tokens is 15: that is less than one block of 16 tokens",
        ),
        ("timed.parquet --block-tokens 513", "block-tokens is 513: give 1 to 512 tokens"),
    ],
)
def test_settings_that_contradict_each_other_or_the_trace_are_refused_before_anything_is_written(
    folder: Path, command: str, message: str
) -> None:
    before = names_in(folder)
    done = replay_here(*command.split(), "-o", "run", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"replay: {message}\n"
    assert names_in(folder) == before


@pytest.mark.parametrize(
    ("options", "matched"),
    [
        ("--block-tokens 16", 32),
        ("--block-tokens 32", 32),
        ("--block-tokens 48", 0),
        ("--block-tokens 1", 40),
        ("--engine vllm --capacity-tokens 48", 32),
        ("--engine vllm --block-tokens 32", 32),
        ("--in-flight pins --when-full reject --clock arrivals", 40),
    ],
)
def test_a_block_trace_is_replayed_in_multiples_of_its_blocks(
    folder: Path, tmp_path: Path, options: str, matched: int
) -> None:
    more = ("--replicas", "1", "--policy", "round_robin", "-o", tmp_path / "run")
    replay_ok("blocks.parquet", *options.split(), *more, cwd=folder)
    rows = decisions(tmp_path / "run", "round_robin")
    assert column(rows, "matched_tokens") == [0, matched]
