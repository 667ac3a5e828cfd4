"""The fleet: how many replicas, how much each one keeps, how fast it is, and when it is away."""

import math
from dataclasses import dataclass
from typing import Any, Self

from pipeline.errors import UsageError

MAX_REPLICAS = 4096
MAX_SPEED = 1000.0
ABSENCES = ("drain", "crash")
CACHES = ("cold", "warm")


def _check_capacity(capacity_tokens: int) -> None:
    if not 1 <= capacity_tokens < 2**62:
        raise UsageError(f"capacity-tokens is {capacity_tokens}: give at least 1 token a replica")


@dataclass(frozen=True)
class ReplicaConfig:
    """One replica: tokens of KV that it keeps, and its speed: costs are divided by it."""

    capacity_tokens: int
    speed: float = 1.0

    def __post_init__(self) -> None:
        _check_capacity(self.capacity_tokens)
        if not (math.isfinite(self.speed) and 1 / MAX_SPEED <= self.speed <= MAX_SPEED):
            raise UsageError(
                f"speed is {self.speed}: give {1 / MAX_SPEED:g} to {MAX_SPEED:g}; 0.5 takes twice"
                " as long"
            )


@dataclass(frozen=True)
class Absence:
    """A time in which some replicas take no requests.

    replicas  their numbers
    start     when it begins: a moment, as moments.moment_us reads it
    end       when it ends; None for never
    kind      `drain`: requests in flight complete; `crash`: they are lost, and so is the cache
    cache     what a drained replica has when it returns: `warm`, what it had; `cold`, nothing, and
              what is still in flight by then is lost. After a crash it is always cold
    """

    replicas: tuple[int, ...]
    start: str | int
    end: str | int | None = None
    kind: str = "drain"
    cache: str = "cold"

    def __post_init__(self) -> None:
        for name, choices in (("kind", ABSENCES), ("cache", CACHES)):
            if getattr(self, name) not in choices:
                raise UsageError(
                    f"{name} of an absence is {getattr(self, name)!r}:"
                    f" give one of {', '.join(choices)}"
                )
        if self.kind == "crash" and self.cache == "warm":
            raise UsageError("a crash leaves no warm cache: leave cache out, or make it a drain")


@dataclass(frozen=True)
class FleetConfig:
    """How many replicas there are and how many tokens of KV each one keeps.

    each      one item a replica, where they differ; () for `replicas` of `capacity_tokens`
    absences  when some of them take no requests
    """

    replicas: int = 4
    capacity_tokens: int = 262_144
    each: tuple[ReplicaConfig, ...] = ()
    absences: tuple[Absence, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= MAX_REPLICAS:
            raise UsageError(f"replicas is {self.replicas}: give 1 to {MAX_REPLICAS}")
        _check_capacity(self.capacity_tokens)
        if self.each and len(self.each) != self.replicas:
            raise UsageError(f"replicas is {self.replicas}, but {len(self.each)} are described")
        for absence in self.absences:
            for replica in absence.replicas:
                if not 0 <= replica < self.replicas:
                    raise UsageError(
                        f"replica {replica} can't be away: the fleet has 0 to {self.replicas - 1}"
                    )

    @classmethod
    def of(cls, settings: dict[str, Any]) -> Self:
        """Return the fleet of settings as a run has them, in JSON."""
        each = tuple(ReplicaConfig(**replica) for replica in settings["each"])
        absences = tuple(
            Absence(**{**absence, "replicas": tuple(absence["replicas"])})
            for absence in settings["absences"]
        )
        return cls(**{**settings, "each": each, "absences": absences})

    @property
    def members(self) -> tuple[ReplicaConfig, ...]:
        """Every replica."""
        return self.each or (ReplicaConfig(self.capacity_tokens),) * self.replicas
