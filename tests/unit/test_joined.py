"""A warm-up trace before a trace, linked as one."""

import errno
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from samples import (
    Row,
    column,
    common_prefix,
    names_in,
    requests,
    rows_of,
    write_log,
    write_tokens,
)

from pipeline import joined, prepare
from pipeline.errors import TraceError
from pipeline.files import whole_file
from pipeline.joined import joined_trace
from pipeline.prepare import drop_tokens
from pipeline.tokenize import TokenizeSettings, tokenize_logs
from pipeline.trace import Lists, TraceColumns, TraceFile, TraceMetadata, TraceWriter

DAY_US = 86_400_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
YESTERDAY = [(1, 2, 3, 4), (7, 8), ()]
TODAY = [(1, 2, 3, 9), (1, 2, 3, 9, 9), (7,), (5, 5)]
METADATA = TraceMetadata(sources=("log.jsonl",), counts={"lines": 9, "requests": 5})
Prompts = Sequence[Sequence[int]]


def write(
    path: Path,
    prompts: Prompts,
    arrival_us: Sequence[int] | None = None,
    metadata: TraceMetadata | None = None,
    **carried: Any,
) -> Path:
    """Write a linked trace of tokens, or of blocks if the metadata has a block size."""
    metadata = metadata or TraceMetadata()
    batch = requests(prompts, arrival_us or [0] * len(prompts), **carried)
    if metadata.block_tokens:
        lengths = np.diff(batch.offsets).astype(np.uint32) * metadata.block_tokens
        batch = batch._replace(ids=batch.ids.astype(np.uint64), prompt_tokens=lengths)
    with TraceWriter(path, metadata) as writer:
        writer.write(batch)
    return path


@pytest.fixture
def days(tmp_path: Path) -> tuple[Path, Path]:
    """Return the traces of two days in folders of their own."""
    for name in ("yesterday", "today"):
        (tmp_path / name).mkdir()
    warmup = write(tmp_path / "yesterday" / "t.parquet", YESTERDAY, [10, 20, 30], tenant=["w"] * 3)
    trace = write(tmp_path / "today" / "t.parquet", TODAY, [30, 40, 40, 50], tenant=list("abcd"))
    return warmup, trace


def join(warmup: Path, trace: Path) -> tuple[list[Row], TraceColumns]:
    """Return rows of a joined trace and its columns, which are checked as they are read."""
    with joined_trace(warmup, trace) as both:
        assert both.trace.linked
        assert both.warmup_rows == TraceFile.open(warmup).rows
        return rows_of(both.trace.path), both.trace.columns()


def refusal(warmup: Path, trace: Path) -> str:
    """Return why two traces can't be joined; neither folder has changed."""
    before = [names_in(path.parent) for path in (warmup, trace)]
    with pytest.raises(TraceError) as caught, joined_trace(warmup, trace):
        pass
    assert [names_in(path.parent) for path in (warmup, trace)] == before
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_the_requests_of_the_warm_up_come_first_and_later_ones_share_with_them(
    days: tuple[Path, Path],
) -> None:
    rows, _ = join(*days)
    assert column(rows, "seq") == list(range(7))
    assert column(rows, "request_id") == ["r0", "r1", "r2", "r0", "r1", "r2", "r3"]
    assert column(rows, "tenant") == ["w", "w", "w", "a", "b", "c", "d"]
    assert column(rows, "prompt_tokens") == [4, 2, 0, 4, 5, 1, 2]
    assert column(rows, "prefix_tokens") == [0, 0, 0, 3, 4, 1, 0]
    assert column(rows, "prefix_seq") == [None, None, None, 0, 3, 1, None]
    assert column(rows, "first_token_id") == [1, 7, 0, 1, 1, 7, 5]


def test_the_joined_trace_has_no_token_ids(days: tuple[Path, Path]) -> None:
    with joined_trace(*days) as both:
        assert both.trace.ids is None


def random_day(seed: int, rows: int) -> tuple[list[list[int]], list[str | None]]:
    """Return prompts of few tokens, so that they share much, and their namespaces."""
    chance = random.Random(seed)  # noqa: S311 - seeded, so that every run tests the same
    prompts = [[chance.randint(0, 2) for _ in range(chance.randint(0, 7))] for _ in range(rows)]
    return prompts, [chance.choice(["x", "y", None]) for _ in range(rows)]


@pytest.mark.parametrize("seed", range(5))
def test_links_are_the_longest_prefixes_over_both_traces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(prepare, "_BATCH_IDS", 40)  # several batches of each
    one, names_of_one = random_day(seed, 40)
    other, names_of_other = random_day(seed + 100, 60)
    paths = [
        write(tmp_path / "a.parquet", one, namespace=names_of_one),
        write(tmp_path / "b.parquet", other, namespace=names_of_other),
    ]
    _, columns = join(*paths)
    prompts, names = one + other, names_of_one + names_of_other
    for row, prompt in enumerate(prompts):
        shared = [
            common_prefix(prompt, prompts[e]) if names[e] == names[row] else 0 for e in range(row)
        ]
        assert columns.prefix_tokens[row] == max(shared, default=0)
        link = columns.prefix_seq[row]
        assert link < 0 or shared[link] == columns.prefix_tokens[row]
    alone = TraceFile.open(paths[1]).columns().prefix_tokens
    assert (columns.prefix_tokens[40:] >= alone).all()


def test_joining_is_linking_one_trace_of_all_requests(tmp_path: Path) -> None:
    (one, _), (other, _) = random_day(1, 30), random_day(2, 30)
    paths = [write(tmp_path / "a.parquet", one), write(tmp_path / "b.parquet", other)]
    whole = TraceFile.open(write(tmp_path / "c.parquet", one + other)).columns()
    _, columns = join(*paths)
    for made, wanted in zip(columns, whole, strict=True):
        assert made.tolist() == wanted.tolist()


def arrivals(rows: list[Row]) -> list[int]:
    return [(row["arrival"] - EPOCH) // timedelta(microseconds=1) for row in rows]


@pytest.mark.parametrize(
    ("warmup", "moved"),
    [
        ([0, 5, 9], [0, 5, 9]),
        ([0, 5, 10], [0, 5, 10]),
        ([0, 5, 11], [-1, 4, 10]),
        ([100, 105, 2 * DAY_US], [110 - 2 * DAY_US, 115 - 2 * DAY_US, 10]),
    ],
)
def test_a_warm_up_that_ends_after_the_trace_begins_is_moved_back_as_a_whole(
    tmp_path: Path, warmup: list[int], moved: list[int]
) -> None:
    paths = (
        write(tmp_path / "a.parquet", YESTERDAY, warmup),
        write(tmp_path / "b.parquet", TODAY, [10, 11, 12, 13]),
    )
    rows, _ = join(*paths)
    assert arrivals(rows) == [*moved, 10, 11, 12, 13]


def test_a_moved_warm_up_is_told_in_the_metadata(tmp_path: Path) -> None:
    paths = (
        write(tmp_path / "a.parquet", YESTERDAY, [0, 0, DAY_US], replace(METADATA, sources=("a",))),
        write(tmp_path / "b.parquet", TODAY, None, TraceMetadata(sources=("b",), time_note="n")),
    )
    with joined_trace(*paths) as both:
        assert both.trace.metadata == TraceMetadata(
            sources=("a", "b"), time_note="n; warm-up moved by -86400 s"
        )


def test_a_warm_up_that_would_begin_before_year_1_is_refused(tmp_path: Path) -> None:
    warmup = write(tmp_path / "a.parquet", YESTERDAY, [0, 0, 800_000 * DAY_US])
    message = refusal(warmup, write(tmp_path / "b.parquet", TODAY))
    assert message.startswith(f"warm-up {warmup} would begin before year 1")
    assert "it lasts 800,000 days: check the unit of its times" in message


def test_foreign_files_get_row_numbers_as_ids_and_no_times(tmp_path: Path) -> None:
    paths = (
        write_tokens(tmp_path / "a.parquet", YESTERDAY),
        write_tokens(tmp_path / "b.parquet", TODAY),
    )
    rows, _ = join(*paths)
    assert column(rows, "request_id") == ["0", "1", "2", "0", "1", "2", "3"]
    assert arrivals(rows) == [0] * 7
    assert column(rows, "prefix_tokens") == [0, 0, 0, 3, 4, 1, 0]


def test_a_file_without_namespaces_shares_with_requests_that_have_none(tmp_path: Path) -> None:
    warmup = write_tokens(tmp_path / "a.parquet", [(1, 2)])
    trace = write(tmp_path / "b.parquet", [(1, 2, 3), (1, 2, 3)], namespace=["x", None])
    rows, _ = join(warmup, trace)
    assert column(rows, "prefix_seq") == [None, None, 0]


def test_the_joined_trace_is_kept_beside_the_trace_and_used_again(
    days: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with joined_trace(*days) as both:
        kept = both.trace.path
    assert kept.parent == days[1].parent
    assert names_in(days[0].parent) == {"t.parquet"}
    assert names_in(days[1].parent) == {"t.parquet", kept.name}
    monkeypatch.setattr(joined, "_write", None)
    with joined_trace(*days) as both:
        assert both.trace.path == kept


def test_another_warm_up_makes_another_one_and_other_content_replaces_it(
    days: tuple[Path, Path],
) -> None:
    warmup, trace = days
    join(warmup, trace)
    first = names_in(trace.parent)
    write(warmup, TODAY)
    rows, _ = join(warmup, trace)
    assert column(rows, "prefix_tokens")[4:] == [4, 5, 1, 2]
    assert len(names_in(trace.parent)) == 3
    assert first < names_in(trace.parent)
    write(trace, TODAY[1:])
    join(warmup, trace)
    assert len(names_in(trace.parent)) == 2


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_where_the_folder_cannot_be_written_it_is_kept_elsewhere_for_the_time(
    days: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    @contextmanager
    def refused(target: Path) -> Iterator[Path]:
        if target.parent == days[1].parent:
            raise OSError(number, "not here", str(target))
        with whole_file(target) as temporary:
            yield temporary

    monkeypatch.setattr(joined, "whole_file", refused)
    with joined_trace(*days) as both:
        elsewhere = both.trace.path
        assert elsewhere.parent != days[1].parent
        assert both.trace.rows == 7
    assert not elsewhere.parent.exists()
    assert names_in(days[1].parent) == {"t.parquet"}


def test_a_trace_can_be_its_own_warm_up(days: tuple[Path, Path]) -> None:
    rows, _ = join(days[1], days[1])
    assert column(rows, "prefix_tokens") == [0, 4, 0, 0, 4, 5, 1, 2]
    assert arrivals(rows) == [10, 20, 20, 30, 30, 40, 40, 50]


def test_a_trace_whose_tokens_were_dropped_is_refused(days: tuple[Path, Path]) -> None:
    bare = days[0].with_name("bare.parquet")
    drop_tokens(TraceFile.open(days[0]), bare)
    assert refusal(bare, days[1]) == (
        f"{bare}: its token ids were dropped, so it can't be linked to another trace:"
        " tokenize its logs again, without --no-tokens"
    )
    assert refusal(days[1], bare).startswith(f"{bare}: its token ids were dropped")


def test_tokens_and_blocks_are_not_compared(days: tuple[Path, Path]) -> None:
    blocks = write(days[0].with_name("b"), YESTERDAY, None, replace(METADATA, block_tokens=16))
    assert refusal(blocks, days[1]) == (
        f"warm-up {blocks} and trace {days[1]} can't be linked: one has block_ids, the other"
        " prompt_token_ids: make both from logs of one kind"
    )


def test_tokens_of_two_tokenizers_are_not_compared(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / name, TODAY, None, TraceMetadata(tokenizer=name, tokenizer_sha256=key))
        for name, key in (("qwen3", "1f"), ("o200k", "2e"))
    ]
    assert "their tokens are of qwen3 and o200k (or of another version" in refusal(*paths)


def test_a_foreign_warm_up_takes_the_tokenizer_of_the_trace(tmp_path: Path) -> None:
    known = TraceMetadata(tokenizer="qwen3", tokenizer_sha256="1f")
    paths = [write(tmp_path / "a", TODAY), write(tmp_path / "b", TODAY, None, known)]
    for warmup, trace in (paths, paths[::-1]):
        with joined_trace(warmup, trace) as both:
            assert both.trace.metadata == known


def test_blocks_of_two_sizes_are_not_compared(tmp_path: Path) -> None:
    paths = [
        write(tmp_path / str(size), TODAY, None, replace(METADATA, block_tokens=size))
        for size in (16, 512)
    ]
    assert "their blocks are of 16 and 512 tokens" in refusal(*paths)


BLOCKS = replace(METADATA, block_tokens=16, partial_block="floor")


@pytest.mark.parametrize(
    "other",
    [
        replace(BLOCKS, sources=("other.jsonl",)),
        replace(BLOCKS, counts={"lines": 9, "requests": 9}),
        replace(BLOCKS, block_ids="global"),
        BLOCKS,
    ],
)
def test_blocks_of_which_nothing_says_that_they_are_the_same_are_not_compared(
    tmp_path: Path, other: TraceMetadata
) -> None:
    # The last case: 3 + 4 requests can't be parts of a trace of 5.
    paths = (
        write(tmp_path / "a", YESTERDAY, None, BLOCKS),
        write(tmp_path / "b", TODAY, None, other),
    )
    assert refusal(*paths) == (
        f"warm-up {paths[0]} and trace {paths[1]} can't be linked: nothing says that equal block"
        " ids of the two are equal blocks: they would have to be parts of one trace, or both be"
        " tokenized with --block-ids global"
    )


def test_blocks_that_are_the_same_in_all_files_are_compared(tmp_path: Path) -> None:
    known = replace(BLOCKS, block_ids="global")
    paths = (
        write(tmp_path / "a", [(1, 2), (7,)], None, replace(known, sources=("a.jsonl",))),
        write(tmp_path / "b", [(1, 2, 3), (1, 4), (9, 1)], None, known),
    )
    _, columns = join(*paths)
    assert columns.prefix_tokens.tolist() == [0, 0, 32, 16, 0]
    assert columns.prefix_seq[2:].tolist()[::2] == [0, -1]


def test_blocks_that_are_each_files_own_are_not_compared(tmp_path: Path) -> None:
    own = replace(BLOCKS, block_ids="file")
    paths = [write(tmp_path / name, [(1, 2)] * 3, None, own) for name in "ab"]
    assert "nothing says that equal block ids of the two are equal blocks" in refusal(*paths)


def test_block_logs_are_compared_if_tokenize_was_told_that_their_ids_are_global(
    tmp_path: Path,
) -> None:
    days = {"a": [(1024, [1, 2])], "b": [(1024, [1, 2]), (1000, [1, 3])]}
    paths = []
    for name, lines in days.items():
        log = write_log(
            tmp_path / f"{name}.jsonl",
            [{"timestamp": 0, "input_length": n, "hash_ids": ids} for n, ids in lines],
        )
        paths.append(tmp_path / f"{name}.parquet")
        tokenize_logs([log], paths[-1], TokenizeSettings(block_ids="global"))
    _, columns = join(*paths)
    assert columns.prefix_tokens.tolist() == [0, 1024, 512]


def test_parts_of_one_block_trace_are_joined(tmp_path: Path) -> None:
    prompts = [(10, 11, 12), (10, 11, 13), (10, 11, 12), (10, 11, 13, 14), (10,)]
    whole = write(tmp_path / "whole", prompts, [0, 1, 2, 3, 4], BLOCKS)
    table = pq.ParquetFile(whole).read()
    pq.write_table(table.slice(0, 2), tmp_path / "a")
    pq.write_table(table.slice(2), tmp_path / "b")
    rows, columns = join(tmp_path / "a", tmp_path / "b")
    assert columns.prefix_tokens.tolist() == [0, 32, 48, 48, 16]
    wanted = TraceFile.open(whole).columns()
    for made, expected in zip(columns, wanted, strict=True):
        assert made.tolist() == expected.tolist()
    assert arrivals(rows) == [0, 1, 2, 3, 4]


def test_a_block_trace_can_be_its_own_warm_up(tmp_path: Path) -> None:
    trace = write(tmp_path / "a", [(1, 2), (1, 3)], None, BLOCKS)
    assert join(trace, trace)[1].prefix_tokens.tolist() == [0, 16, 32, 32]


def test_requests_out_of_order_are_told_by_file_and_row(tmp_path: Path) -> None:
    times = pa.array([0, 2_000_000, 1_000_000]).cast(pa.timestamp("us"))
    wrong = write_tokens(tmp_path / "a.parquet", YESTERDAY, arrival=times)
    right = write_tokens(tmp_path / "b.parquet", TODAY)
    for pair in ((wrong, right), (right, wrong)):
        assert refusal(*pair) == (
            f"{wrong}: row 2 arrived 1 s before the row above it: sort the trace by arrival"
        )


def write_outputs(path: Path, prompts: Prompts, outputs: Prompts) -> Path:
    """Write a linked trace that knows its outputs."""
    offsets = np.cumsum([0, *map(len, outputs)], dtype=np.int64)
    ids = np.array([token for output in outputs for token in output], np.uint32)
    batch = requests(prompts, [0] * len(prompts))
    with TraceWriter(path, TraceMetadata(), outputs=True) as writer:
        writer.write(batch._replace(outputs=Lists(ids, offsets)))
    return path


def test_prompts_reach_into_outputs_of_the_warm_up_where_both_know_theirs(tmp_path: Path) -> None:
    warmup = write_outputs(tmp_path / "a", [(1, 2)], [(3, 4)])
    trace = write_outputs(tmp_path / "b", [(1, 2, 3, 4, 5), (1, 2)], [(6,), (3, 9)])
    rows, columns = join(warmup, trace)
    assert columns.has_outputs
    assert column(rows, "prefix_tokens") == [0, 4, 2]
    assert column(rows, "whole_tokens") == [4, 6, 4]
    assert column(rows, "whole_prefix_seq")[:2] == [0, 1]
    assert column(rows, "whole_prefix_tokens") == [2, 5, 3]
    assert "output_token_ids" not in rows[0]


@pytest.mark.parametrize("knows", [0, 1])
def test_outputs_that_only_one_of_two_knows_are_left_out(tmp_path: Path, knows: int) -> None:
    paths = [write(tmp_path / "a", [(1, 2, 3)]), write(tmp_path / "b", [(1, 2, 3)])]
    write_outputs(paths[knows], [(1, 2)], [(3, 4)])
    _, columns = join(*paths)
    assert not columns.has_outputs
    assert columns.prefix_tokens.tolist() == [0, 2]
