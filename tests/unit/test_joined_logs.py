"""Several logs into one trace: what can stand in one order, and what can't."""

import os
import threading
from pathlib import Path

import pytest

from pipeline.errors import LogError
from pipeline.tokenize import TokenizeSettings, tokenize_logs
from pipeline.trace import TraceFile


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_two_block_traces_are_not_joined_because_each_numbers_its_own_blocks(
    tmp_path: Path,
) -> None:
    line = '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}'
    logs = [write(tmp_path / name, line) for name in ("a.jsonl", "b.jsonl")]
    with pytest.raises(LogError, match=r"b\.jsonl: every mooncake log numbers its own blocks"):
        tokenize_logs(logs, tmp_path / "t.parquet")
    assert {p.name for p in tmp_path.iterdir()} == {"a.jsonl", "b.jsonl"}


@pytest.mark.parametrize(("block_ids", "shared"), [("global", [0, 600]), ("file", [0, 0])])
def test_the_user_says_whether_equal_ids_of_two_logs_are_equal_blocks(
    tmp_path: Path, block_ids: str, shared: list[int]
) -> None:
    line = '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [0, 1]}'
    logs = [write(tmp_path / name, line) for name in ("a.jsonl", "b.jsonl")]
    tokenize_logs(logs, tmp_path / "t.parquet", TokenizeSettings(block_ids=block_ids))
    assert TraceFile.open(tmp_path / "t.parquet").columns().prefix_tokens.tolist() == shared


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ('"timestamp": 1772359200', '"id": 1', "it has no times, .* have dates"),
        ('"timestamp": 5', '"timestamp": 1772359200', "it has dates, .* have relative times"),
    ],
)
def test_logs_whose_times_count_from_different_moments_have_no_order(
    tmp_path: Path, first: str, second: str, message: str
) -> None:
    logs = [
        write(tmp_path / name, f'{{{time}, "prompt": [1, 2]}}')
        for name, time in (("a.jsonl", first), ("b.jsonl", second))
    ]
    with pytest.raises(LogError, match=message):
        tokenize_logs(logs, tmp_path / "t.parquet")


def test_logs_of_one_kind_are_put_into_one_order(tmp_path: Path) -> None:
    late = write(tmp_path / "late.jsonl", '{"timestamp": 1772359202, "prompt": [1, 2, 3]}')
    early = write(tmp_path / "early.jsonl", '{"timestamp": 1772359201.5, "prompt": [1, 2]}')
    tokenize_logs([late, early], tmp_path / "t.parquet")
    columns = TraceFile.open(tmp_path / "t.parquet").columns()
    assert columns.prompt_tokens.tolist() == [2, 3]
    assert columns.prefix_tokens.tolist() == [0, 2]


def test_a_log_may_come_through_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    feeder = threading.Thread(target=pipe.write_text, args=('{"prompt": [7, 8, 9]}\n',))
    feeder.start()
    summary = tokenize_logs([pipe], tmp_path / "t.parquet")
    feeder.join()
    assert summary.prompt_tokens == 3
