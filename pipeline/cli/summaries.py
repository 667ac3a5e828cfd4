"""What commands say when they are done."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:  # a replay has no need of polars and tokenizers
    from pipeline.tokenize import Summary


def tokenize_summary(trace: Path, summary: "Summary") -> Iterator[str]:
    """Yield what became of a tokenize, so that a wrong time unit or many rejects are seen."""
    shared = summary.prefix_tokens / summary.prompt_tokens if summary.prompt_tokens else 0.0
    yield (
        f"{trace}: {summary.requests:,} requests, {summary.prompt_tokens:,} prompt tokens,"
        f" {shared:.1%} of them a prefix of an earlier request"
    )
    first, last = (_moment(us) for us in (summary.first_us, summary.last_us))
    seconds = (summary.last_us - summary.first_us) / 1e6
    rate = f", {summary.requests / seconds:.3g} requests/s" if seconds else ""
    yield f"arrivals from {first} to {last} ({timedelta(seconds=round(seconds, 3))}{rate})"
    yield from dict.fromkeys(summary.time_notes)
    for reason, lines in summary.rejects.by_reason().most_common():
        yield f"rejected {lines:,} of {summary.lines:,} lines: {reason}"
    if summary.rejects_file:
        yield f"rejected lines are listed in {summary.rejects_file}"


def run_summary(target: Path, result: dict[str, Any]) -> Iterator[str]:
    """Yield the heading of a run's comparison."""
    fleet, config, trace = result["config"]["fleet"], result["config"], result["trace"]
    clock = config["chosen_clock"]
    if clock == "arrivals":
        clock += f", {config['clock']['decay_ms_per_arrival']:g} ms each"
    yield (
        f"{trace['requests']:,} requests over {fleet['replicas']} replicas of"
        f" {fleet['capacity_tokens']:,} tokens; clock: {clock}; run: {target}"
    )
    yield ""


def comparison_json(result: dict[str, Any], comparison: pa.Table) -> dict[str, Any]:
    """Return a run's configuration, timings and totals, with the comparison's percentiles."""
    rows = {row.pop("policy"): row for row in comparison.to_pylist()}
    parts = {name: result[name] for name in ("trace", "config", "timings")}
    policies = {
        policy: {**totals, **{k: v for k, v in rows[policy].items() if k not in totals}}
        for policy, totals in result["totals"].items()
    }
    return {**parts, "policies": policies}


def _moment(microseconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    return moment.isoformat(sep=" ", timespec="milliseconds")
