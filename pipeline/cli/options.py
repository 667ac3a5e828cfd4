"""Options shared by commands, and notes on stderr."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from pipeline.config import CLOCKS, ClockConfig, CostModel, FleetConfig, ReplayConfig

Command = Callable[..., Any]
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
            click.option("--policy", "policies", multiple=True, metavar="NAME",
                         help="Routing policy; may be repeated.  "
                         f"[default: {', '.join(DEFAULTS.policies)}]"),
            click.option("--replicas", type=int, default=DEFAULTS.fleet.replicas,
                         help="Number of replicas."),
            click.option("--capacity-tokens", type=int, default=DEFAULTS.fleet.capacity_tokens,
                         help="KV cache of one replica, in tokens."),
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
            click.option("--probe-refreshes-recency/--no-probe-refreshes-recency",
                         default=DEFAULTS.probe_refreshes_recency,
                         help="Whether looking a prompt up counts as using what it finds."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


def replay_config(options: dict[str, Any]) -> ReplayConfig:
    """Return the configuration that the options of `fleet_options` ask for."""
    return ReplayConfig(
        fleet=FleetConfig(options["replicas"], options["capacity_tokens"]),
        cost=CostModel(options["prefill_ms_per_token"], options["lookup_ms_per_token"]),
        clock=ClockConfig(options["clock"], options["decay_ms_per_arrival"]),
        probe_refreshes_recency=options["probe_refreshes_recency"],
        policies=options["policies"] or DEFAULTS.policies,
    )


def note(message: str) -> None:
    """Say something on stderr."""
    click.echo(f"replay: {message}", err=True)


def load_kernels() -> None:
    """Import what holds kernels, saying so if they have to be compiled first."""
    from pipeline.kernel import is_cold

    if is_cold():
        note("compiling the kernels, once; this takes about ten seconds")


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
