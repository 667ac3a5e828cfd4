"""`replay tokenize` and `replay formats`."""

import glob
from pathlib import Path
from typing import Any

import click

from pipeline.cli.options import PATH, load_kernels, note, progress_bar, rows_format, write


def _share(_ctx: click.Context, _param: click.Parameter, value: str) -> float:
    """Read a share, as 0.01 or 1%."""
    try:
        return float(value[:-1]) / 100 if value.endswith("%") else float(value)
    except ValueError:
        raise click.BadParameter(f"{value!r} is no share: write 1% or 0.01") from None


def _columns(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """Read our=theirs pairs, several in one value or option."""
    pairs = [pair for value in values for pair in value.split(",") if pair]
    named = [pair.partition("=") for pair in pairs]
    for our, sign, theirs in named:
        if not (our and sign and theirs):
            raise click.BadParameter(f"{our!r}: write OURS=THEIRS, for example prompt=text")
    return {our.strip(): theirs.strip() for our, _, theirs in named}


@click.command()
@click.argument("logs", type=PATH, nargs=-1, required=True)
@click.option("-o", "--output", type=PATH, metavar="TRACE", required=True,
              help="Trace to write.")  # fmt: skip
@click.option("--log-format", metavar="NAME", help="Format of all lines; `replay formats` lists"
              " them.  [default: each line by its marks]")  # fmt: skip
@click.option("--columns", multiple=True, callback=_columns, metavar="OURS=THEIRS,…",
              help="Names of the log's fields, for example prompt=text,timestamp=ts.")  # fmt: skip
@click.option("--tokenizer", default="qwen3", help="qwen3, qwen3.5, cl100k, o200k, llama3,"
              " deepseek; a tokenizer.json, .tiktoken or tekken.json; a model's folder, or its hub"
              " name if it is in the local cache.")  # fmt: skip
@click.option("--tokenizer-map", type=PATH, help="TOML file with tokenizers for some models:"
              " [[model]] match, tokenizer, chat_template.")  # fmt: skip
@click.option("--chat-template", metavar="NAME|FILE", help="chatml, llama3, mistral, deepseek,"
              " plain, or a jinja file.  [default: the tokenizer's own]")  # fmt: skip
@click.option("--special-tokens-in-text", type=click.Choice(["control", "text"]),
              default="control", help="What <|im_end|> in a user's text is.")  # fmt: skip
@click.option("--image-tokens", type=int, default=256, help="Tokens that stand for an image.")
@click.option("--audio-tokens", type=int, default=256, help="Tokens for sound or video.")
@click.option("--fast/--no-fast", default=None, help="Use the engine of the extra [fast].  "
              "[default: if it is installed and agrees]")  # fmt: skip
@click.option("--time-unit", type=click.Choice(["s", "ms", "us", "ns"]), default=None,
              help="Unit of the logs' times.  [default: by their size]")  # fmt: skip
@click.option("--time-zone", metavar="ZONE", help="Zone of dates that name none.  [default: UTC]")
@click.option("--spread-ties", is_flag=True, help="Spread the requests of a second over it, where"
              " a log knows only seconds.")  # fmt: skip
@click.option("--session-starts", metavar="HOW", help="When sessions start whose times count from"
              " their own start: together, in-turn, every:SECONDS, random:SECONDS.")  # fmt: skip
@click.option("--block-ids", type=click.Choice(["file", "global"]), default=None,
              help="Whether equal block ids of two logs are equal blocks.")  # fmt: skip
@click.option("--namespaces", type=click.Choice(["log", "none"]), default="log",
              help="none: requests share KV whatever their model, LoRA or cache salt.")  # fmt: skip
@click.option("--cut-prompts", type=click.Choice(["reject", "prefix"]), default="reject",
              help="What to do with prompts that the logger cut.")  # fmt: skip
@click.option("--failed-requests", type=click.Choice(["skip", "keep"]), default="skip",
              help="What to do with requests that failed before prefill.")  # fmt: skip
@click.option("--retries", type=click.Choice(["last", "all"]), default="last",
              help="Which attempts of one request to keep.")  # fmt: skip
@click.option("--retry-window", "retry_window_s", type=float, default=600.0, metavar="SECONDS",
              help="Attempts further apart are requests of their own.")  # fmt: skip
@click.option("--max-rejects", callback=_share, default="1%",
              help="Largest share of lines that may be rejected.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Accept no rejected line: --max-rejects 0.")
@click.option("--keep-rejected-text", is_flag=True,
              help="Write rejected lines with their text.")  # fmt: skip
@click.option("--max-prompt-tokens", type=int, default=2_000_000,
              help="Longer prompts are rejected.")  # fmt: skip
@click.option("--output-ids", is_flag=True, help="Tokenize answers too, for --cache-output: their"
              " text as it is logged, without a token that ends the turn.")  # fmt: skip
@click.option("--no-tokens", is_flag=True, help="Write the links without the token ids.")
@click.option("--progress/--no-progress", default=True, help="Say how far it is.")
def tokenize(
    logs: tuple[Path, ...],
    output: Path,
    *,
    strict: bool,
    no_tokens: bool,
    progress: bool,
    **options: Any,
) -> None:
    """Make a TRACE of request LOGS.

    LOGS are files in any of the formats that `replay formats` lists, plain or compressed (gzip,
    zstd, bzip2, xz, lz4), patterns such as 'logs/*.zst', or - for standard input. Lines that
    can't become requests are counted and listed in TRACE.rejects.jsonl. An interrupted run goes
    on with the files that it hasn't read.

    Example: replay tokenize gateway-*.jsonl.zst -o day1.parquet
    """
    from pipeline.encode.settings import TokenizeSettings

    if strict:
        options["max_rejects"] = 0.0
    settings = TokenizeSettings(keep_tokens=not no_tokens, **options)
    load_kernels()
    from pipeline.cli.summaries import tokenize_summary
    from pipeline.tokenize import tokenize_logs

    found = _found(logs)
    total = sum(log.stat().st_size for log in found if log.is_file())
    with progress_bar("tokenize", total if progress else 0) as advance:
        summary = tokenize_logs(found, output, settings, progress=advance)
    for line in tokenize_summary(output, summary):
        note(line)


def _found(logs: tuple[Path, ...]) -> list[Path]:
    """Return the files that names and patterns stand for, in the order given."""
    found = []
    for log in logs:
        if log.exists() or not glob.has_magic(str(log)):
            found.append(log)
            continue
        matches = sorted(glob.glob(str(log), recursive=True))  # noqa: PTH207 - may be absolute
        if not matches:
            raise click.UsageError(f"{log}: no file matches")
        found += [Path(match) for match in matches]
    return found


@click.command()
@rows_format
def formats(form: str) -> None:
    """List the log formats and their marks.

    Example: replay formats
    """
    import pyarrow as pa

    from pipeline.logs.families import FAMILIES
    from pipeline.report import render

    rows = [
        {
            "format": family.name,
            "written by": family.written_by,
            "mark": family.mark,
            "refused": family.refused,
        }
        for family in sorted(FAMILIES, key=lambda family: family.name)
    ]
    write(render(pa.Table.from_pylist(rows), form))
