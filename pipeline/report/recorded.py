"""What run.json says of a run, as DuckDB views: settings, policies and timings."""

import json
from typing import Any

from pipeline.sql_files import quoted

_SETTINGS = (
    ("engine", "varchar", "engine.name"),
    ("cache_unit", "varchar", "engine.cache_unit"),
    ("block_tokens", "bigint", "chosen_block_tokens"),
    ("partial_block", "varchar", "engine.partial_block"),
    ("recompute_last_token", "boolean", "engine.recompute_last_token"),
    ("refresh", "varchar", "engine.refresh"),
    ("in_flight", "varchar", "engine.in_flight"),
    ("when_full", "varchar", "engine.when_full"),
    ("cache_output", "boolean", "engine.cache_output"),
    ("replicas", "bigint", "fleet.replicas"),
    ("capacity_tokens", "bigint", "fleet.capacity_tokens"),
    ("chosen_clock", "varchar", "chosen_clock"),
    ("prefill_ms_per_token", "double", "cost.prefill_ms_per_token"),
    ("lookup_ms_per_token", "double", "cost.lookup_ms_per_token"),
    ("decode_ms_per_token", "double", "cost.decode_ms_per_token"),
    ("where_clause", "varchar", "subset.where"),
    ("sample", "double", "subset.sample"),
    ("warmup_trace", "varchar", "subset.warmup"),
    ("warmup_fraction", "double", "subset.warmup_fraction"),
    ("router_view", "varchar", "routing.router_view"),
    ("router_capacity_tokens", "bigint", "routing.router_capacity_tokens"),
    ("router_ttl_ms", "double", "routing.router_ttl_ms"),
    ("tie", "varchar", "routing.tie"),
    ("seed", "bigint", "routing.seed"),
    ("seeds", "bigint", "routing.seeds"),
)
"""Columns of the view `settings`: name, type, and where run.json's config has the value."""

_POLICIES = (
    ("policy", "varchar"),
    ("name", "varchar"),
    ("source", "varchar"),
    ("parameters", "varchar"),
    ("router_view", "varchar"),
    ("router_tokens", "bigint"),
    ("router_ttl_ms", "double"),
    ("tie", "varchar"),
    ("chooses_at_random", "boolean"),
    ("seeds", "bigint"),
)
"""Columns of the view `policies`: what each policy of the run turned out to be."""

_TIMINGS = (
    ("policy", "varchar"),
    ("seed", "bigint"),
    ("requests", "bigint"),
    ("replay_s", "double"),
    ("write_s", "double"),
    ("requests_per_s", "double"),
)
"""Columns of the view `timings`: how long each policy took with each seed."""


def recorded_views(about: dict[str, Any]) -> list[str]:
    """Return the views of a run.json; KeyError or TypeError if it doesn't have what they show."""
    config = about["config"]
    settings = {name: _at(config, path) for name, _, path in _SETTINGS}
    policies = [
        chosen | {"parameters": json.dumps(chosen["parameters"], ensure_ascii=False)}
        for chosen in config["chosen_policies"]
    ]
    return [
        _view("settings", tuple((name, kind) for name, kind, _ in _SETTINGS), [settings]),
        _view("policies", _POLICIES, policies),
        _view("timings", _TIMINGS, about["lanes"]),
    ]


def _at(config: dict[str, Any], path: str) -> Any:
    value: Any = config
    for key in path.split("."):
        value = value[key]
    return value


def _view(name: str, columns: tuple[tuple[str, str], ...], rows: list[dict[str, Any]]) -> str:
    values = ", ".join(
        f"({', '.join(_text(row[column]) for column, _ in columns)})" for row in rows
    )
    names = ", ".join(column for column, _ in columns)
    casts = ", ".join(f"cast({column} as {kind}) as {column}" for column, kind in columns)
    return f"create view {name} as select {casts} from (values {values}) as recorded({names});"  # noqa: S608 - quoted


def _text(value: Any) -> str:
    # bytes of a path that are no text become question marks
    return quoted(value).encode(errors="replace").decode()
