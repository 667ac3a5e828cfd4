"""Options shared by commands, and notes on stderr."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import click

from pipeline.cli.routing_options import fleet_of, policies_of, routing_of, routing_options
from pipeline.config import (
    CACHE_UNITS,
    CLOCKS,
    IN_FLIGHT,
    PARTIAL_BLOCKS,
    REFRESHES,
    WHEN_FULL,
    ClockConfig,
    CostModel,
    EngineConfig,
    ReplayConfig,
    SubsetConfig,
    find_engine,
)
from pipeline.errors import UsageError

Command = Callable[..., Any]
Config = TypeVar("Config", CostModel, ClockConfig, SubsetConfig)
PATH = click.Path(path_type=Path)
DEFAULTS = ReplayConfig()
_SECONDS_BETWEEN_LINES = 30

rows_format = click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    default="table",
    help="How rows are printed.",
)


def fleet_options(command: Command) -> Command:
    """Add the options that make a ReplayConfig."""
    for option in reversed(
        [
            click.option("--prefill-ms-per-token", type=float,
                         default=DEFAULTS.cost.prefill_ms_per_token,
                         help="Cost of a token that has to be computed."),
            click.option("--lookup-ms-per-token", type=float,
                         default=DEFAULTS.cost.lookup_ms_per_token,
                         help="Cost of a token found in the cache."),
            click.option("--clock", type=click.Choice(CLOCKS), default=None,
                         help="Queues drain by a fixed amount with every arrival, or by the time"
                         " between arrivals.  [default: timestamps if the trace has them]"),
            click.option("--decay-ms-per-arrival", type=float,
                         default=DEFAULTS.clock.decay_ms_per_arrival,
                         help="The fixed amount, for --clock arrivals."),
            click.option("--decode-ms-per-token", type=float,
                         default=DEFAULTS.cost.decode_ms_per_token,
                         help="Time of an output token, for --in-flight pins."),
            click.option("--engine", metavar="NAME", default="reference",
                         help="Preset of the settings below: reference, sglang or vllm; see"
                         " `replay engines`."),
            click.option("--cache-unit", type=click.Choice(CACHE_UNITS), default=None,
                         help="What is evicted: whole leaves, or single blocks."),
            click.option("--block-tokens", type=int, default=None,
                         help="Tokens of a block: only whole blocks are found again."),
            click.option("--partial-block", type=click.Choice(PARTIAL_BLOCKS), default=None,
                         help="What becomes of a prompt's last block if it is not full."),
            click.option("--recompute-last-token/--no-recompute-last-token", default=None,
                         help="Whether a hit leaves at least the last token to compute."),
            click.option("--refresh", type=click.Choice(REFRESHES), default=None,
                         help="Look-ups that count as use: all, that of the chosen replica,"
                         " none."),
            click.option("--in-flight", type=click.Choice(IN_FLIGHT), default=None,
                         help="Requests come one after another, or pin their path until they"
                         " complete."),
            click.option("--when-full", type=click.Choice(WHEN_FULL), default=None,
                         help="What a request does if all that could be evicted is pinned."),
            click.option("--cache-output/--no-cache-output", default=None,
                         help="Whether prompt and output are kept when a request completes."),
            click.option("--where", metavar="SQL",
                         help="Replay the requests for which this is true: a DuckDB predicate on"
                         " the trace's columns."),
            click.option("--sample", type=float, default=DEFAULTS.subset.sample,
                         help="Replay this share of the sessions."),
            click.option("--warmup", type=PATH, metavar="TRACE",
                         help="Replay this trace first, and don't report it."),
            click.option("--warmup-fraction", type=float, default=DEFAULTS.subset.warmup_fraction,
                         help="Don't count this share of the requests, the first ones."),
        ]
    ):  # fmt: skip
        command = option(command)
    return routing_options(command)


def replay_config(options: dict[str, Any]) -> ReplayConfig:
    """Return the configuration that the options of `fleet_options` ask for.

    Kernels are loaded for it, as policies are.
    """
    warmup, routing = options["warmup"], routing_of(options)
    config = ReplayConfig(
        fleet=fleet_of(options),
        engine=_engine(options),
        cost=_taken(CostModel, options),
        clock=_taken(ClockConfig, options),
        subset=_taken(
            SubsetConfig, {**options, "warmup": str(warmup.resolve()) if warmup else None}
        ),
        routing=routing,
    )
    load_kernels()
    return replace(config, policies=policies_of(options, routing))


def _taken(kind: type[Config], options: dict[str, Any]) -> Config:
    """Make a configuration of the options that are called as its fields."""
    return kind(**{field.name: options[field.name] for field in fields(kind)})


def _engine(options: dict[str, Any]) -> EngineConfig:
    """Return the preset, with each setting that was given in place of its own."""
    preset = find_engine(options["engine"])
    given: dict[str, Any] = {f.name: options.get(f.name) for f in fields(preset)}
    given = {name: value for name, value in given.items() if value is not None}
    if "block_tokens" in given:
        given["own_blocks"] = False
    engine = replace(preset, **given)
    if "when_full" in given and engine.in_flight == "none":
        raise UsageError("when-full says nothing without --in-flight pins: give both, or neither")
    return engine


def note(message: str) -> None:
    """Say something on stderr."""
    click.echo(f"replay: {message}", err=True)


def load_kernels() -> None:
    """Import what holds kernels, saying so if they have to be compiled first."""
    from pipeline.kernel import is_cold

    if is_cold():
        note("compiling the kernels, once; this takes some fifteen seconds")


def write(pieces: Iterable[bytes]) -> None:
    """Write a result to stdout."""
    for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


@contextmanager
def progress_bar(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many bytes are done.

    A terminal gets a bar; anything else a line every half minute.
    """
    if not total:
        yield lambda _: None
    elif sys.stderr.isatty():
        begun = time.monotonic()
        with click.progressbar(
            length=total, label=label, file=sys.stderr, item_show_func=lambda rate: rate
        ) as bar:

            def advance(done: int) -> None:
                rate = done / max(time.monotonic() - begun, 1e-3)
                bar.update(done - bar.pos, f"{rate / 1e6:.1f} MB/s")

            yield advance
    else:
        yield _Lines(label, total)


class _Lines:
    """Progress as lines of a log."""

    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._begun = self._said = time.monotonic()

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said < _SECONDS_BETWEEN_LINES or not done:
            return
        self._said = now
        rate = done / (now - self._begun)
        left = timedelta(seconds=round(max(self._total - done, 0) / rate))
        note(
            f"{self._label}: {done / 1e6:,.0f} of {self._total / 1e6:,.0f} MB,"
            f" {rate / 1e6:.1f} MB/s, {left} left"
        )
