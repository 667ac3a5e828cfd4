"""Every kind of log through the command, recognised by its marks alone."""

from pathlib import Path

import pytest
from command import replay_here

from pipeline.logs.families import FAMILIES
from pipeline.trace import TraceFile

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = [family.name for family in FAMILIES]


def test_every_family_has_one_example_and_every_example_a_family() -> None:
    assert sorted(path.name.split(".")[0] for path in EXAMPLES.iterdir()) == sorted(NAMES)


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("family", [f for f in FAMILIES if not f.refused], ids=lambda f: f.name)
def test_an_example_becomes_a_trace(tmp_path: Path, family: object) -> None:
    name = getattr(family, "name", "")
    [log] = EXAMPLES.glob(f"{name}.*")
    trace = tmp_path / "t.parquet"
    options = ("--session-starts", "together", "--max-rejects", "70%", "--no-fast")
    done = replay_here("tokenize", log, "-o", trace, *options)
    assert done.returncode == 0, done.stderr
    assert f" {name}\n" in done.stderr or f" {name}," in done.stderr
    assert TraceFile.open(trace).rows >= 1


def test_lengths_are_refused_with_the_reason(tmp_path: Path) -> None:
    [log] = EXAMPLES.glob("lengths.*")
    done = replay_here("tokenize", log, "-o", tmp_path / "t.parquet")
    assert done.returncode == 1
    assert "lengths: only counts of tokens, no content: there is no prefix" in done.stderr


def test_formats_lists_them_all(tmp_path: Path) -> None:
    done = replay_here("formats", cwd=tmp_path)
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == sorted(NAMES)
    assert replay_here("tokenize", "x", "-o", "y", "--log-format", "vlm").returncode != 0


def test_an_unknown_format_is_refused_with_the_nearest(tmp_path: Path) -> None:
    [log] = EXAMPLES.glob("vllm.*")
    done = replay_here("tokenize", log, "-o", tmp_path / "t.parquet", "--log-format", "vlm")
    assert (done.returncode, done.stdout) == (2, "")
    assert "unknown log format 'vlm' (did you mean vllm?)" in done.stderr


@pytest.mark.usefixtures("compiled")
def test_a_format_can_be_forced_and_fields_renamed(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text('{"text": "Hello there", "when": 1772359200}\n', encoding="utf-8")
    trace = tmp_path / "t.parquet"
    done = replay_here("tokenize", log, "-o", trace)
    assert done.returncode == 1
    columns = ("--columns", "prompt=text,timestamp=when")
    done = replay_here("tokenize", log, "-o", trace, *columns, "--log-format", "openai")
    assert done.returncode == 0, done.stderr
    assert TraceFile.open(trace).columns().arrival_us.tolist() == [1_772_359_200_000_000]
    done = replay_here("tokenize", log, "-o", trace, "--columns", "prompt")
    assert (done.returncode, "write OURS=THEIRS" in done.stderr) == (2, True)


@pytest.mark.usefixtures("compiled")
def test_logs_come_by_pattern_and_from_standard_input(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"prompt": "{name}"}}\n', encoding="utf-8")
    done = replay_here("tokenize", "*.jsonl", "-o", "t.parquet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert TraceFile.open(tmp_path / "t.parquet").metadata.sources == ("a.jsonl", "b.jsonl")
    done = replay_here("tokenize", "*.log", "-o", "t.parquet", cwd=tmp_path)
    assert (done.returncode, "*.log: no file matches" in done.stderr) == (2, True)
    (tmp_path / "a.jsonl.gz").write_bytes(b"")
    done = replay_here("tokenize", "a.jsonl", "a.jsonl.gz", "-o", "t.parquet", cwd=tmp_path)
    assert (done.returncode, "is the same log as a.jsonl" in done.stderr) == (1, True)
