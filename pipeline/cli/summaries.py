"""What commands say when they are done."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline.config import ENGINES
from pipeline.report import transposed

_NOTES = 5
_ROUTING = ("router_view", "router_capacity_tokens", "router_ttl_ms", "tie")

if TYPE_CHECKING:  # a replay has no need of polars and tokenizers
    from pipeline.tokenize import Summary


def tokenize_summary(trace: Path, summary: "Summary") -> Iterator[str]:
    """Yield what became of a tokenize, so that a wrong time unit or many rejects are seen."""
    shared = summary.prefix_tokens / summary.prompt_tokens if summary.prompt_tokens else 0.0
    yield (
        f"{trace}: {_counted(summary.requests, 'request')},"
        f" {_counted(summary.prompt_tokens, 'prompt token')},"
        f" {shared:.1%} of them a prefix of an earlier request"
    )
    yield from _of_times(summary)
    families = ", ".join(f"{lines:,} {name}" for name, lines in summary.families.most_common())
    yield f"{_counted(summary.lines, 'line')}: {families}"
    for what, counted in (
        ("skipped", summary.skips),
        ("rejected", summary.rejects),
        ("read leniently", summary.repairs),
    ):
        for reason, lines in counted.most_common():
            yield f"{what} {lines:,}: {reason}"
    if summary.rejects_file:
        yield f"rejected lines are listed in {summary.rejects_file}"
    for prompts, what in (
        (summary.cut, "cut by the logger: only the head is known"),
        (summary.token_ids, "taken as the token ids that the log holds"),
        (summary.renamed, "numbered, because an earlier request has the same id"),
    ):
        if prompts:
            yield f"{_counted(prompts, 'prompt')} {what}"
    if summary.without_output:
        without = _counted(summary.without_output, "request")
        yield f"{without} without output ids: their answers are not in the log"
    if summary.resumed:
        yield f"{_counted(summary.resumed, 'log')} had been read by a run that was interrupted"
    yield from (f"warning: {warning}" for warning in summary.warnings)


def _of_times(summary: "Summary") -> Iterator[str]:
    seconds = (summary.last_us - summary.first_us) / 1e6
    if seconds:
        first, last = (_moment(us) for us in (summary.first_us, summary.last_us))
        yield (
            f"arrivals from {first} to {last} ({timedelta(seconds=round(seconds, 3))},"
            f" {summary.requests / seconds:.3g} requests/s)"
        )
    notes = list(dict.fromkeys(summary.time_notes))
    yield from notes[:_NOTES]
    if len(notes) > _NOTES:
        yield f"… and {_counted(len(notes) - _NOTES, 'more log')}"
    if summary.ties and seconds:
        tied = _counted(summary.ties, "request")
        yield f"{tied} at the same time as the one before: in the order of the log"
    if summary.largest_step_back_us:
        step = timedelta(microseconds=summary.largest_step_back_us)
        yield f"not in order of time, by up to {step}: sorted"
    if summary.looks_reversed:
        yield (
            "warning: the log looks reversed: most prompts that share a beginning come before"
            " the shorter ones that they extend"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def run_summary(target: Path, result: dict[str, Any]) -> Iterator[str]:
    """Yield the heading of a run's comparison."""
    fleet, config, trace = result["config"]["fleet"], result["config"], result["trace"]
    clock = config["chosen_clock"]
    if clock == "arrivals":
        clock += f", {config['clock']['decay_ms_per_arrival']:g} ms each"
    replayed = result["replayed"]
    all_of_them = replayed["requests"] == trace["requests"]
    of = "" if all_of_them else f" of {trace['requests']:,}"
    yield (
        f"{replayed['requests']:,}{of} requests over {fleet['replicas']} replicas of"
        f" {_fleet(fleet)}; clock: {clock}; run: {target}"
    )
    yield f"engine: {_engine(config)}; hit ratio: {_hit_ratio(config, replayed)}"
    routing = config["routing"]
    asked = [f"{n.replace('_', '-')} {routing[n]}" for n in _ROUTING if routing[n] is not None]
    if asked:
        yield f"routers: {', '.join(asked)}"
    if replayed["unmet_absences"]:
        yield (
            f"warning: {_counted(replayed['unmet_absences'], 'absence')} before the first request"
            " of the trace or after the last: nothing comes of it"
        )
    if replayed["without_output_tokens"]:
        yield (
            f"warning: {_counted(replayed['without_output_tokens'], 'request')} without"
            " output_tokens: completed with the first token"
        )
    yield ""


def _fleet(fleet: dict[str, Any]) -> str:
    """Return how much a replica keeps, and what else is particular to the fleet."""
    sizes = sorted({replica["capacity_tokens"] for replica in fleet["each"]})
    kept = f"{sizes[0] if sizes else fleet['capacity_tokens']:,}"
    if len(sizes) > 1:
        kept += f" to {sizes[-1]:,}"
    speeds = sorted({replica["speed"] for replica in fleet["each"]})
    differ = f", speed {speeds[0]:g} to {speeds[-1]:g}" if len(speeds) > 1 else ""
    away = f", {_counted(len(fleet['absences']), 'absence')}" if fleet["absences"] else ""
    return f"{kept} tokens{differ}{away}"


def _engine(config: dict[str, Any]) -> str:
    """Return the name of the engine, and which of its settings are not the preset's."""
    engine, preset = config["engine"], asdict(ENGINES[config["engine"]["name"]])
    changed = [
        f"{name.replace('_', '-')} {str(value).lower()}"
        for name, value in (engine | {"block_tokens": config["chosen_block_tokens"]}).items()
        if value != preset[name] and name != "own_blocks"
    ]
    return " with ".join([engine["name"], ", ".join(changed)] if changed else [engine["name"]])


def _hit_ratio(config: dict[str, Any], replayed: dict[str, int]) -> str:
    """Return which hit ratio it is that is printed."""
    most = " (at most prompt - 1)" if config["engine"]["recompute_last_token"] else ""
    warmup = replayed["requests"] - replayed["counted_requests"]
    span = f"after the first {_counted(warmup, 'request')}" if warmup else "whole run"
    if replayed["warmup_trace_requests"]:
        span += f", warmed up by {_counted(replayed['warmup_trace_requests'], 'request')}"
    return f"matched{most} / prompt tokens of served requests, {span}"


_MOST_SIDE_BY_SIDE = 6
_OF_MANY = (
    "policy",
    "rejected",
    "failed",
    "cache_hit_ratio",
    "evicted_ratio",
    "elsewhere_ratio",
    "mean_ttft_ms",
    "p50_ttft_ms",
    "p99_ttft_ms",
    "evicted_tokens",
    "requests_max_over_mean",
    "idle_replicas",
)
_OF_SEEDS = ("cache_hit_ratio", "mean_ttft_ms", "p99_ttft_ms", "requests_max_over_mean")


def comparison_table(comparison: pa.Table) -> pa.Table:
    """Return a few policies side by side; of many, the columns that matter, a row each."""
    if len(comparison) <= _MOST_SIDE_BY_SIDE:
        return transposed(comparison, "policy")
    return comparison.select(_OF_MANY)


def seeds_table(seeds: pa.Table) -> pa.Table:
    """Return what the report seeds says of policies that choose at random, as mean ± deviation."""
    return pa.Table.from_pylist(
        [
            {
                "policy": row["policy"],
                "seeds": row["seeds"],
                **{name: _spread(row, name) for name in _OF_SEEDS},
            }
            for row in seeds.to_pylist()
            if row["seeds"] > 1
        ]
    )


def _spread(row: dict[str, Any], name: str) -> str:
    mean = row[f"mean_{name}"]
    return "" if mean is None else f"{mean} ± {row[f'stddev_{name}']}"


def comparison_json(
    result: dict[str, Any], comparison: pa.Table, seeds: pa.Table | None
) -> dict[str, Any]:
    """Return a run's configuration, timings and totals, with the comparison's percentiles.

    With several seeds, also mean and spread of each policy, as the report seeds has them.
    """
    rows = {row.pop("policy"): row for row in comparison.to_pylist()}
    parts = {name: result[name] for name in ("trace", "replayed", "config", "timings")}
    policies = {
        policy: {**totals, **{k: v for k, v in rows[policy].items() if k not in totals}}
        for policy, totals in result["totals"].items()
    }
    if seeds is not None:
        spread = {row.pop("policy"): row for row in seeds.to_pylist()}
        for policy, told in policies.items():
            told["over_seeds"] = spread[policy]
    return {**parts, "policies": policies}


def _moment(microseconds: int) -> str:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    return moment.isoformat(sep=" ", timespec="milliseconds")
