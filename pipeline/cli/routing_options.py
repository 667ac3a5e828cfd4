"""Options of routing: policies, what routers see, ties and chance, and replicas that differ."""

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from pipeline.config import TIES, FleetConfig, ReplayConfig, RoutingConfig
from pipeline.errors import UsageError
from pipeline.toml_files import read_fleet, read_policies

_FILE = click.Path(path_type=Path)
_FLEET, _ROUTING, _POLICIES = FleetConfig(), RoutingConfig(), ReplayConfig().policies


def routing_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that make a FleetConfig, a RoutingConfig and a run's policies."""
    for option in reversed(
        [
            click.option("--policy", "policies", multiple=True, metavar="NAME",
                         help="Routing policy: NAME, NAME:parameter=value,…, MODULE:FUNCTION, or"
                         " all; see `replay policies`. May be repeated."
                         f"  [default: {', '.join(_POLICIES)}]"),
            click.option("--policies", "policies_file", type=_FILE, metavar="FILE.toml",
                         help="More policies: a [[policy]] table each, with its name and"
                         " parameters."),
            click.option("--router-view", metavar="VIEW", default=None,
                         help="What routers see of the caches and loads: exact, lag:MS (the same,"
                         " but late, their own requests in flight included), or routed (of the"
                         " caches only what they sent where).  [default: each policy's own]"),
            click.option("--router-capacity-tokens", type=int, default=None,
                         help="What a router remembers of each replica, for routed; 0: as much as"
                         " it keeps.  [default: each policy's own]"),
            click.option("--router-ttl-ms", type=float, default=None,
                         help="How long a router remembers, for routed."
                         "  [default: each policy's own]"),
            click.option("--tie", type=click.Choice(TIES), default=None,
                         help="Which of equal replicas is chosen, where a policy leaves it open."
                         "  [default: each policy's own]"),
            click.option("--seed", type=int, default=_ROUTING.seed,
                         help="What random choices are made of."),
            click.option("--seeds", type=int, default=_ROUTING.seeds,
                         help="Replay policies that choose at random with so many seeds, from"
                         " --seed on."),
            click.option("--replicas", type=int, default=None,
                         help=f"Number of replicas.  [default: {_FLEET.replicas}]"),
            click.option("--capacity-tokens", type=int, default=_FLEET.capacity_tokens,
                         help="KV cache of one replica, in tokens."),
            click.option("--fleet", "fleet_file", type=_FILE, metavar="FILE.toml",
                         help="Replicas that differ, and when some are away: tables [[replicas]],"
                         " [[absent]] and [[scale]]."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


def fleet_of(options: dict[str, Any]) -> FleetConfig:
    """Return the fleet that the options ask for."""
    replicas, capacity_tokens = options["replicas"], options["capacity_tokens"]
    if options["fleet_file"]:
        return read_fleet(options["fleet_file"], capacity_tokens, replicas)
    return FleetConfig(_FLEET.replicas if replicas is None else replicas, capacity_tokens)


def routing_of(options: dict[str, Any]) -> RoutingConfig:
    """Return the settings of all policies alike."""
    return RoutingConfig(**{field.name: options[field.name] for field in fields(RoutingConfig)})


def policies_of(options: dict[str, Any], routing: RoutingConfig) -> tuple[str, ...]:
    """Return what the run calls its policies; UsageError for one that can't be."""
    from pipeline.replay.policies.spec import every_policy, find_policy

    given, file = list(options["policies"]), options["policies_file"]
    if not given and not file:
        given = list(_POLICIES)
    asked = [every_policy() if text.strip() == "all" else [text] for text in given]
    specs = [find_policy(text, routing) for texts in asked for text in texts]
    for number, text in enumerate(read_policies(file) if file else (), 1):
        try:
            named = every_policy() if text == "all" else [text]
            specs += [find_policy(one, routing) for one in named]
        except UsageError as error:
            raise UsageError(f"{file}: [[policy]] {number}: {error}") from None
    views = {spec.view.kind for spec in specs}
    for name in ("router_capacity_tokens", "router_ttl_ms"):
        if getattr(routing, name) is not None and "routed" not in views:
            raise UsageError(
                f"{name.replace('_', '-')} says nothing: no policy of this run sees routed: add"
                " --router-view routed, or leave it out"
            )
    if routing.seeds > 1 and not any(spec.chooses_at_random for spec in specs):
        raise UsageError(
            f"seeds is {routing.seeds}, but no policy of this run chooses at random: add --tie"
            " random, or leave it out"
        )
    return tuple(spec.text for spec in specs)
