"""Times of a log file: units, dates, and times that are refused rather than guessed."""

from datetime import UTC, datetime

import numpy as np
import pytest

from pipeline.encode.times import (
    DATES,
    NO_TIME,
    NO_TIMES,
    RELATIVE,
    FileTimes,
    Time,
    TimeColumn,
    check_unit,
    find_zone,
    moment_of,
)
from pipeline.errors import UsageError

MOMENT_S = 1_772_359_200  # 2026-03-01T10:00:00Z
MOMENT_US = MOMENT_S * 10**6
TWO_CLOCKS: list[Time] = [1_735_689_602, 1_735_689_601_000, 1_735_689_600_000_000]


def read_times(
    times: list[Time], unit: str | None = None, relative: str = "s", zone: str | None = None
) -> FileTimes:
    column = TimeColumn(find_zone(zone))
    for time in times:
        column.append(time)
    return column.resolve(np.ones(len(times), np.bool_), unit, relative)


def _arrivals(
    times: list[Time], unit: str | None = None, relative: str = "s", zone: str | None = None
) -> list[int | None]:
    found = read_times(times, unit, relative, zone)
    none = [request for request, us in enumerate(found.arrival_us.tolist()) if us == NO_TIME]
    assert none == sorted(found.reasons)
    return [None if us == NO_TIME else us for us in found.arrival_us.tolist()]


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        ([MOMENT_S, MOMENT_S + 1], "s"),
        ([MOMENT_S * 10**3, MOMENT_S * 10**3 + 10**3], "ms"),
        ([MOMENT_S * 10**6, MOMENT_S * 10**6 + 10**6], "us"),
        ([MOMENT_S * 10**9, MOMENT_S * 10**9 + 10**9], "ns"),
    ],
)
def test_the_unit_of_a_date_shows_in_its_size(times: list[Time], unit: str) -> None:
    assert _arrivals(times) == _arrivals(times, unit) == [MOMENT_US, MOMENT_US + 10**6]
    assert read_times(times).note == f"times in {unit}, by their size"
    assert read_times(times, unit).note == f"times in {unit}, as told"
    assert read_times(times).kind == DATES


def test_small_numbers_are_seconds_since_the_start() -> None:
    assert _arrivals([0, 0.25, 3600]) == [0, 250_000, 3_600_000_000]
    found = read_times([0, 0.25, 3600])
    assert (found.note, found.kind) == ("times in s, from the log's start", RELATIVE)


def test_relative_times_are_in_the_unit_of_their_format() -> None:
    assert _arrivals([0, 3000.5], relative="ms") == [0, 3_000_500]
    assert _arrivals([MOMENT_S, MOMENT_S], relative="ms") == [MOMENT_US, MOMENT_US]


def test_numbers_written_as_text_are_numbers() -> None:
    assert _arrivals(["1772359200.251", "1772359200"]) == [MOMENT_US + 251_000, MOMENT_US]
    assert _arrivals(["1772359200250000000"]) == [MOMENT_US + 250_000]


def test_a_declared_unit_is_taken_for_small_numbers_too() -> None:
    assert _arrivals([0, 3000], "ms") == [0, 3_000_000]
    assert _arrivals([1500, 1999], "ns") == [1, 1]


def test_fractions_keep_their_microseconds() -> None:
    assert _arrivals([MOMENT_S + 0.25, 1772359200.123456]) == [
        MOMENT_US + 250_000,
        MOMENT_US + 123_456,
    ]
    assert _arrivals([1.0005], "ms") == [1000]


def test_with_seconds_declared_milliseconds_are_beyond_year_9999() -> None:
    assert _arrivals(TWO_CLOCKS, "s") == [1_735_689_602_000_000, None, None]
    found = read_times(TWO_CLOCKS, "s")
    assert all("after year 9999" in reason for reason in found.reasons.values())


def test_two_clocks_in_one_file_are_refused_rather_than_guessed() -> None:
    assert _arrivals(TWO_CLOCKS) == [None, 1_735_689_601_000_000, None]
    found = read_times(TWO_CLOCKS)
    assert "looks like s, most of the file's like ms" in found.reasons[0]
    assert "looks like us, most of the file's like ms" in found.reasons[2]


def test_a_relative_time_among_dates_is_refused() -> None:
    assert _arrivals([MOMENT_S, 0, MOMENT_S + 1]) == [MOMENT_US, None, MOMENT_US + 10**6]
    found = read_times([MOMENT_S, 0, MOMENT_S + 1])
    assert "looks like a relative time" in found.reasons[1]


@pytest.mark.parametrize(
    ("text", "after_us"),
    [
        ("2026-03-01T10:00:00Z", 0),
        ("2026-03-01T10:00:00", 0),
        ("2026-03-01 10:00:00", 0),
        (" 2026-03-01T10:00:00Z ", 0),
        ("20260301T100000Z", 0),
        ("2026-03-01T10:00:01.900Z", 1_900_000),
        ("2026-03-01T10:00:00.000001+00:00", 1),
        ("2026-03-01T10:00:00.123456789Z", 123_456),
        ("2026-03-01T12:30:00+02:30", 0),
        ("2026-03-01", -36_000_000_000),
        ("2026-03-01 10:00:00.6805900", 680_590),
    ],
)
def test_dates_are_iso_8601_and_utc_where_no_zone_is_named(text: str, after_us: int) -> None:
    assert _arrivals([text]) == [MOMENT_US + after_us]


def test_dates_and_numbers_may_stand_in_one_file() -> None:
    assert _arrivals([MOMENT_S, "2026-03-01T10:00:00.5Z"]) == [MOMENT_US, MOMENT_US + 500_000]


def test_a_file_without_times_keeps_its_order_at_one_moment() -> None:
    assert _arrivals([None, None]) == [0, 0]
    found = read_times([None, None])
    assert (found.note, found.kind) == ("no times: file order", NO_TIMES)


def test_no_requests_have_no_times() -> None:
    assert _arrivals([]) == []


def test_a_missing_time_is_not_zero() -> None:
    assert _arrivals([5, None, 7], "s") == [5_000_000, None, 7_000_000]
    assert read_times([5, None, 7], "s").reasons == {1: "it has no time, but other lines have one"}


@pytest.mark.parametrize("time", ["yesterday", "", "10000-01-01", "2026-02-30", "nan", "1e400"])
def test_text_that_is_no_date_is_refused(time: Time) -> None:
    assert _arrivals([time, "2026-03-01"])[0] is None
    found = read_times([time, "2026-03-01"])
    assert "neither a number nor a date" in found.reasons[0]


@pytest.mark.parametrize("time", [True, float("inf"), float("nan"), {"s": 1}, [1]])
def test_what_is_neither_number_nor_text_is_refused(time: Time) -> None:
    assert _arrivals([5, time], "s") == [5_000_000, None]
    assert read_times([5, time], "s").reasons == {1: "its time is neither a number nor a date"}


@pytest.mark.parametrize("time", [-1, -0.001, "1969-12-31T23:59:59Z", 253_402_300_800])
def test_times_before_1970_or_after_year_9999_are_refused(time: Time) -> None:
    assert _arrivals([5, time], "s") == [5_000_000, None]
    found = read_times([5, time], "s")
    assert "before 1970 or after year 9999" in found.reasons[1]


def test_the_last_second_of_year_9999_is_a_time() -> None:
    assert _arrivals(["9999-12-31T23:59:59Z"]) == [253_402_300_799_000_000]


def test_an_unknown_unit_is_refused() -> None:
    check_unit(None)
    check_unit("us")
    with pytest.raises(UsageError, match="'minutes': give one of s, ms, us, ns"):
        check_unit("minutes")


def test_dates_without_a_zone_are_read_in_the_declared_one() -> None:
    assert _arrivals(["2026-03-01T11:00:00"], zone="Europe/Berlin") == [MOMENT_US]
    assert _arrivals(["2026-03-01T11:00:00+01:00"], zone="Asia/Tokyo") == [MOMENT_US]
    note = read_times(["2026-03-01T11:00:00"], zone="Europe/Berlin").note
    assert note == "dates without a zone as Europe/Berlin"
    with pytest.raises(UsageError, match="time zone 'Mars': give a name"):
        find_zone("Mars")


def test_requests_that_need_no_time_are_neither_refused_nor_counted() -> None:
    column = TimeColumn()
    for time in (None, 5, None):
        column.append(time)
    found = column.resolve(np.array([False, True, False]), None, "s")
    assert found.arrival_us.tolist() == [NO_TIME, 5_000_000, NO_TIME]
    assert found.reasons == {}


def test_the_moment_of_one_request_is_its_date_or_none() -> None:
    assert moment_of(MOMENT_S * 1000) == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert moment_of("2026-03-01T10:00:00Z") == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert moment_of(17.5) is None
    assert moment_of(None) is None
