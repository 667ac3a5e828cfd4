"""Cells of tables: times, counts and ids, also where all of them are text."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from pipeline.logs.families.table import FAMILY
from pipeline.logs.records import LogRecord


def _one(row: dict[str, Any]) -> LogRecord:
    assert FAMILY.recognises(row)
    [record] = FAMILY.reader()(row)
    assert isinstance(record, LogRecord)
    return record


@pytest.mark.parametrize(
    ("columns", "time"),
    [
        ({"timestamp": 5, "arrival": 6}, 5),
        ({"timestamp": "", "arrival": " ", "time": "7.5"}, "7.5"),
        ({"timestamp": None, "timestamp_start_unix_ms": 1780000000000}, 1780000000000),
        ({"timestamp": float("nan"), "time": 0}, 0),
        (
            {"time": datetime(2026, 5, 2, 21, 0, 0, 5, UTC).replace(tzinfo=None)},
            "2026-05-02T21:00:00.000005+00:00",
        ),
        ({"time": datetime(2026, 5, 2, tzinfo=UTC)}, "2026-05-02T00:00:00+00:00"),
        (
            {"time": datetime(2026, 5, 2, tzinfo=timezone(timedelta(hours=2)))},
            "2026-05-02T00:00:00+02:00",
        ),
        ({"time": date(2026, 5, 2)}, "2026-05-02"),
        ({"time": Decimal("1780000000.25")}, "1780000000.25"),
        ({"time": True}, None),
        ({"time": [5]}, None),
        ({}, None),
    ],
)
def test_a_time_is_the_first_that_a_row_has(columns: dict[str, Any], time: object) -> None:
    assert _one({"prompt_token_ids": [1]} | columns).time == time


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ("12", 12),
        ("12.0", 12),
        (12.0, 12),
        ("", None),
        ("nan", None),
        ("inf", None),
        (float("nan"), None),
        (float("inf"), None),
        (12.5, None),
        ("twelve", None),
        (-1, None),
        (10**400, None),
        (True, None),
        ([1], None),
    ],
)
def test_a_count_may_be_text_or_a_whole_float(value: object, count: int | None) -> None:
    assert _one({"prompt_token_ids": [1], "output_tokens": value}).output_tokens == count


@pytest.mark.parametrize(
    ("value", "name"),
    [("a", "a"), (17, "17"), (17.0, "17"), (1.5, "1.5"), (float("nan"), None), ("", None)],
)
def test_an_id_may_be_a_number(value: object, name: str | None) -> None:
    row = {"prompt_token_ids": [1], "session_id": "", "provided_session_id": value}
    assert _one(row | {"request_id": value}).request_id == name
    assert _one(row).carried["session_id"] == name
