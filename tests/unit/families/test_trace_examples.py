"""The examples of block traces and data sets: each is its family's, and read to its end."""

from pathlib import Path

import pytest

from pipeline.logs.families import FAMILIES
from pipeline.logs.reading import LogFile, read_log
from pipeline.logs.records import Blocks, Chat, LogRecord

EXAMPLES = Path(__file__).parents[2] / "examples"
TOLD = "You are the night assistant of a small observatory."


@pytest.mark.parametrize(
    ("file", "times", "sessions"),
    [
        ("mooncake.jsonl", [0, 450.5, 2450.5], [None, "dome-1", "dome-1"]),
        ("bailian.jsonl", [0.0, 3.5, 41.25], ["7001", "7002", "7001"]),
        ("coding-agent.json", [0.0, 12.5, 15.0, 20.0], ["session-telescope"] * 4),
        ("dynamo.jsonl", [1780000000000, 1780000007500], [None, "night-3"]),
        ("sharegpt.json", [None] * 3, ["sky_0", "sky_0", "sky_1"]),
        ("lmsys.jsonl", [None] * 2, ["5eed01"] * 2),
        (
            "wildchat.jsonl",
            ["2026-05-02T21:04:12+00:00", "2026-05-02T21:04:40+00:00"],
            ["77aa"] * 2,
        ),
        ("lmcache.jsonl", [1780000000250000, 1780000002750000], ["run-a"] * 2),
        ("aibrix.jsonl", [0, 0, 125], [None] * 3),
        ("tau-bench.json", [None] * 3, ["4-0", "4-0", "4-1"]),
        ("swe-agent.json", [None] * 2, ["focus-motor-12"] * 2),
        ("aiperf.json", [None] * 3, ["conv-0", "conv-0", "conv-1"]),
        ("table.csv", ["2026-05-02T21:00:00Z", "2026-05-02T21:00:07Z"], ["dome-1", None]),
    ],
)
def test_an_example_is_read_by_the_family_of_its_name(
    file: str, times: list[object], sessions: list[str | None]
) -> None:
    log = LogFile(EXAMPLES / file)
    records = [found.what for found in read_log(log) if isinstance(found.what, LogRecord)]
    assert log.family is not None
    assert log.family.name == Path(file).stem
    assert set(log.families) == {log.family.name}
    assert [record.time for record in records] == times
    assert [record.carried["session_id"] for record in records] == sessions


@pytest.mark.parametrize(
    ("file", "prompt"),
    [
        ("mooncake.jsonl", Blocks([0, 1, 3, 4, 5], 2100, 512)),
        ("bailian.jsonl", Blocks([31, 32, 33, 35, 36, 37], 90, 16)),
        ("dynamo.jsonl", Blocks([18110000000000000001, 7, 12], 96, 32)),
        ("sharegpt.json", Chat([{"role": "user", "content": "Is the dome open?"}])),
        ("aibrix.jsonl", f"{TOLD} Is the dome open?"),
        ("aiperf.json", "The brightest star is"),
        (
            "table.csv",
            Chat(
                [
                    {"role": "system", "content": TOLD},
                    {"role": "user", "content": "Is the dome open?"},
                ]
            ),
        ),
    ],
)
def test_the_last_prompt_of_an_example_is_whole(file: str, prompt: object) -> None:
    found = [one.what for one in read_log(LogFile(EXAMPLES / file))]
    assert isinstance(found[-1], LogRecord)
    assert found[-1].prompt == prompt


def test_an_example_of_lengths_is_refused() -> None:
    with pytest.raises(Exception, match=r"lengths\.csv: lengths: only counts of tokens"):
        list(read_log(LogFile(EXAMPLES / "lengths.csv")))


def test_every_family_can_be_told_by_what_it_says_of_itself() -> None:
    names = [family.name for family in FAMILIES]
    assert len(set(names)) == len(names)
    assert all(family.mark and family.written_by for family in FAMILIES)
