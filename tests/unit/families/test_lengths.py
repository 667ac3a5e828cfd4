"""Traces of lengths alone, which can't be used."""

from pathlib import Path

import pytest

from pipeline.errors import LogError
from pipeline.logs.families.lengths import FAMILY
from pipeline.logs.reading import LogFile, read_log
from pipeline.logs.records import BadLine, LogRecord

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2026-05-02 21:00:00.1000000,812,40\n"
BURSTGPT = "Timestamp,Session ID,Model,Request tokens,Response tokens\n5,,m,472,18\n"
GUIDELLM = '{"timestamp": 0.0, "input_length": 512, "output_length": 64}\n'
TRACELAB = (
    '{"provider": "p", "session_id": "s", "round_index": 0, "input_tokens_total": 9,'
    ' "prefix_tokens": 4, "newly_append_tokens": 5, "output_tokens": 1}\n'
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("azure.csv", AZURE),
        ("burstgpt.csv", BURSTGPT),
        ("synthetic.jsonl", GUIDELLM),
        ("synthetic.jsonl", GUIDELLM.replace("64}", '64, "duration": 0.4}')),
        ("rounds.jsonl", TRACELAB),
    ],
)
def test_a_file_of_lengths_is_refused_with_a_reason(
    tmp_path: Path, name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(LogError, match=r"lengths: only counts of tokens, no content"):
        list(read_log(LogFile(path)))


def test_a_line_of_lengths_among_others_is_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "mixed.jsonl"
    blocks = '{"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]}\n'
    path.write_text(blocks * 2 + GUIDELLM)
    found = [one.what for one in read_log(LogFile(path))]
    assert isinstance(found[0], LogRecord)
    assert isinstance(found[2], BadLine)


def test_a_line_that_is_read_as_lengths_is_a_bad_line() -> None:
    with pytest.raises(BadLine, match="only counts of tokens"):
        list(FAMILY.reader()({}))


@pytest.mark.parametrize(
    "line",
    [
        {},
        "x",
        None,
        {"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1]},
        {"timestamp": 0, "input_length": 5, "output_length": 1, "session_id": "a"},
        {"input_length": 5},
        {"TIMESTAMP": 1, "ContextTokens": 2},
    ],
)
def test_other_lines_are_not_recognised(line: object) -> None:
    assert not FAMILY.recognises(line)
