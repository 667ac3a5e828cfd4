"""The command `policies`: the routing policies, and all about one."""

from collections.abc import Iterator
from inspect import cleandoc
from typing import TYPE_CHECKING

import click

from pipeline.cli.options import rows_format, write
from pipeline.config import TIES

if TYPE_CHECKING:  # policies bring numba
    import pyarrow as pa

    from pipeline.replay.policies.rule import Policy


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
@rows_format
def policies(name: str | None, form: str) -> None:
    """List the routing policies, or tell all about one.

    NAME is one of them, or MODULE:FUNCTION for one of your own. It is told what it does, by which
    parameters, and what decides; in other formats than a table only the parameters. Each of them
    can be set in --policy NAME:parameter=value,… of `replay run`.

    Example: replay policies cache_aware
    """
    from pipeline.replay.policies.spec import every_policy, find_policy
    from pipeline.report import render

    if name is None:
        rows = _overview({one: find_policy(one).policy for one in every_policy()})
        write(render(rows, form))
        return
    policy = find_policy(name).policy
    if form != "table":
        write(render(_settings(policy), form))
        return
    click.echo(f"{cleandoc(policy.rule.__doc__ or 'It has no docstring.')}\n")
    write(render(_settings(policy), form))
    if policy.scores:
        click.echo()
        write(render(_scores(policy), form))


def _overview(table: "dict[str, Policy]") -> "pa.Table":
    """Return one row a policy."""
    import pyarrow as pa

    from pipeline.replay.policies.spec import shown

    rows = [
        {
            "policy": name,
            "rule": _first_line(policy),
            "source": policy.source,
            "view": ", ".join(_view(policy)),
            "tie": policy.tie or "none left open",
            "parameters": ",".join(f"{p.name}={shown(p.default)}" for p in policy.parameters),
        }
        for name, policy in table.items()
    ]
    return pa.Table.from_pylist(rows)


def _first_line(policy: "Policy") -> str:
    """Return a policy's rule in a sentence."""
    return cleandoc(policy.rule.__doc__ or "").partition("\n")[0]


def _view(policy: "Policy") -> Iterator[str]:
    """Yield what a policy's router sees, and for routed what it remembers."""
    from pipeline.replay.policies.spec import shown

    yield policy.view
    if policy.view == "routed":
        yield _memory(policy)
        if policy.router_ttl_ms is not None:
            yield f"{shown(policy.router_ttl_ms)} ms"


def _memory(policy: "Policy") -> str:
    """Return how much a router remembers of a replica."""
    from pipeline.replay.policies.rule import FOREVER

    if policy.router_tokens == FOREVER:
        return "without limit"
    if policy.router_tokens == 0:
        return "as much as it keeps"
    return f"{policy.router_tokens} tokens"


def _settings(policy: "Policy") -> "pa.Table":
    """Return one row a parameter, those of every policy last."""
    import pyarrow as pa

    from pipeline.replay.policies.spec import range_of, shown

    ttl_ms = policy.router_ttl_ms
    rows = [
        (p.name, shown(p.default), range_of(p) + (", whole" if p.whole else ""), p.meaning)
        for p in policy.parameters
    ]
    rows += [
        ("router_view", policy.view, "exact, lag:MS, routed", "what its router sees"),
        ("router_capacity_tokens", _memory(policy), "0 for as much as it keeps, or more",
         "for routed: what the router remembers of a replica"),
        ("router_ttl_ms", "for ever" if ttl_ms is None else shown(ttl_ms), "more than 0",
         "for routed: how long it remembers"),
    ]  # fmt: skip
    if policy.tie is not None:
        rows.append(("tie", policy.tie, ", ".join(TIES), "which of equal replicas is chosen"))
    names = ("parameter", "default", "range", "meaning")
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def _scores(policy: "Policy") -> "pa.Table":
    """Return one row for each thing that can decide: decided_by of a decision."""
    import pyarrow as pa

    rows = [
        {
            "decided_by": score.name,
            "best": score.best,
            "unit": score.unit,
            "if_all_are_0": score.without.format_map({"first_token_id": "T", "replicas": "N"}),
        }
        for score in policy.scores
    ]
    return pa.Table.from_pylist(rows)
