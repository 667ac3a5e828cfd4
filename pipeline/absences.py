"""When replicas go away and return: the moments of a fleet's absences on the clock of a replay."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Absence, FleetConfig
from pipeline.errors import UsageError
from pipeline.moments import Moment, as_text, moment_us
from pipeline.replay.records import CHANGE, CLOSE, NEVER_TICKS, OPEN, WIPE

_TICKS_PER_US = 10


class Clock(NamedTuple):
    """The clock of a replay, one item a row of its plan.

    name         `arrivals` or `timestamps`
    arrival_us   when requests come
    clock_ticks  the same on the clock
    first        the trace's own first row
    """

    name: str
    arrival_us: NDArray[np.int64]
    clock_ticks: NDArray[np.int64]
    first: int


class _When(NamedTuple):
    """A moment: at that tick, and not before the request of that row comes."""

    ticks: int
    row: int
    us: int


def fleet_changes(fleet: FleetConfig, clock: Clock) -> tuple[NDArray[Any], int]:
    """Return records.CHANGE in order of time, and how many absences no request of the trace meets.

    Those of one time are in the order of the fleet. Raises UsageError for a request that the trace
    does not have, and for an absence that ends before it begins.
    """
    changes, unmet, never = [], 0, _When(NEVER_TICKS, 0, 0)
    last, first = int(clock.clock_ticks[-1]), int(clock.clock_ticks[clock.first])
    for absence in fleet.absences:
        start = _when(absence.start, clock, None)
        end = never if absence.end is None else _when(absence.end, clock, start.us)
        if end is not never and (end.ticks, end.row) < (start.ticks, start.row):
            raise UsageError(
                f"an absence of replicas {_numbers(absence)} ends at {_said(absence.end, end)},"
                f" before it begins at {_said(absence.start, start)}: give a later end"
            )
        unmet += start.ticks > last or end.ticks < first
        for when, what in _steps(absence, start, end):
            if when.ticks < NEVER_TICKS:
                changes += [(when.ticks, r, what, when.row) for r in absence.replicas]
    records = np.array(changes, CHANGE)
    return records[np.lexsort((records["row"], records["ticks"]))], unmet


def _when(moment: Moment, clock: Clock, after_us: int | None) -> _When:
    """Place a moment; a time of day is the next one after `after_us`, if that is given."""
    arrival_us, first = clock.arrival_us, clock.first
    us = moment_us(moment, int(arrival_us[first]), after_us)
    if us is not None and clock.name == "timestamps":
        return _When((us - int(arrival_us[0])) * _TICKS_PER_US, 0, us)
    row = first + int(moment) if us is None else int(np.searchsorted(arrival_us, us))
    if row < len(arrival_us):
        return _When(int(clock.clock_ticks[row]), row, int(arrival_us[row]) if us is None else us)
    if us is not None:
        return _When(NEVER_TICKS, 0, us)
    raise UsageError(
        f"a replica is away from request {moment} on, or until then, but the trace has only"
        f" {len(arrival_us) - first}: give a smaller seq, or a time"
    )


def _steps(absence: Absence, start: _When, end: _When) -> list[tuple[_When, int]]:
    """Return what happens when a replica goes away and returns."""
    if absence.kind == "crash":
        return [(start, CLOSE), (start, WIPE), (end, OPEN)]
    restart = [(end, WIPE)] if absence.cache == "cold" else []
    return [(start, CLOSE), *restart, (end, OPEN)]


def _numbers(absence: Absence) -> str:
    return ", ".join(map(str, absence.replicas))


def _said(moment: Moment | None, when: _When) -> str:
    """Return a moment as it was written, and as it is understood."""
    return f"request {moment}" if isinstance(moment, int) else f"{moment!r} ({as_text(when.us)})"
