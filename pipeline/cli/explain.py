"""The command `explain`: one request of a run."""

import json
from pathlib import Path

import click

from pipeline.cli.options import PATH, load_kernels, write


@click.command()
@click.argument("run_folder", metavar="RUN", type=PATH)
@click.argument("request_id", metavar="REQUEST_ID")
@click.option("--policy", "policies", metavar="NAME", multiple=True,
              help="Explain it under this policy of the run.  [default: all]")  # fmt: skip
@click.option("--seq", type=int, metavar="N",
              help="Row of the request in the trace, if others have its id.")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text",
              help="How it is printed; json has every eviction.")  # fmt: skip
def explain(
    run_folder: Path, request_id: str, policies: tuple[str, ...], seq: int | None, form: str
) -> None:
    """Explain what happened to one request of RUN.

    What each replica held of it, its queue and its score, who was chosen and why, what became of
    the prompt's tokens, what was evicted for it and who had brought that. The trace is replayed
    up to that request for it.

    Example: replay explain runs/day1 agent-0007-03 --policy cache_aware
    """
    if len(policies) > 1:
        raise click.UsageError("give --policy once, or not at all for every policy of the run")
    load_kernels()
    from pipeline.explain import as_text, explain_request

    told = explain_request(run_folder, request_id, policies[0] if policies else None, seq)
    text = as_text(told)
    if form == "json":
        text = json.dumps(told, indent=2, ensure_ascii=False) + "\n"
    write([text.encode(errors="replace")])
