"""Times that a log's format gives a meaning to: a clock of UTC, a duration, an end for a start."""

import math
import re
from datetime import datetime, timedelta

from pipeline.logs.fields import moment

_NO_ZONE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?")


def seconds_or_none(value: object) -> float | None:
    """Return a finite number, also one that is text; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def utc(time: object) -> float | str | None:
    """Return a time of a log whose clock is UTC: a date that names no zone gets it."""
    time = moment(time)
    return f"{time}Z" if isinstance(time, str) and _NO_ZONE.fullmatch(time) else time


def milliseconds(start: object, end: object) -> float | None:
    """Return the ms between two times, in seconds or as dates; None if there are none."""
    begin, finish = seconds_or_none(start), seconds_or_none(end)
    if begin is not None and finish is not None:
        between = round((finish - begin) * 1000, 3)
    else:
        try:
            dates = [datetime.fromisoformat(str(utc(time))) for time in (start, end)]
            between = round((dates[1] - dates[0]).total_seconds() * 1000, 3)
        except (TypeError, ValueError, OverflowError):
            return None
    return between if 0 <= between < math.inf else None


def duration_ms(value: object, unit_ms: float = 1) -> float | None:
    """Return a duration in ms, None if it is none; `unit_ms` is what it counts in."""
    number = seconds_or_none(value)
    return None if number is None else milliseconds(0, number * unit_ms / 1000)


def before(end: object, seconds: float) -> float | str | None:
    """Return the time so many seconds before one in seconds, ISO 8601 or an access log's form.

    A time of another form is returned as it is.
    """
    number = seconds_or_none(end)
    if number is not None:
        return round(number - seconds, 3)
    if not isinstance(end, str):
        return None
    try:
        return (_date(end) - timedelta(seconds=seconds)).isoformat()
    except (ValueError, OverflowError):
        return end


def _date(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return datetime.strptime(text, "%d/%b/%Y:%H:%M:%S %z")
