"""A policy as it is asked for: its name, its parameters, and what its router sees.

Written NAME, NAME:parameter=value,… or MODULE:FUNCTION, with a second colon before parameters.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from pipeline.config.routing import TIES, RouterView, RoutingConfig, find_view
from pipeline.errors import UsageError, unknown
from pipeline.replay.policies.rule import Parameter, Policy
from pipeline.replay.policies.table import POLICIES
from pipeline.replay.policies.user import load_policy
from pipeline.replay.records import LOWEST, RANDOM

UNIVERSAL = ("router_view", "router_capacity_tokens", "router_ttl_ms", "tie")
"""Settings of every policy; each goes before the one of RoutingConfig."""

_ROUTED_ONLY = ("router_capacity_tokens", "router_ttl_ms")


@dataclass(frozen=True)
class PolicySpec:
    """A policy with all its settings.

    text           what the run calls it
    name           built-in name, or MODULE:FUNCTION
    parameters     in the order of the policy's table
    view           what its router sees
    router_tokens  what a router remembers of a replica, for routed; 0: as much as that keeps
    router_ttl_ms  how long it remembers, for routed; None: for ever
    tie            LOWEST, RANDOM or ROTATE; LOWEST where the policy leaves no tie open
    """

    text: str
    name: str
    policy: Policy
    parameters: tuple[float, ...]
    view: RouterView
    router_tokens: int
    router_ttl_ms: float | None
    tie: int

    @property
    def is_users_own(self) -> bool:
        """Whether the policy is not one of ours."""
        return self.name not in POLICIES

    @property
    def chooses_at_random(self) -> bool:
        """Whether another seed may decide otherwise."""
        return self.policy.draws or self.tie == RANDOM


def every_policy() -> list[str]:
    """Return the names of all built-in policies, in the order of the table."""
    return list(POLICIES)


def find_policy(text: str, routing: RoutingConfig = RoutingConfig()) -> PolicySpec:
    """Return the policy that a text asks for.

    A setting of the text goes before one of `routing`, and that before the policy's own. A policy
    that sees nothing of its replicas may be given any view: it decides the same. Raises UsageError,
    with the nearest name, for what is unknown or out of range, and for settings that would say
    nothing: a tie where none is open, a router's memory where the view is not routed.
    """
    name, written = _name_and_settings(text)
    policy = POLICIES[name] if name in POLICIES else load_policy(name)
    settings = {} if written is None else _settings(name, written)
    own = [p.name for p in policy.parameters]
    for key in settings:
        if key not in (*own, *UNIVERSAL):
            raise UsageError(f"policy {name}: {unknown('parameter', key, (*own, *UNIVERSAL))}")
    chosen = _chosen(name, routing, {k: v for k, v in settings.items() if k not in own})
    view = find_view(chosen.router_view or policy.view)
    if "tie" in settings and policy.tie is None:
        raise UsageError(f"policy {name}: it leaves no tie open: leave tie out")
    for key in _ROUTED_ONLY:
        if key in settings and view.kind != "routed":
            raise UsageError(
                f"policy {name}: {key} says nothing where the router sees {view}: leave it out, or"
                " add router_view=routed"
            )
    remembered, tie = chosen.router_capacity_tokens, chosen.tie or policy.tie
    return PolicySpec(
        text=name if not settings else f"{name}:{','.join(map('='.join, settings.items()))}",
        name=name,
        policy=policy,
        parameters=tuple(_value(name, p, settings.get(p.name)) for p in policy.parameters),
        view=view,
        router_tokens=policy.router_tokens if remembered is None else remembered,
        router_ttl_ms=chosen.router_ttl_ms or policy.router_ttl_ms,
        tie=LOWEST if policy.tie is None or tie is None else TIES.index(tie),
    )


def range_of(parameter: Parameter) -> str:
    """Return what values a parameter may have, as text."""
    return f"{shown(parameter.low)} to {shown(parameter.high)}"


def shown(value: float) -> str:
    """Return a parameter's value as text, whole numbers without a point."""
    whole = float(value).is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else repr(value)


def _name_and_settings(text: str) -> tuple[str, str | None]:
    """Return the policy's name, or MODULE:FUNCTION, and what stands behind its colon."""
    name, colon, rest = (part.strip() for part in text.partition(":"))
    if name in POLICIES:
        return name, rest if colon else None
    function, colon, settings = (part.strip() for part in rest.partition(":"))
    if not (name and function) or "=" in function:
        raise unknown("policy", name, POLICIES)
    return f"{name}:{function}", settings if colon else None


def _settings(name: str, written: str) -> dict[str, str]:
    """Return NAME=VALUE,… as a dict."""
    settings: dict[str, str] = {}
    for piece in written.split(","):
        key, sign, value = (part.strip() for part in piece.partition("="))
        if not (key and sign and value):
            raise UsageError(
                f"policy {name}: {piece.strip()!r} is no setting: write NAME=VALUE, and a comma"
                " between two"
            )
        if key in settings:
            raise UsageError(f"policy {name}: {key} is given twice: give it once")
        settings[key] = value
    return settings


def _value(name: str, parameter: Parameter, written: str | None) -> float:
    """Return what a parameter is."""
    if written is None:
        return float(parameter.default)
    try:
        value = float(written)
    except ValueError:
        value = math.nan
    broken = parameter.whole and math.isfinite(value) and not value.is_integer()
    if broken or not parameter.low <= value <= parameter.high:
        kind = "a whole number" if parameter.whole else "a number"
        raise UsageError(
            f"policy {name}: {parameter.name} is {written!r}: give {kind} from"
            f" {range_of(parameter)}"
        )
    return value


def _chosen(name: str, routing: RoutingConfig, settings: dict[str, str]) -> RoutingConfig:
    """Return the settings of a run with those that the policy has of its own."""
    given: dict[str, Any] = dict(settings)
    try:
        if "router_capacity_tokens" in given:
            given["router_capacity_tokens"] = int(settings["router_capacity_tokens"])
        if "router_ttl_ms" in given:
            given["router_ttl_ms"] = float(settings["router_ttl_ms"])
    except ValueError:
        told = ", ".join(f"{key} is {settings[key]!r}" for key in _ROUTED_ONLY if key in settings)
        raise UsageError(
            f"policy {name}: {told}: give a whole number of tokens and a number of ms"
        ) from None
    try:
        return replace(routing, **given)
    except UsageError as error:
        raise UsageError(f"policy {name}: {error}") from None
