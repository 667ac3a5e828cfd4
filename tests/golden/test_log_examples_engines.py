"""Examples of vLLM's and SGLang's logs, read by detection alone, to the last field."""

from pathlib import Path

import pytest

from pipeline.errors import LogError
from pipeline.logs.reading import LogFile, read_log
from pipeline.logs.records import BadLine, Chat, LogRecord, Skip

SERVER_LINE = Skip("a line of the server's that tells of no request")
HI = [151644, 872, 198, 13048, 151645, 198, 151644, 77091, 198]
NOTHING = {"namespace": None, "tenant": None, "session_id": None}
EXAMPLES: dict[str, tuple[str, list[tuple[int, LogRecord | Skip]]]] = {
    "vllm_0.10_info.log": (
        "vllm",
        [
            (
                1,
                LogRecord(
                    "<|im_start|>system\nBe brief.<|im_end|>\n"
                    '<|im_start|>user\nIt\'s "late"\\ok?<|im_end|>\n'
                    "<|im_start|>assistant\n",
                    time="2000-03-01 10:00:00",
                    request_id="chatcmpl-5f2e9c0a",
                    carried={"namespace": None},
                ),
            ),
            (2, SERVER_LINE),
            (3, SERVER_LINE),
            (
                4,
                LogRecord(
                    [9906, 1917],
                    time="2000-03-01 10:00:02",
                    request_id="cmpl-91ab-0",
                    carried={"namespace": "fr"},
                ),
            ),
        ],
    ),
    "vllm_0.11.1_debug.log": (
        "vllm",
        [
            (
                1,
                LogRecord(
                    HI,
                    time="2000-03-01 10:00:00",
                    request_id="chatcmpl-5f2e9c0a",
                    carried={"namespace": None},
                ),
            ),
            (
                2,
                LogRecord(
                    None,
                    time="2000-03-01 10:00:00",
                    request_id="chatcmpl-5f2e9c0a",
                    carried={"namespace": None},
                    again=True,
                ),
            ),
            (
                3,
                LogRecord(None, request_id="chatcmpl-5f2e9c0a", answer="Hello!", again=True),
            ),
        ],
    ),
    "sglang_requests_json.log": (
        "sglang-json",
        [
            (
                1,
                LogRecord(
                    Chat([{"role": "user", "content": "Hi"}]),
                    time="2026-03-01T10:00:00.104233",
                    carried={
                        "namespace": "qwen3-8b",
                        "model": "qwen3-8b",
                        "tenant": "tenant-4",
                        "session_id": None,
                    },
                    fallback=True,
                ),
            ),
            (
                2,
                LogRecord(
                    HI, time="2026-03-01T10:00:00.105871", request_id="5d0c", carried=NOTHING
                ),
            ),
            (
                3,
                LogRecord(
                    HI,
                    time="2026-03-01T10:00:00.108150",
                    request_id="5d0c",
                    carried=NOTHING,
                    output_tokens=2,
                    answer="Hello!",
                    output_ids=[9707, 0],
                    observed_cached_tokens=0,
                    again=True,
                ),
            ),
            (
                4,
                LogRecord(
                    [1, 2, 3],
                    time="2026-03-01T10:00:03.000001",
                    request_id="77aa",
                    carried=NOTHING,
                    cut=True,
                ),
            ),
        ],
    ),
    "sglang_requests_text.log": (
        "sglang-text",
        [
            (1, LogRecord(HI, time="2026-03-01 10:00:00", request_id="5d0c", carried=NOTHING)),
            (
                2,
                LogRecord(
                    None,
                    time="2026-03-01T09:59:59.818000",
                    request_id="5d0c",
                    carried=NOTHING,
                    output_tokens=2,
                    answer="Hello!",
                    output_ids=[9707, 0],
                    observed_cached_tokens=0,
                    again=True,
                ),
            ),
        ],
    ),
    "sglang-request-metrics-20260301_10.log": (
        "sglang-metrics",
        [
            (
                1,
                LogRecord(
                    [151644, 872, 198, 13048],
                    request_id="5d0c",
                    carried=NOTHING,
                    output_tokens=2,
                    observed_cached_tokens=0,
                ),
            ),
        ],
    ),
    "sglang_dump.pkl": (
        "sglang-dump",
        [
            (
                1,
                LogRecord(
                    [151644, 872, 198, 13048],
                    time=1772359200.104,
                    request_id="5d0c",
                    carried=NOTHING,
                    output_tokens=2,
                    answer="Hello!",
                    output_ids=[9707, 0],
                    observed_cached_tokens=0,
                ),
            ),
        ],
    ),
}
REPAIRS = {"sglang_requests_json.log": {"a log prefix before the object": 4}}


@pytest.mark.parametrize("file", EXAMPLES)
def test_an_example_gives_exactly_these_records(shared: Path, file: str) -> None:
    name, expected = EXAMPLES[file]
    log = LogFile(shared / "log_examples" / file)
    assert [(found.line, found.what) for found in read_log(log)] == expected
    assert log.family is not None
    assert log.family.name == name
    assert set(log.families) == {name}
    assert log.lines == len(expected)
    assert log.repairs == REPAIRS.get(file, {})


@pytest.mark.parametrize("file", EXAMPLES)
def test_a_format_that_is_given_reads_what_detection_reads(shared: Path, file: str) -> None:
    name, expected = EXAMPLES[file]
    log = LogFile(shared / "log_examples" / file)
    forced = [(found.line, found.what) for found in read_log(log, log_format=name)]
    assert forced == expected


def test_no_example_but_these_is_taken_for_one_of_an_engine(shared: Path) -> None:
    names = {name for name, _ in EXAMPLES.values()}
    for path in sorted((shared / "log_examples").glob("*")):
        if path.is_file() and path.name not in EXAMPLES:
            assert names.isdisjoint(_families(path)), path.name


def _families(path: Path) -> set[str]:
    """Return the families that read lines of a file, none where one of them refuses it."""
    log = LogFile(path)
    try:
        found = list(read_log(log))
    except LogError:
        return set()
    assert all(isinstance(one.what, LogRecord | Skip | BadLine) for one in found)
    return set(log.families)
