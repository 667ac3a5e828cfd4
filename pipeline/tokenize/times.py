"""The times of one log file, as microseconds since 1970-01-01."""

from datetime import UTC, datetime
from statistics import median_low
from typing import NamedTuple

from pipeline.errors import UsageError
from pipeline.tables import LATEST_US

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FROM = (("ns", 1e17), ("us", 1e14), ("ms", 1e11), ("s", 1e8))
_LARGEST = 1e19  # nothing that a clock shows in ns is larger

_NO_TIMES = "no times: file order"
_EARLIEST_DATE_US = 10**14  # in March 1973

Time = int | float | str | None


class FileTimes(NamedTuple):
    """Times of a file's requests.

    arrival_us  one a request, None where `reasons` says why there is none
    reasons     by request
    note        how they were read
    """

    arrival_us: list[int | None]
    reasons: dict[int, str]
    note: str

    @property
    def kind(self) -> str:
        """What the times count from: only files of one kind can be put into one order."""
        if self.note == _NO_TIMES:
            return "no times"
        latest = max((us for us in self.arrival_us if us is not None), default=0)
        return "dates" if latest >= _EARLIEST_DATE_US else "relative times"


def read_times(times: list[Time], unit: str | None) -> FileTimes:
    """Read a file's times.

    Numbers are in `unit`, or, for None, in the unit that the median's magnitude shows; a number
    of another magnitude is refused rather than moved by a factor of a thousand. Text is ISO 8601,
    UTC where it names no zone. A file without any time keeps its order and starts at 1970.
    """
    if all(time is None for time in times):
        return FileTimes([0] * len(times), {}, _NO_TIMES)
    numbers = [abs(t) for t in times if isinstance(t, int | float) and abs(t) < _LARGEST]
    shown = None if unit or not numbers else _shown(median_low(numbers))
    arrival_us: list[int | None] = []
    reasons: dict[int, str] = {}
    for request, time in enumerate(times):
        try:
            arrival_us.append(_microseconds(time, unit, shown))
        except ValueError as error:
            arrival_us.append(None)
            reasons[request] = str(error)
    return FileTimes(arrival_us, reasons, _note(unit, shown))


def check_unit(unit: str | None) -> None:
    """Raise UsageError unless `unit` is None or a unit of time."""
    if unit is not None and unit not in _PER_SECOND:
        raise UsageError(f"time unit {unit!r}: give one of {', '.join(_PER_SECOND)}")


def _microseconds(time: Time, unit: str | None, shown: str | None) -> int:
    if time is None:
        raise ValueError("it has no time, but other lines have one")
    if isinstance(time, str):
        return _checked(_iso_microseconds(time), time)
    if isinstance(time, bool) or not isinstance(time, int | float) or not abs(time) < _LARGEST:
        raise ValueError("its time is neither a number nor a date")
    if unit is None and _shown(abs(time)) != shown:
        raise ValueError(
            f"its time {time} looks like {_shown(abs(time)) or 'a relative time'}, most of the"
            f" file's like {shown or 'relative times'}"
        )
    per_second = _PER_SECOND[unit or shown or "s"]
    if isinstance(time, int):
        return _checked(time * 10**6 // per_second, time)
    return _checked(round(time * (10**6 / per_second)), time)


def _iso_microseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError("its time is neither a number nor a date") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**6 + since.microseconds


def _checked(arrival_us: int, time: Time) -> int:
    if not 0 <= arrival_us <= LATEST_US:
        raise ValueError(f"its time {time} is before 1970 or after year 9999 in this unit")
    return arrival_us


def _shown(magnitude: float) -> str | None:
    """Return the unit in which a number of this size is a date of our time, None for relative."""
    return next((unit for unit, least in _FROM if magnitude >= least), None)


def _note(unit: str | None, shown: str | None) -> str:
    if unit:
        return f"times in {unit}"
    return f"times in {shown}, by their size" if shown else "relative times in s, or dates"
