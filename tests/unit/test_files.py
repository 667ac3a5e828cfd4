"""Files and folders that appear whole or not at all, whatever happens on the way."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from command import environment
from samples import SMALL_FLEET, names_in, write_trace

from pipeline import files
from pipeline.decisions import DecisionWriter
from pipeline.errors import ReplayError
from pipeline.files import PARTIAL, whole_file, whole_folder
from pipeline.run import replay_trace

_BEGIN = """
import sys, time
from pathlib import Path
from pipeline.files import whole_file, whole_folder
whole, target = globals()[sys.argv[1]], Path(sys.argv[2])
with whole(target) as temporary:
    place = temporary if whole is whole_file else temporary / "part-0.parquet.partial"
    place.write_text("half of the new")
    print("begun", flush=True)
    time.sleep(60)
"""


def _put(folder: Path, version: int) -> None:
    for name in ("one", "two", "deep/three.parquet.partial"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(str(version))


@pytest.fixture(params=[True, False], ids=["swap", "no swap"])
def swapping(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the system have a call that swaps two names, or not."""
    if not request.param:
        monkeypatch.setattr(files, "_swap", lambda *_: False)


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "a.parquet"
    with whole_file(target) as temporary:
        temporary.write_text("new")
        assert not target.exists()
        assert list(tmp_path.glob("*.parquet")) == []
    assert target.read_text() == "new"
    assert names_in(tmp_path) == {"a.parquet"}


def test_a_file_replaces_the_old_one_only_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "a.parquet"
    target.write_text("old")
    with whole_file(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    target = tmp_path / "a.parquet"
    target.write_text("old")

    def fail() -> None:
        with whole_file(target) as temporary:
            temporary.write_text("half of the n")
            raise error

    with pytest.raises(error):
        fail()
    assert target.read_text() == "old"
    assert names_in(tmp_path) == {"a.parquet"}


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(ReplayError, match=r"nowhere: no such folder to write a\.parquet into"),
        whole_file(tmp_path / "nowhere" / "a.parquet"),
    ):
        pass


@pytest.mark.usefixtures("swapping")
def test_a_folder_takes_the_place_of_the_old_one_when_it_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "run"
    for version in range(3):
        with whole_folder(target) as temporary:
            _put(temporary, version)
            if version:
                assert (target / "one").read_text() == str(version - 1)
        assert names_in(target) == {"one", "two", "deep"}
        assert (target / "deep" / "three.parquet").read_text() == str(version)
        assert names_in(tmp_path) == {"run"}


@pytest.mark.usefixtures("swapping")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_failure_leaves_the_old_folder_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    target = tmp_path / "run"
    with whole_folder(target) as temporary:
        _put(temporary, 1)

    def fail() -> None:
        with whole_folder(target) as temporary:
            _put(temporary, 2)
            raise error

    with pytest.raises(error):
        fail()
    assert (target / "one").read_text() == "1"
    assert names_in(tmp_path) == {"run"}


def test_an_empty_folder_gives_its_place_away(tmp_path: Path) -> None:
    target = tmp_path / "run"
    target.mkdir()
    with whole_folder(target) as temporary:
        _put(temporary, 1)
    assert (target / "one").read_text() == "1"
    assert names_in(tmp_path) == {"run"}


@pytest.mark.parametrize("whole", ["whole_file", "whole_folder"])
def test_a_writer_that_is_killed_leaves_the_old_content_and_no_name_that_readers_look_for(
    tmp_path: Path, whole: str
) -> None:
    target = tmp_path / "day.parquet"
    content = target if whole == "whole_file" else target / "part-0.parquet"
    content.parent.mkdir(exist_ok=True)
    content.write_text("old")
    script = [sys.executable, "-c", _BEGIN, whole, str(target)]
    with subprocess.Popen(script, stdout=subprocess.PIPE, env=environment()) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"begun\n"
        writer.kill()
        writer.wait()
    assert content.read_text() == "old"
    assert [path.name for path in tmp_path.glob("*.parquet")] == ["day.parquet"]
    assert [path for path in tmp_path.rglob("*.parquet") if path.is_file()] == [content]


def test_a_reader_never_misses_a_folder_nor_meets_an_older_one_after_a_newer(
    tmp_path: Path,
) -> None:
    target = tmp_path / "run"
    with whole_folder(target) as temporary:
        _put(temporary, 0)
    done = threading.Event()
    problems: list[str] = []

    def read() -> None:
        newest = 0
        while not done.is_set():
            for name in ("one", "two", "deep/three.parquet"):
                try:
                    version = int((target / name).read_text())
                except (OSError, ValueError) as error:
                    problems.append(repr(error))
                    return
                if version < newest:
                    problems.append(f"{version} after {newest}")
                newest = version

    reader = threading.Thread(target=read)
    reader.start()
    for version in range(1, 200):
        with whole_folder(target) as temporary:
            _put(temporary, version)
    done.set()
    reader.join()
    assert problems == []


def test_no_file_of_a_run_is_seen_by_a_readers_glob_before_the_run_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = write_trace(tmp_path / "a.parquet", [[1, 2], [1, 2, 3]])
    runs = tmp_path / "runs"
    seen: list[str] = []
    write = DecisionWriter.write

    def look(self: DecisionWriter, *batch: object) -> None:
        write(self, *batch)  # type: ignore[arg-type]
        names = [name for _, _, found in os.walk(runs) for name in found]
        assert any(name.endswith(PARTIAL) for name in names)
        seen.extend(name for name in names if name.endswith((".parquet", ".json")))

    monkeypatch.setattr(DecisionWriter, "write", look)
    replay_trace(trace, runs / "a", SMALL_FLEET, batch_requests=1)
    assert seen == []
    assert names_in(runs) == {"a"}


def test_a_run_written_through_a_symbolic_link_leaves_nothing_else(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.parquet", [[1, 2]])
    runs = tmp_path / "runs"
    replay_trace(trace, runs / "monday", SMALL_FLEET)
    (runs / "latest").symlink_to("monday")
    replay_trace(trace, runs / "latest", SMALL_FLEET)
    assert (runs / "latest" / "run.json").is_file()
    assert names_in(runs) == {"monday", "latest"}
