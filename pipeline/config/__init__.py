"""What a replay is asked to do: frozen, validated once, from options or TOML.

units    the unit of time
fleet    replicas, their capacity and speed, when they are away
engine   how a replica's cache works, and the presets
routing  what routers see, ties and chance
replay   cost, clock, subset, and ReplayConfig, which holds all
"""

from pipeline.config.engine import (
    CACHE_UNITS,
    ENGINES,
    IN_FLIGHT,
    PARTIAL_BLOCKS,
    REFRESHES,
    WHEN_FULL,
    EngineConfig,
    find_engine,
)
from pipeline.config.fleet import Absence, FleetConfig, ReplicaConfig
from pipeline.config.replay import (
    CLOCKS,
    DEFAULT_BATCH_REQUESTS,
    ClockConfig,
    CostModel,
    ReplayConfig,
    SubsetConfig,
)
from pipeline.config.routing import TIES, RouterView, RoutingConfig, find_view
from pipeline.config.units import TICKS_PER_MS

__all__ = [
    "CACHE_UNITS",
    "CLOCKS",
    "DEFAULT_BATCH_REQUESTS",
    "ENGINES",
    "IN_FLIGHT",
    "PARTIAL_BLOCKS",
    "REFRESHES",
    "TICKS_PER_MS",
    "TIES",
    "WHEN_FULL",
    "Absence",
    "ClockConfig",
    "CostModel",
    "EngineConfig",
    "FleetConfig",
    "ReplayConfig",
    "ReplicaConfig",
    "RouterView",
    "RoutingConfig",
    "SubsetConfig",
    "find_engine",
    "find_view",
]
