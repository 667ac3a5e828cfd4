"""What belongs to the user is never replaced, and what can't be right is refused."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from samples import SMALL_FLEET, write_trace

from pipeline.errors import RunError, TraceError
from pipeline.link_tree import find_slot
from pipeline.prepare import drop_tokens, ready_trace, write_links
from pipeline.run import replay_trace
from pipeline.trace import TraceFile


def test_a_run_folder_that_holds_something_of_the_users_is_left_as_it_is(tmp_path: Path) -> None:
    trace = write_trace(tmp_path / "a.parquet", [[1, 2], [1, 2, 3]])
    run = tmp_path / "run"
    replay_trace(trace, run, SMALL_FLEET)
    (run / "notes.md").write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match=r"run: holds notes\.md, which is not of a run"):
        replay_trace(trace, run, SMALL_FLEET)
    assert (run / "notes.md").read_text(encoding="utf-8") == "mine"


def test_a_trace_inside_the_run_folder_is_not_replaced_by_the_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    replay_trace(write_trace(tmp_path / "a.parquet", [[1, 2]]), run, SMALL_FLEET)
    inside = write_trace(run / "trace.parquet", [[1, 2]])
    with pytest.raises(RunError, match=r"holds trace\.parquet"):
        replay_trace(inside, run, SMALL_FLEET)
    assert inside.exists()


def test_a_run_of_other_policies_is_replaced(tmp_path: Path) -> None:
    trace, run = write_trace(tmp_path / "a.parquet", [[1, 2]]), tmp_path / "run"
    replay_trace(trace, run, SMALL_FLEET)
    replay_trace(trace, run, replace(SMALL_FLEET, policies=("cache_aware",)))
    assert [p.name for p in (run / "decisions").iterdir()] == ["policy=cache_aware"]


def test_tokens_are_not_dropped_from_the_only_file_that_has_them(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.parquet", [[1, 2], [1, 2, 3]])
    before = path.read_bytes()
    with pytest.raises(TraceError, match="is the trace itself"):
        drop_tokens(TraceFile.open(path), path)
    assert path.read_bytes() == before


def test_a_trace_may_be_linked_anew_in_place(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "a.parquet", [[1, 2], [1, 2, 3]])
    write_links(TraceFile.open(path), path)
    assert TraceFile.open(path).columns().prefix_tokens.tolist() == [0, 2]
    assert TraceFile.open(path).ids is not None


def test_only_links_that_we_wrote_are_cleaned_up(tmp_path: Path) -> None:
    path = tmp_path / "f[1].parquet"
    pl.DataFrame({"prompt_token_ids": [[1, 2]]}).write_parquet(path)
    notes = tmp_path / "f[1].parquet.links-notes"
    notes.write_text("mine", encoding="utf-8")
    old = tmp_path / f"{path.name}.links-{'0' * 16}"
    old.write_bytes(b"")
    with ready_trace(path):
        pass
    assert notes.exists()
    assert not old.exists()


def test_nodes_that_go_on_with_the_same_symbol_have_places_of_their_own_in_the_table() -> None:
    table = np.full(1 << 15, np.iinfo(np.uint64).max, np.uint64)
    keys = (np.arange(10_000, dtype=np.uint64) << np.uint64(32)) | np.uint64(7)
    assert len({int(find_slot(table, key)) for key in keys}) > 8_000
