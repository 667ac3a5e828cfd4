"""What real traces hold: exact numbers, beside a plain count of their blocks or tokens."""

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from samples import token_lists

from pipeline.describe import describe_trace
from pipeline.tables import ARRIVAL_TYPE
from pipeline.trace import TraceMetadata, TraceWriter
from pipeline.trace.writer import Requests

BLOCK = 512
DAY1 = Path(__file__).parents[2] / "traces" / "day1.parquet"
Rows = list[dict[str, Any]]


class Expected(NamedTuple):
    requests: int
    prompt_tokens: int
    hit_tokens: int
    hit_ratio: float


EXPECTED = {
    "conversation": Expected(12_031, 144_793_823, 54_098_411, 0.373624),
    "synthetic": Expected(3_993, 61_194_628, 39_852_661, 0.651244),
}


def read_log(path: Path) -> Rows:
    with pa.input_stream(path, compression="zstd") as stream:
        return [json.loads(line) for line in stream.read().splitlines()]


def write_blocks(path: Path, log: Rows) -> Path:
    """Write Mooncake's blocks as a trace, without the tokenize stage."""
    blocks = [row["hash_ids"] for row in log]
    arrival = [row["timestamp"] * 1000 for row in log]
    carried = {
        "request_id": [str(i) for i in range(len(log))],
        "arrival": pa.array(arrival, pa.timestamp("us")).cast(ARRIVAL_TYPE),
        "output_tokens": pa.array([row["output_length"] for row in log], pa.uint32()),
    }
    requests = Requests(
        pa.table(carried),
        np.array([block for ids in blocks for block in ids], np.uint64),
        np.cumsum([0, *map(len, blocks)], dtype=np.int64),
        np.array([row["input_length"] for row in log], np.uint32),
    )
    metadata = TraceMetadata(block_tokens=BLOCK, partial_block="ceil")
    with TraceWriter(path, metadata) as writer:
        writer.write(requests)
    return path


class Described(NamedTuple):
    log: Rows
    expected: Expected
    told: dict[str, Rows]


def described(path: Path, block_tokens: int = 1) -> dict[str, Rows]:
    return {s.name: s.rows.to_pylist() for s in describe_trace(path, block_tokens)}


@pytest.fixture(scope="module", params=list(EXPECTED))
def mooncake(
    request: pytest.FixtureRequest, shared: Path, tmp_path_factory: pytest.TempPathFactory
) -> Described:
    name: str = request.param
    log = read_log(shared / "traces" / f"mooncake_{name}_trace.jsonl.zst")
    path = write_blocks(tmp_path_factory.mktemp("mooncake") / f"{name}.parquet", log)
    return Described(log, EXPECTED[name], described(path))


def test_an_unlimited_cache_hits_what_is_known(mooncake: Described) -> None:
    _, expected, told = mooncake
    [overview], [within, across, total] = told["overview"], told["unlimited_cache"]
    counted = (overview["requests"], total["prompt_tokens"], total["hit_tokens"])
    assert (*counted, total["hit_ratio"]) == expected
    assert within["hit_tokens"] == 0, "the trace has no sessions"
    assert across["hit_tokens"] == total["hit_tokens"]


def test_lengths_are_those_of_numpy(mooncake: Described) -> None:
    log, _, told = mooncake
    for row, name in zip(told["lengths"], ("input_length", "output_length"), strict=False):
        values = [one[name] for one in log]
        points = np.percentile(values, [0, 10, 50, 90, 99, 100])
        names = ("p0", "p10", "p50", "p90", "p99", "p100")
        assert [row[p] for p in names] == pytest.approx(points, abs=0.006)
        assert row["mean"] == pytest.approx(np.mean(values), abs=0.006)


def test_prefixes_have_as_many_requests_as_a_count_of_blocks_says(mooncake: Described) -> None:
    """Ids are chained, so that an id and its place stand for all before it."""
    log, _, told = mooncake
    begin = Counter((i, block) for row in log for i, block in enumerate(row["hash_ids"], 1))
    by_blocks = sorted(begin.values(), reverse=True)
    rows = told["prefixes_by_requests"]
    assert rows[0]["requests"] == by_blocks[0]
    for row in rows + told["prefixes_by_tokens"]:
        first = log[int(row["first_request_id"])]["hash_ids"]
        blocks = -(-row["prefix_tokens"] // BLOCK)
        assert begin[blocks, first[blocks - 1]] == row["requests"]
        further = [begin[blocks + 1, first[blocks]]] if len(first) > blocks else []
        assert all(count < row["requests"] for count in further)


def test_full_blocks_are_those_that_came_before(shared: Path, tmp_path: Path) -> None:
    log = read_log(shared / "traces" / "mooncake_synthetic_trace.jsonl.zst")
    told = described(write_blocks(tmp_path / "a.parquet", log), BLOCK)
    seen: set[tuple[int, int]] = set()
    hits = 0
    for row in log:
        full = list(enumerate(row["hash_ids"][: row["input_length"] // BLOCK]))
        hits += BLOCK * sum(block in seen for block in full)
        seen.update(full)
    assert told["unlimited_cache"][2]["hit_tokens"] == hits


def common_prefix(one: NDArray[np.uint32], other: NDArray[np.uint32]) -> int:
    length = min(len(one), len(other))
    differ = one[:length] != other[:length]
    return int(np.argmax(differ)) if differ.any() else length


def test_day1_is_hit_within_sessions_as_its_tokens_say() -> None:
    [within, across, total] = described(DAY1)["unlimited_cache"]
    assert (within["hit_tokens"], total["hit_tokens"]) == (3_880_241, 6_164_095)
    assert (within["hit_ratio"], across["hit_ratio"], total["hit_ratio"]) == (
        0.499602,
        0.294059,
        0.793661,
    )
    names = pq.ParquetFile(DAY1).read(["session_id", "namespace"]).to_pylist()
    earlier: dict[tuple[str, str], list[NDArray[np.uint32]]] = {}
    own = 0
    for row, tokens in zip(names, token_lists(DAY1), strict=True):
        before = earlier.setdefault((row["session_id"], row["namespace"]), [])
        own += max((common_prefix(one, tokens) for one in before), default=0)
        before.append(tokens)
    assert own == within["hit_tokens"]
