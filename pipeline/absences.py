"""When replicas go away and return: the moments of a fleet's absences on the clock of a replay."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import Absence, FleetConfig
from pipeline.errors import UsageError
from pipeline.replay.records import CHANGE, CLOSE, NEVER_TICKS, OPEN, WIPE
from pipeline.toml_files import moment_us

_TICKS_PER_US = 10


def fleet_changes(
    fleet: FleetConfig,
    clock: str,
    arrival_us: NDArray[np.int64],
    clock_ticks: NDArray[np.int64],
    first: int,
) -> NDArray[Any]:
    """Return records.CHANGE in order of time, those of one time in the order of the fleet.

    `arrival_us` and `clock_ticks` are of all rows of a plan, `first` is the trace's own first row.
    Raises UsageError for a request that the trace does not have, and for an absence that ends
    before it begins.
    """

    def ticks(moment: str | int) -> int:
        us = moment_us(moment, int(arrival_us[first]))
        if us is None:
            row = first + int(moment)
            if row >= len(clock_ticks):
                raise UsageError(
                    f"a replica is away from request {moment} on, or until then, but the trace has"
                    f" only {len(clock_ticks) - first}: give a smaller seq, or a time"
                )
            return int(clock_ticks[row])
        if clock == "timestamps":
            return (us - int(arrival_us[0])) * _TICKS_PER_US
        row = int(np.searchsorted(arrival_us, us))
        return int(clock_ticks[row]) if row < len(clock_ticks) else NEVER_TICKS

    changes = []
    for absence in fleet.absences:
        start = ticks(absence.start)
        end = NEVER_TICKS if absence.end is None else ticks(absence.end)
        if end < start:
            raise UsageError(
                f"an absence of replicas {absence.replicas} ends at {absence.end!r}, before it"
                f" begins at {absence.start!r}: give a later end"
            )
        for when, what in _steps(absence, start, end):
            changes += [(when, replica, what) for replica in absence.replicas if when < NEVER_TICKS]
    records = np.array(changes, CHANGE)
    return records[np.argsort(records["ticks"], kind="stable")]


def _steps(absence: Absence, start: int, end: int) -> list[tuple[int, int]]:
    """Return what happens when a replica goes away and returns."""
    if absence.kind == "crash":
        return [(start, CLOSE), (start, WIPE), (end, OPEN)]
    restart = [(end, WIPE)] if absence.cache == "cold" else []
    return [(start, CLOSE), *restart, (end, OPEN)]
