"""The command `engines`: the presets of --engine in full."""

import click

from pipeline.cli.options import rows_format, write
from pipeline.config import ENGINES, EngineConfig


@click.command()
@rows_format
def engines(form: str) -> None:
    """List the presets of --engine with all their settings.

    Each setting is an option of `replay run`, which goes before the preset.

    Example: replay engines
    """
    from dataclasses import fields

    import pyarrow as pa

    from pipeline.report import render

    hidden = ("name", "own_blocks")
    settings = [f.name for f in fields(EngineConfig) if f.name not in hidden]
    columns: dict[str, list[str]] = {"setting": [name.replace("_", "-") for name in settings]}
    for engine in ENGINES.values():
        told = {name: str(getattr(engine, name)).lower() for name in settings}
        if engine.own_blocks:
            told["block_tokens"] += ", or the block trace's own"
        columns[engine.name] = list(told.values())
    write(render(pa.table(columns), form))
