"""The command `describe`: what is in a trace."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipeline.cli.options import PATH, load_kernels, write

if TYPE_CHECKING:  # `--help` is instant
    import pyarrow as pa

    from pipeline.describe import Section


@click.command()
@click.argument("trace", type=PATH)
@click.option("--block-tokens", type=int, default=1,
              help="Tokens of a cache block: only full blocks count as hits.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table",
              help="How the tables are printed.")  # fmt: skip
@click.option("--sql", "as_sql", is_flag=True,
              help="Print the plain SQL among it, for DuckDB, instead of the tables.")  # fmt: skip
def describe(trace: Path, block_tokens: int, form: str, *, as_sql: bool) -> None:
    """Tell what is in TRACE before any replay.

    How much, whose, which prefixes are shared, how much an unlimited cache would save within
    sessions and across them, and how long a prefix must be kept to be found again.

    Example: replay describe traces/day1.parquet --block-tokens 16
    """
    from pipeline.describe import describe_sql, describe_trace

    if as_sql:
        write([describe_sql(trace, block_tokens).encode()])
        return
    load_kernels()
    sections = describe_trace(trace, block_tokens)
    text = _as_json(sections) if form == "json" else _as_tables(sections)
    write([text.encode()])


def _as_json(sections: "list[Section]") -> str:
    """Return one object with a list of rows for each section; the overview is a row."""
    from pipeline.report import render

    told = {s.name: json.loads(b"".join(render(s.rows, "json"))) for s in sections}
    [told["overview"]] = told["overview"]
    return json.dumps(told, indent=2, ensure_ascii=False) + "\n"


def _as_tables(sections: "list[Section]") -> str:
    """Return each section as a table under its question; the overview's columns as rows."""
    from pipeline.report import render, transposed

    texts = []
    for name, question, rows in sections:
        shown = transposed(_joined(rows, "sources"), "trace") if name == "overview" else rows
        texts.append(f"{name}: {question}\n\n{b''.join(render(shown, 'table')).decode()}")
    return "\n".join(texts)


def _joined(rows: "pa.Table", name: str) -> "pa.Table":
    """Return a table whose lists in a column became text."""
    texts = [[", ".join(values) for values in rows[name].to_pylist()]]
    return rows.set_column(rows.column_names.index(name), name, texts)
