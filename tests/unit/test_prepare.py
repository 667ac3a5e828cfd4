"""Traces made ready: links kept beside a file that has none, and traces without tokens."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from samples import (
    SMALL_FLEET,
    grouped_prompts,
    names_in,
    parquet_bytes,
    requests,
    token_lists,
    write_large_trace,
    write_tokens,
    write_trace,
)

from pipeline import prepare
from pipeline.errors import TraceError
from pipeline.files import whole_file
from pipeline.prepare import drop_tokens, ready_trace, write_links
from pipeline.run import replay_trace
from pipeline.tables import TOKEN_COLUMN, trace_schema
from pipeline.trace import TraceFile, TraceMetadata, TraceWriter, writer

PROMPTS = grouped_prompts(6, 50)


def _links(folder: Path) -> set[str]:
    return {name for name in names_in(folder) if ".links-" in name}


def _open(path: Path) -> Path:
    with ready_trace(path) as trace:
        assert trace.linked
        return trace.path


def test_a_trace_with_links_is_used_as_it_is(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.parquet", PROMPTS)
    assert _open(path) == path
    assert names_in(tmp_path) == {"a.parquet"}


def test_links_are_found_once_and_kept_beside_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tokens(tmp_path / "a.parquet", PROMPTS)
    links = _open(path)
    assert links.parent == tmp_path
    assert links.name.startswith("a.parquet.links-")
    assert TOKEN_COLUMN not in pq.read_schema(links).names
    monkeypatch.setattr(prepare, "write_links", None)
    assert _open(path) == links


def test_links_have_a_name_that_no_glob_for_parquet_files_finds(tmp_path: Path) -> None:
    _open(write_tokens(tmp_path / "a.parquet", PROMPTS))
    assert [p.name for p in tmp_path.glob("*.parquet")] == ["a.parquet"]


def test_links_are_found_anew_when_the_content_changes(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "a.parquet", PROMPTS)
    before = _open(path)
    write_tokens(path, PROMPTS[:10])
    after = _open(path)
    assert after != before
    assert TraceFile.open(after).rows == 10
    assert _links(tmp_path) == {after.name}


def test_links_of_another_file_are_left_alone(tmp_path: Path) -> None:
    first, second = (write_tokens(tmp_path / f"{n}.parquet", PROMPTS) for n in ("a", "b"))
    assert _links(tmp_path) == set()
    kept = {_open(first).name, _open(second).name}
    assert _links(tmp_path) == kept
    assert len(kept) == 2


@pytest.fixture
def unwritable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """Return a trace without links whose folder refuses every file."""
    path = write_tokens(tmp_path / "a.parquet", PROMPTS)

    @contextmanager
    def refused(target: Path) -> Iterator[Path]:
        if target.parent == tmp_path:
            raise OSError(request.param, "not here", str(target))
        with whole_file(target) as temporary:
            yield temporary

    monkeypatch.setattr(prepare, "whole_file", refused)
    return path


@pytest.mark.parametrize("unwritable", [errno.EACCES, errno.EPERM, errno.EROFS], indirect=True)
def test_where_the_folder_cannot_be_written_links_are_kept_elsewhere_for_the_time(
    unwritable: Path,
) -> None:
    with ready_trace(unwritable) as trace:
        elsewhere = trace.path
        assert len(trace.columns().prompt_tokens) == len(PROMPTS)
        assert elsewhere.parent != unwritable.parent
    assert not elsewhere.parent.exists()
    assert names_in(unwritable.parent) == {"a.parquet"}


@pytest.mark.parametrize("unwritable", [errno.EACCES], indirect=True)
def test_a_run_from_an_unwritable_folder_names_a_trace_that_is_still_there(
    unwritable: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    run = replay_trace(unwritable, tmp_path_factory.mktemp("runs") / "run", SMALL_FLEET)
    assert Path(run["trace"]["path"]).exists()


def test_a_trace_without_tokens_has_all_other_columns_and_the_same_metadata(tmp_path: Path) -> None:
    path, bare = tmp_path / "a.parquet", tmp_path / "bare.parquet"
    metadata = TraceMetadata(tokenizer="v", sources=("a.jsonl",))
    with TraceWriter(path, metadata) as trace:
        trace.write(requests(PROMPTS, range(len(PROMPTS)), tenant=["t"] * len(PROMPTS)))
    drop_tokens(TraceFile.open(path), bare)
    assert TraceFile.open(bare).metadata == metadata
    assert pq.read_schema(bare).remove_metadata() == trace_schema(None)
    with pq.ParquetFile(path) as file, pq.ParquetFile(bare) as without:
        assert file.read().drop_columns([TOKEN_COLUMN]) == without.read()


def _dropped(path: Path, target: Path) -> None:
    drop_tokens(TraceFile.open(path), target)


def _linked_anew(path: Path, target: Path) -> None:
    write_links(TraceFile.open(path), target)


def _linked_without_tokens(path: Path, target: Path) -> None:
    write_links(TraceFile.open(path), target, keep_ids=False)


MAKERS: list[Callable[[Path, Path], None]] = [_dropped, _linked_anew, _linked_without_tokens]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("links", [True, False])
def test_a_trace_made_of_another_replays_to_the_same_bytes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path, Path], None],
    links: bool,
) -> None:
    monkeypatch.setattr(writer, "ROW_GROUP_TOKENS", 200)
    names = [str(i) for i in range(len(PROMPTS))]
    path, made = tmp_path / "a.parquet", tmp_path / "made.parquet"
    if links:
        write_trace(path, PROMPTS, request_id=names)
        assert pq.ParquetFile(path).metadata.num_row_groups > 3
    else:
        write_tokens(path, PROMPTS)
    make(path, made)
    for trace, run in ((path, "one"), (made, "two")):
        replay_trace(trace, tmp_path / run, SMALL_FLEET)
    assert parquet_bytes(tmp_path / "one") == parquet_bytes(tmp_path / "two")


def test_runs_with_and_without_tokens_have_the_same_fingerprint(tmp_path: Path) -> None:
    path, bare = write_trace(tmp_path / "a.parquet", PROMPTS), tmp_path / "bare.parquet"
    drop_tokens(TraceFile.open(path), bare)
    other = write_trace(tmp_path / "other.parquet", PROMPTS[::-1])
    found = [
        replay_trace(trace, tmp_path / "run", SMALL_FLEET)["trace"]["fingerprint"]
        for trace in (path, bare, other)
    ]
    assert found[0] == found[1] != found[2]


def test_linking_keeps_the_tokens(tmp_path: Path) -> None:
    made = tmp_path / "made.parquet"
    _linked_anew(write_tokens(tmp_path / "a.parquet", PROMPTS), made)
    assert [ids.tolist() for ids in token_lists(made)] == PROMPTS


def test_links_are_made_in_place_without_losing_the_tokens(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "a.parquet", PROMPTS)
    _linked_anew(path, path)
    assert TraceFile.open(path).linked
    assert [ids.tolist() for ids in token_lists(path)] == PROMPTS
    assert names_in(tmp_path) == {"a.parquet"}


def test_links_cannot_be_made_anew_without_tokens(tmp_path: Path) -> None:
    path = write_large_trace(tmp_path / "a.parquet", 10)
    with pytest.raises(TraceError, match=r"a\.parquet: it has no token ids"):
        _linked_anew(path, tmp_path / "made.parquet")
    assert names_in(tmp_path) == {"a.parquet"}


def test_a_trace_with_broken_links_is_not_passed_on_without_tokens(tmp_path: Path) -> None:
    whole = pq.ParquetFile(write_trace(tmp_path / "whole.parquet", PROMPTS)).read()
    broken = tmp_path / "broken.parquet"
    pq.write_table(whole.slice(1), broken)
    with pytest.raises(TraceError, match="rows were filtered"):
        _dropped(broken, tmp_path / "made.parquet")
    assert not (tmp_path / "made.parquet").exists()
