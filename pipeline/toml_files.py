"""fleet.toml and policies.toml: what a file asks for; an error names file, table, key and value."""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from datetime import date, time
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from pipeline.config import Absence, FleetConfig, ReplicaConfig
from pipeline.config.fleet import MAX_REPLICAS
from pipeline.errors import UsageError, unknown
from pipeline.moments import HOW, Moment, is_not_later, moment_us

_KEYS = {
    "replicas": ("count", "capacity_tokens", "speed"),
    "absent": ("replicas", "from", "to", "kind", "cache"),
    "scale": ("at", "replicas"),
}


class _Table(NamedTuple):
    """One table of an array of tables, and where it stands."""

    place: str
    values: dict[str, Any]

    def wrong(self, key: str, advice: str) -> UsageError:
        """Return the error of a key's value."""
        if key not in self.values:
            return UsageError(f"{self.place}: {key} is missing: {advice}")
        return UsageError(f"{self.place}: {key} is {self.values[key]!r}: {advice}")

    def whole(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """Return a whole number of a range."""
        value = self.values.get(key)
        if key not in self.values and default is not None:
            return default
        if not _is_whole(value) or not low <= value <= high:
            raise self.wrong(key, f"give a whole number from {low} to {high}")
        return value

    def moment(self, key: str) -> Moment:
        """Return a moment as text or as the seq of a request, having seen that it can be read."""
        value = self.values.get(key)
        if isinstance(value, date | time):  # a datetime is a date
            value = value.isoformat()
        if _is_whole(value) and 0 <= value < 2**63:
            return value
        try:
            moment_us(value if isinstance(value, str) else "", 0)
        except UsageError:
            raise self.wrong(key, HOW) from None
        return str(value).strip()


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def read_fleet(path: Path, capacity_tokens: int, replicas: int | None = None) -> FleetConfig:
    """Read a fleet.toml: tables [[replicas]], [[absent]] and [[scale]].

    `capacity_tokens` is for replicas of which it says nothing; `replicas`, their number, where it
    has no [[replicas]], and must agree with it if it has. Raises UsageError.
    """
    tables = _tables(path, _KEYS)
    each = tuple(m for table in tables["replicas"] for m in _members(table, capacity_tokens))
    if each and replicas is not None and replicas != len(each):
        raise UsageError(
            f"replicas is {replicas}, but {path} describes {len(each)}: leave out --replicas, or"
            " [[replicas]] in the file"
        )
    count = len(each) or (FleetConfig.replicas if replicas is None else replicas)
    kinds = set(each)
    if len(kinds) == 1 and (only := kinds.pop()).speed == 1:
        each, capacity_tokens = (), only.capacity_tokens
    away = [_absence(table, count) for table in tables["absent"]]
    away += _scaled(tables["scale"], count)
    try:
        return FleetConfig(count, capacity_tokens, each, tuple(away))
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _members(table: _Table, capacity_tokens: int) -> list[ReplicaConfig]:
    """Return the replicas of one group."""
    count = table.whole("count", 1, MAX_REPLICAS, 1)
    capacity = table.whole("capacity_tokens", 1, 2**62 - 1, capacity_tokens)
    speed = table.values.get("speed", 1.0)
    if not isinstance(speed, int | float) or isinstance(speed, bool):
        raise table.wrong("speed", "give a number, 1.0 for costs as they are, 2.0 for half of them")
    try:
        return [ReplicaConfig(capacity, float(speed))] * count
    except (UsageError, OverflowError) as error:
        raise UsageError(f"{table.place}: {error}") from None


def _absence(table: _Table, count: int) -> Absence:
    """Return when some replicas are away."""
    named = table.values.get("replicas")
    named = named if isinstance(named, list) else [named]
    numbers = [n for n in named if _is_whole(n) and 0 <= n < count]
    if not named or len(set(numbers)) < len(named):
        advice = f"give numbers of replicas, 0 to {count - 1}, each once: 2 or [2, 3]"
        raise table.wrong("replicas", advice)
    start = table.moment("from")
    end = table.moment("to") if "to" in table.values else None
    if end is not None and is_not_later(start, end, overnight=True):
        raise table.wrong("to", f"give a moment after from, {start!r}, or leave it out for never")
    kinds = {key: table.values[key] for key in ("kind", "cache") if key in table.values}
    try:
        return Absence(tuple(numbers), start, end, **kinds)
    except UsageError as error:
        raise UsageError(f"{table.place}: {error}") from None


def _scaled(tables: list[_Table], count: int) -> list[Absence]:
    """Return when replicas are away because the fleet is smaller, in order of time."""
    steps: list[tuple[Moment, int]] = []
    for table in tables:
        at = table.moment("at")
        if steps and is_not_later(steps[-1][0], at, overnight=False):
            raise table.wrong("at", f"give a moment after the step before, {steps[-1][0]!r}")
        steps.append((at, table.whole("replicas", 0, count)))
    spans: dict[tuple[int, int], list[int]] = {}
    for replica in range(count):
        for span in _spans([replica >= there for _, there in steps]):
            spans.setdefault(span, []).append(replica)
    return [
        Absence(tuple(away), steps[start][0], steps[end][0] if end < len(steps) else None)
        for (start, end), away in sorted(spans.items())
    ]


def _spans(away: list[bool]) -> Iterator[tuple[int, int]]:
    """Yield the runs of steps in which a replica is away: the first of each, and the one after."""
    start = None
    for step, is_away in enumerate([*away, False]):
        if is_away and start is None:
            start = step
        elif not is_away and start is not None:
            yield start, step
            start = None


def read_policies(path: Path) -> tuple[str, ...]:
    """Read a policies.toml: of each [[policy]] its name and settings as --policy takes them."""
    return tuple(_policy(table) for table in _tables(path, {"policy": ()})["policy"])


def _policy(table: _Table) -> str:
    name = table.values.get("name")
    if not isinstance(name, str) or not name.strip() or set(name) & set(",="):
        raise table.wrong(
            "name", 'give the name alone, name = "sglang"; a parameter is a key of its own'
        )
    for key, value in table.values.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise table.wrong(key, "give a number or a text")
        if set(f"{key}{value}") & set(",=") or not str(value).strip():
            raise table.wrong(key, "give one setting: neither is empty nor has a comma or =")
    settings = ",".join(f"{key}={value}" for key, value in table.values.items() if key != "name")
    return f"{name}:{settings}" if settings else name


def _tables(path: Path, known: Mapping[str, Collection[str]]) -> dict[str, list[_Table]]:
    """Return a file's tables by name; those of a name without known keys may have any."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: give the path of a TOML file") from None
    except ValueError as error:
        raise UsageError(f"{path}: this is not TOML: {error}") from None
    tables: dict[str, list[_Table]] = {name: [] for name in known}
    for name, given in found.items():
        if name not in known:
            raise UsageError(f"{path}: {unknown('table', name, known)}")
        if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            raise UsageError(f"{path}: {name} is no array of tables: write [[{name}]]")
        tables[name] = [_Table(f"{path}: [[{name}]] {n}", t) for n, t in enumerate(given, 1)]
        for table in tables[name]:
            for key in table.values:
                if known[name] and key not in known[name]:
                    raise UsageError(f"{table.place}: {unknown('key', key, known[name])}")
    if not any(tables.values()):
        kinds = " or ".join(f"[[{name}]]" for name in known)
        raise UsageError(f"{path}: no {kinds} in it: write at least one")
    return tables
