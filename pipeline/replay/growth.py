"""Room in a fleet's records and tables, made between batches, and copies of fleets."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.kernel import NONE
from pipeline.replay.fleet import EDGES, FLIGHTS, Fleet
from pipeline.replay.records import SLOT
from pipeline.replay.router import Settings
from pipeline.replay.slots import refill


def reserved(fleet: Fleet, requests: int, settings: Settings, *, cuts_twice: bool) -> Fleet:
    """Return a fleet with records for so many requests more, its tables at most half full.

    A request cuts an edge and adds one, cuts another where its last token is not looked up
    (`cuts_twice`), and its output does the same as it completes.
    """
    flights, shared = fleet.flights, fleet.shared
    if settings.counts:
        flights = _grown(flights, fleet.pools[FLIGHTS], requests)
        shared = _roomy(shared, len(flights)) if len(fleet.active) > 1 else shared
    needed = (2 + cuts_twice) * requests
    if settings.cache_output:
        flying = int(fleet.pools["used"][FLIGHTS] - fleet.pools["free"][FLIGHTS])
        needed += 2 * (requests + flying)
    edges = _grown(fleet.edges, fleet.pools[EDGES], needed)
    slots = _roomy(fleet.slots, len(edges))
    return fleet._replace(flights=flights, edges=edges, slots=slots, shared=shared)


def copied(fleet: Fleet) -> Fleet:
    """Return a fleet that stays as it is when this one changes."""
    parts = fleet._asdict().items()
    own: dict[str, Any] = {n: part.copy() for n, part in parts if isinstance(part, np.ndarray)}
    upcoming = fleet.upcoming._replace(earliest=fleet.upcoming.earliest.copy())
    return fleet._replace(upcoming=upcoming, **own)


def _grown(records: NDArray[Any], pool: Any, needed: int) -> NDArray[Any]:
    """Return a pool's records with `needed` of them free, moved into more if there are fewer."""
    used, free = int(pool["used"]), int(pool["free"])
    if len(records) - used + free >= needed:
        return records
    larger = np.zeros(max(used - free + needed, 2 * len(records)), records.dtype)
    larger[:used] = records[:used]
    return larger


def _roomy(slots: NDArray[Any], entries: int) -> NDArray[Any]:
    """Return a table that so many entries fill at most by half, with all that it holds."""
    if 2 * entries <= len(slots):
        return slots
    larger = np.zeros(1 << (2 * entries - 1).bit_length(), SLOT)
    larger["key"] = NONE
    refill(slots, larger)
    return larger
