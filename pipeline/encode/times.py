"""The times of one log file, as microseconds since 1970-01-01."""

from array import array
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
from numpy.typing import NDArray

from pipeline.errors import UsageError
from pipeline.tables import LATEST_US

UNITS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
NO_TIME = np.iinfo(np.int64).min
"""In place of microseconds, for a request without a usable time."""

_OLDEST_S, _NEWEST_S = 1.2e9, 4.2e9
"""A number that would be a date from 2008 to 2103 in some unit is one; any other is relative."""

_LARGEST = 9.2e18  # nothing that a clock shows in ns is larger
_EARLIEST_DATE_US = 10**14  # in March 1973
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_NUMBER = "its time is neither a number nor a date"
_NONE = "it has no time, but other lines have one"
_OUTSIDE = "its time is before 1970 or after year 9999 in this unit"

NO_TIMES, DATES, RELATIVE = "no times", "dates", "relative times"
_ABSENT, _WHOLE, _FRACTION, _DATE, _BAD = range(5)

Time = int | float | str | None


class FileTimes(NamedTuple):
    """Times of a file's requests.

    arrival_us  int64, one a request; NO_TIME where `reasons` says why there is none
    reasons     by request
    note        how they were read
    kind        what they count from: only files of one kind can be put into one order
    """

    arrival_us: NDArray[np.int64]
    reasons: dict[int, str]
    note: str
    kind: str


class TimeColumn:
    """The times of a file's requests as the log wrote them; what they mean shows at its end."""

    def __init__(self, zone: tzinfo = UTC) -> None:
        """Read dates that name no zone as of `zone`."""
        self._zone = zone
        self._forms = array("b")
        self._whole = array("q")
        self._fraction = array("d")
        self._naive = False

    def append(self, time: Time) -> None:
        """Take in the time of the next request."""
        form, whole, fraction = self._read(time)
        self._forms.append(form)
        self._whole.append(whole)
        self._fraction.append(fraction)

    def _read(self, time: Time) -> tuple[int, int, float]:
        if isinstance(time, str):
            number = _number(time)
            if number is None:
                return self._read_date(time)
            time = number
        if time is None:
            return _ABSENT, 0, 0.0
        if isinstance(time, bool) or not isinstance(time, int | float):
            return _BAD, 0, 0.0
        if not abs(time) < _LARGEST:
            return _BAD, 0, 0.0
        return (_WHOLE, time, 0.0) if isinstance(time, int) else (_FRACTION, 0, time)

    def _read_date(self, text: str) -> tuple[int, int, float]:
        try:
            moment = datetime.fromisoformat(text.strip())
            if moment.tzinfo is None:
                self._naive = True
                moment = moment.replace(tzinfo=self._zone)
            since = moment - _EPOCH
        except (ValueError, OverflowError):
            return _BAD, 0, 0.0
        return _DATE, (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds, 0.0

    def resolve(self, needed: NDArray[np.bool_], declared: str | None, relative: str) -> FileTimes:
        """Return what the times mean.

        Numbers are in the `declared` unit; for None, in the one that the median's magnitude
        shows, which is `relative` for numbers that are no dates; a number of another magnitude is
        refused rather than moved by a factor of a thousand. A file without any time keeps its
        order and starts at 1970. Requests that aren't `needed` get no reason.
        """
        forms = np.array(self._forms, np.int8)
        whole = np.array(self._whole, np.int64)
        fraction = np.array(self._fraction, np.float64)
        arrival = np.full(len(forms), NO_TIME)
        if not (forms[needed] != _ABSENT).any():
            arrival[:] = 0
            return FileTimes(arrival, {}, f"{NO_TIMES}: file order", NO_TIMES)
        dates = forms == _DATE
        arrival[dates] = whole[dates]
        numbers = (forms == _WHOLE) | (forms == _FRACTION)
        magnitude = np.abs(np.where(forms == _WHOLE, whole.astype(np.float64), fraction))
        shown = None if declared else _shown_by(magnitude[numbers & needed])
        unit = declared or shown or relative
        scaled, fits = _scaled(whole, fraction, forms == _WHOLE, unit)
        unlike = numbers & ~_shown_as(magnitude, shown) & (declared is None)
        usable = numbers & fits & ~unlike
        arrival[usable] = scaled[usable]
        outside = (arrival != NO_TIME) & ((arrival < 0) | (arrival > LATEST_US))
        arrival[outside] = NO_TIME
        reasons = {}
        for request in np.flatnonzero(needed & (arrival == NO_TIME)).tolist():
            form = forms[request]
            reasons[request] = (
                _NONE if form == _ABSENT
                else _NO_NUMBER if form == _BAD
                else _unlike(_shown(magnitude[request]), shown) if unlike[request]
                else _OUTSIDE
            )  # fmt: skip
        return FileTimes(
            arrival, reasons, self._note(declared, shown, unit, numbers), _kind(arrival)
        )

    def _note(
        self, declared: str | None, shown: str | None, unit: str, numbers: NDArray[np.bool_]
    ) -> str:
        notes = []
        if numbers.any():
            how = "as told" if declared else "by their size" if shown else "from the log's start"
            notes.append(f"times in {unit}, {how}")
        if self._naive:
            notes.append(f"dates without a zone as {self._zone}")
        return "; ".join(notes) or "dates with their zone"


def find_zone(name: str | None) -> tzinfo:
    """Return the time zone of that name, UTC for None; UsageError if there is none."""
    if name is None or name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"time zone {name!r}: give a name such as Europe/Berlin") from None


def check_unit(unit: str | None) -> None:
    """Raise UsageError unless `unit` is None or a unit of time."""
    if unit is not None and unit not in UNITS:
        raise UsageError(f"time unit {unit!r}: give one of {', '.join(UNITS)}")


def moment_of(time: Time) -> datetime | None:
    """Return the date that a single time shows, None for a relative one."""
    column = TimeColumn()
    column.append(time)
    times = column.resolve(np.ones(1, np.bool_), None, "s")
    if times.kind != DATES:
        return None
    return datetime.fromtimestamp(times.arrival_us[0] / 1e6, UTC)


def _number(text: str) -> int | float | None:
    try:
        return int(text) if text.isdecimal() else float(text)
    except ValueError:
        return None


def _scaled(
    whole: NDArray[np.int64], fraction: NDArray[np.float64], is_whole: NDArray[np.bool_], unit: str
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return numbers of a unit as microseconds, and which of them fit into the years to 9999."""
    per_second = UNITS[unit]
    limit = LATEST_US / 10**6 * per_second
    fits = np.where(is_whole, np.abs(whole.astype(np.float64)), np.abs(fraction)) <= limit
    kept = np.where(fits, whole, 0)
    exact = kept * (10**6 // per_second) if per_second <= 10**6 else kept // (per_second // 10**6)
    rounded = np.rint(np.where(fits, fraction, 0.0) * (10**6 / per_second)).astype(np.int64)
    return np.where(is_whole, exact, rounded), fits


def _shown_by(magnitudes: NDArray[np.float64]) -> str | None:
    """Return the unit that the (lower) median shows."""
    if not len(magnitudes):
        return None
    middle = (len(magnitudes) - 1) // 2
    return _shown(float(np.partition(magnitudes, middle)[middle]))


def _shown(magnitude: float) -> str | None:
    """Return the unit in which a number of this size is a date of our time, None for relative."""
    return next(
        (u for u, per in UNITS.items() if _OLDEST_S * per <= magnitude < _NEWEST_S * per), None
    )


def _shown_as(magnitudes: NDArray[np.float64], unit: str | None) -> NDArray[np.bool_]:
    """Tell which numbers look like dates in this unit, or like relative times for None."""
    looks = {
        u: (magnitudes >= _OLDEST_S * per) & (magnitudes < _NEWEST_S * per)
        for u, per in UNITS.items()
    }
    return looks[unit] if unit else ~np.logical_or.reduce(list(looks.values()))


def _unlike(shown: str | None, most: str | None) -> str:
    return (
        f"its time looks like {shown or 'a relative time'}, most of the file's like"
        f" {most or 'relative times'}"
    )


def _kind(arrival: NDArray[np.int64]) -> str:
    return DATES if arrival.max(initial=NO_TIME) >= _EARLIEST_DATE_US else RELATIVE
