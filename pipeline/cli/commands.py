"""The commands of `replay`; each imports its stage when it runs, so that `--help` is instant."""

import json
from pathlib import Path
from typing import Any

import click

import pipeline
from pipeline.cli.describe import describe
from pipeline.cli.engines import engines
from pipeline.cli.explain import explain
from pipeline.cli.group import ReplayGroup, run_command
from pipeline.cli.options import (
    PATH,
    fleet_options,
    load_kernels,
    replay_config,
    rows_format,
    write,
)
from pipeline.cli.policies import policies
from pipeline.cli.tokenize import formats, tokenize
from pipeline.config import DEFAULT_BATCH_REQUESTS

_CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True, "max_content_width": 100}


@click.group(cls=ReplayGroup, context_settings=_CONTEXT)
@click.version_option(pipeline.__version__, "-V", "--version", prog_name="replay")
def cli() -> None:
    """Replay yesterday's requests through a fleet of LLM replicas, and ask why in SQL.

    \b
    replay tokenize gateway.jsonl.zst -o day1.parquet
    replay day1.parquet --replicas 8
    replay report runs/day1 miss_reasons
    replay sql runs/day1 "select policy, count(*) from decisions group by policy"
    """  # noqa: D301 - \b is click's mark, not an escape


@cli.command()
@click.argument("trace", type=PATH)
@click.option("-o", "--output", type=PATH, metavar="RUN",
              help="Run folder to write.  [default: runs/NAME OF THE TRACE]")  # fmt: skip
@fleet_options
@click.option("--batch-requests", type=int, default=DEFAULT_BATCH_REQUESTS,
              help="Requests replayed and written at a time.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table",
              help="How the comparison is printed.")  # fmt: skip
def run(trace: Path, output: Path | None, batch_requests: int, form: str, **options: Any) -> None:
    """Replay TRACE under each policy and compare them.

    Every decision is written to a run folder.

    `replay TRACE` is short for `replay run TRACE`.

    Example: replay traces/day1.parquet --replicas 8 --policy cache_aware
    """
    config = replay_config(options)
    target = output or Path("runs", trace.stem)
    from pipeline.run import replay_trace

    result = replay_trace(trace, target, config, batch_requests)
    _print_comparison(target, result, form)


@cli.command()
@click.argument("trace", type=PATH)
@click.option("-o", "--output", type=PATH, metavar="TRACE", required=True,
              help="Trace to write.")  # fmt: skip
def link(trace: Path, output: Path) -> None:
    """Write TRACE with fresh row numbers and prefix links.

    A trace that was filtered or joined needs them.

    Example: replay link filtered.parquet -o tenant-a.parquet
    """
    load_kernels()
    from pipeline.prepare import write_links
    from pipeline.trace import TraceFile

    write_links(TraceFile.open(trace), output)


@cli.command("drop-tokens")
@click.argument("trace", type=PATH)
@click.option("-o", "--output", type=PATH, metavar="TRACE", required=True,
              help="Trace to write.")  # fmt: skip
def drop_tokens(trace: Path, output: Path) -> None:
    """Write TRACE without its token ids.

    Nobody can read its prompts, and it replays to the same decisions.

    Example: replay drop-tokens day1.parquet -o day1-anonymous.parquet
    """
    load_kernels()
    from pipeline.prepare import drop_tokens as write_without_tokens
    from pipeline.trace import TraceFile

    write_without_tokens(TraceFile.open(trace), output)


@cli.command()
@click.argument("run_folder", metavar="RUN", type=PATH)
@click.argument("names", metavar="[NAME]...", nargs=-1)
@rows_format
def report(run_folder: Path, names: tuple[str, ...], form: str) -> None:
    """Print reports on RUN: all of them, or those named.

    Example: replay report runs/day1 policy_comparison by_tenant
    """
    from pipeline.report import find_report, list_reports, open_run, render, select

    reports = [find_report(name) for name in names] or list_reports()
    if form != "table" and len(reports) != 1:
        raise click.UsageError(f"--format {form} prints one report only: name one")
    connection = open_run(run_folder)
    for number, one in enumerate(reports):
        if form == "table" and len(reports) > 1:
            click.echo(f"{'' if number == 0 else chr(10)}{one.name}: {one.question}\n")
        write(render(select(connection, one.sql), form))


@cli.command()
@click.argument("run_folder", metavar="RUN", type=PATH)
@click.argument("query", metavar="SQL")
@rows_format
def sql(run_folder: Path, query: str, form: str) -> None:
    """Run one SQL statement over the tables of RUN.

    They are the views decisions, evictions, replicas, settings, policies, timings and trace;
    all_decisions and all_evictions have the rows of the warm-up too, seed_decisions and
    seed_replicas those of every seed.

    Example: replay sql runs/day1 "select max(ttft_ms) from decisions where tenant = 'agent'"
    """
    from pipeline.report import open_run, render, select

    write(render(select(open_run(run_folder), query), form))


@cli.command()
@click.argument("run_folder", metavar="RUN", type=PATH)
def views(run_folder: Path) -> None:
    """Print the SQL that opens RUN in any DuckDB.

    Example: replay views runs/day1 > views.sql && duckdb -init views.sql
    """
    from pipeline.report import views_sql

    click.echo(views_sql(run_folder), nl=False)


@cli.command()
def burst() -> None:
    """Compare the three policies on a burst of one tenant.

    Prints the comparison of the online objects as JSON.
    """
    mode = "online objects on a fixed workload; times follow assumed costs, nothing is measured"
    result = {"execution_mode": mode, **pipeline.simulate_routing_comparison()}
    click.echo(json.dumps(result, indent=2))


cli.add_command(tokenize)
cli.add_command(formats)
cli.add_command(describe)
cli.add_command(explain)
cli.add_command(engines)
cli.add_command(policies)


def main() -> None:
    """Run the command line."""
    run_command(cli)


def _print_comparison(target: Path, result: dict[str, Any], form: str) -> None:
    from pipeline.cli.summaries import (
        comparison_json,
        comparison_table,
        run_summary,
        seeds_table,
    )
    from pipeline.report import find_report, open_run, render, select

    connection = open_run(target)
    rows = select(connection, find_report("policy_comparison").sql)
    seeds = None
    if result["config"]["routing"]["seeds"] > 1:
        seeds = select(connection, find_report("seeds").sql)
    if form == "json":
        click.echo(json.dumps(comparison_json(result, rows, seeds), indent=2))
        return
    for line in run_summary(target, result):
        click.echo(line)
    write(render(comparison_table(rows), "table"))
    if seeds is not None:
        seed = result["config"]["routing"]["seed"]
        click.echo(f"\nabove: seed {seed}; over all seeds, mean ± standard deviation of a run:\n")
        write(render(seeds_table(seeds), "table"))
