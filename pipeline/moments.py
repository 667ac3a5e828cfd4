"""Moments of a trace as people write them: a time of day, a date, so much later, a request."""

import re
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal

from pipeline.errors import UsageError

Moment = str | int
"""A text as moment_us reads it, or the seq of the request before which it is."""

HOW = 'write "10:00", "2026-03-03 10:00", "+30m" (s, m, h, d) or the seq of a request'
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS_US = {"s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6}
_MOST_US = 36_525 * _UNITS_US["d"]
_LATER = re.compile(r"\+\s*(\d{1,12}(?:\.\d{1,12})?)\s*([smhd])", re.ASCII)


def moment_us(moment: Moment, first_us: int, after_us: int | None = None) -> int | None:
    """Return a moment in microseconds since 1970, UTC; None for the seq of a request.

    `first_us` is when the trace's first request comes. A time of day is one of that day, or with
    `after_us` the next one after that; +30m counts from that request; what names no zone is UTC.
    Raises UsageError for what is none of these.
    """
    if isinstance(moment, int):
        return None
    text = moment.strip()
    later = _LATER.fullmatch(text)
    try:
        if later and (ahead := Decimal(later[1]) * _UNITS_US[later[2]]) <= _MOST_US:
            return first_us + int(ahead)
        if _form(text) == "clock":
            return _at(time.fromisoformat(text), first_us, after_us)
        at = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{moment!r} is no moment: {HOW}") from None
    return (at.replace(tzinfo=at.tzinfo or UTC) - _EPOCH) // _MICROSECOND


def as_text(moment_us: int) -> str:
    """Return a moment as a date, without a zone: it is UTC."""
    at = _EPOCH + timedelta(microseconds=moment_us)
    return at.replace(tzinfo=None).isoformat(sep=" ")


def is_not_later(before: Moment, after: Moment, *, overnight: bool) -> bool:
    """Tell whether it is sure, without knowing a trace, that the second moment is not later.

    A time of day may be that of the next day if it may go `overnight`.
    """
    if isinstance(before, int) and isinstance(after, int):
        return after <= before
    if isinstance(before, int) or isinstance(after, int) or _form(before) != _form(after):
        return False
    if _form(before) == "clock" and overnight:
        return before == after
    return (moment_us(after, 0) or 0) <= (moment_us(before, 0) or 0)


def _at(clock: time, first_us: int, after_us: int | None) -> int:
    """Return when clocks show that time on the day of first_us, or next after after_us."""
    zone_us = (clock.utcoffset() or timedelta()) // _MICROSECOND
    of_day = timedelta(
        hours=clock.hour,
        minutes=clock.minute,
        seconds=clock.second,
        microseconds=clock.microsecond,
    )
    day_us = _UNITS_US["d"]
    if after_us is None:
        midnight_us = (first_us + zone_us) // day_us * day_us - zone_us
        return midnight_us + of_day // _MICROSECOND
    wait_us = (of_day // _MICROSECOND - zone_us - after_us) % day_us
    return after_us + (wait_us or day_us)


def _form(text: str) -> str:
    """Return which kind of moment a text is."""
    return "later" if text.startswith("+") else "clock" if text[2:3] == ":" else "date"
