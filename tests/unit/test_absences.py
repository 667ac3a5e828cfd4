"""When absences begin and end on a trace: by request, by time, on both clocks, with a warm-up."""

from dataclasses import replace
from pathlib import Path

import pytest
from samples import column, decisions, write_trace

from pipeline.config import Absence, ClockConfig, FleetConfig, ReplayConfig, SubsetConfig
from pipeline.errors import UsageError
from pipeline.report import open_run, select
from pipeline.run import replay_trace
from pipeline.run_folder import read_run

pytestmark = pytest.mark.usefixtures("compiled")

TURNS = ReplayConfig(FleetConfig(2, 100), policies=("round_robin",))
TEN = [(n, n, n) for n in range(1, 11)]


def served_by(folder: Path, config: ReplayConfig, *absences: Absence) -> list[int | None]:
    """Return who served ten requests, that came a tenth of a second apart."""
    trace = folder / "t.parquet"
    if not trace.exists():
        write_trace(trace, TEN, [100_000 * n for n in range(10)])
    fleet = replace(config.fleet, absences=absences)
    replay_trace(trace, folder / "run", replace(config, fleet=fleet))
    return column(decisions(folder / "run", "round_robin"), "replica_id")


@pytest.mark.parametrize(
    "clock", [ClockConfig("timestamps"), ClockConfig("arrivals"), ClockConfig("arrivals", 0.0)]
)
def test_an_absence_by_request_begins_and_ends_before_just_these(
    tmp_path: Path, clock: ClockConfig
) -> None:
    away = Absence((0,), 2, 4, cache="warm")
    told = served_by(tmp_path, replace(TURNS, clock=clock), away)
    assert told == [0, 1, 1, 1, 0, 1, 0, 1, 0, 1]


def test_requests_of_one_moment_are_told_apart_by_their_number(tmp_path: Path) -> None:
    write_trace(tmp_path / "t.parquet", TEN, arrival_us=[0] * 10)
    on_time = replace(TURNS, clock=ClockConfig("timestamps"))
    told = served_by(tmp_path, on_time, Absence((0,), 2, 4, cache="warm"))
    assert told == [0, 1, 1, 1, 0, 1, 0, 1, 0, 1]
    # All at one moment: what replica 0 had begun is lost as it restarts.
    told = served_by(tmp_path, on_time, Absence((0,), 2, 4))
    assert told == [None, 1, 1, 1, 0, 1, 0, 1, 0, 1]


def test_a_request_that_is_left_out_moves_no_absence(tmp_path: Path) -> None:
    some = replace(TURNS, clock=ClockConfig("arrivals"), subset=SubsetConfig(where="seq <> 2"))
    told = served_by(tmp_path, some, Absence((0,), 2, 4))
    assert told == [0, 1, 1, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("clock", ["timestamps", "arrivals"])
def test_a_time_of_day_is_of_the_first_day_and_an_end_is_the_next_one_after_its_beginning(
    tmp_path: Path, clock: str
) -> None:
    absence = Absence((0,), "00:00:00.2", "00:00:00.4")
    told = served_by(tmp_path, replace(TURNS, clock=ClockConfig(clock)), absence)
    assert told == [0, 1, 1, 1, 0, 1, 0, 1, 0, 1]
    overnight = Absence((0,), "00:00:00.8", "00:00:00.1")
    assert served_by(tmp_path, replace(TURNS, clock=ClockConfig(clock)), overnight)[8:] == [1, 1]


def test_an_absence_that_begins_before_the_trace_holds_from_its_first_request_on(
    tmp_path: Path,
) -> None:
    absence = Absence((0,), "1969-12-31 23:59", "+0.3s")
    assert served_by(tmp_path, TURNS, absence) == [1, 1, 1, 1, 0, 1, 0, 1, 0, 1]


def test_absences_that_overlap_end_with_the_last_of_them(tmp_path: Path) -> None:
    told = served_by(tmp_path, TURNS, Absence((0,), 1, 4), Absence((0,), 2, 6, kind="crash"))
    assert told == [0, 1, 1, 1, 1, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("start", ["2030-01-01", "+1h"])
def test_an_absence_that_no_request_meets_is_counted(tmp_path: Path, start: str) -> None:
    told = served_by(tmp_path, TURNS, Absence((0,), start), Absence((1,), 5, 6))
    assert told == [0, 1, 0, 1, 0, 0, 0, 1, 0, 1]
    run = read_run(tmp_path / "run")
    assert run is not None
    assert run["replayed"]["unmet_absences"] == 1


def test_an_absence_that_ends_before_it_begins_names_both_moments(tmp_path: Path) -> None:
    message = (
        r"an absence of replicas 0, 1 ends at '\+0.2s' \(1970-01-01 00:00:00.200000\), before it"
        r" begins at request 5"
    )
    with pytest.raises(UsageError, match=message):
        served_by(tmp_path, TURNS, Absence((0, 1), 5, "+0.2s"))


def test_a_request_that_the_trace_does_not_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="from request 10 on, or until then, but the trace has"):
        served_by(tmp_path, TURNS, Absence((0,), 10))


def test_a_crash_in_the_warm_up_leaves_nothing_in_the_windows_after_it(tmp_path: Path) -> None:
    warm = replace(TURNS, subset=SubsetConfig(warmup_fraction=0.5))
    served_by(tmp_path, warm, Absence((0,), 3, kind="crash"))
    rows = select(open_run(tmp_path / "run"), "from replicas where replica_id = 0").to_pylist()
    assert set(column(rows, "resident_tokens")) == {0}
