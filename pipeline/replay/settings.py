"""What the kernels need of a configuration: rules of the caches, settings of the loop."""

from pipeline.config import TICKS_PER_MS, EngineConfig, ReplayConfig
from pipeline.config.routing import VIEWS
from pipeline.replay.fleet import CacheRules
from pipeline.replay.policies.spec import PolicySpec
from pipeline.replay.records import ACTIVE, LOAD
from pipeline.replay.router import EXACT, LAG, ROUTED, Settings


def loop_settings(config: ReplayConfig, spec: PolicySpec, seed: int) -> Settings:
    """Return the settings of the loop for one policy."""
    engine, policy = config.engine, spec.policy
    pins = engine.in_flight == "pins"
    view = VIEWS.index(spec.view.kind)
    delay_ms = spec.view.lag_ms if view == LAG else 0.0
    if view == ROUTED:
        delay_ms = spec.router_ttl_ms or 0.0
        view = ROUTED if policy.looks_up else EXACT  # its own memory is of no use to it
    named = dict(zip((p.name for p in policy.parameters), spec.parameters, strict=True))
    return Settings(
        pins=pins,
        counts=pins or policy.needs & (LOAD | ACTIVE) != 0,
        waits=engine.when_full == "wait",
        cache_output=engine.cache_output,
        keeps_output=engine.cache_output and pins,
        sees=view,
        delay_ticks=round(delay_ms * TICKS_PER_MS) if view != EXACT else 0,
        needs=policy.needs,
        draws=spec.chooses_at_random,
        guarded=spec.is_users_own,
        prefix_tokens=int(named.get("prefix_tokens", 1)),
        tie=spec.tie,
        seed=seed,
    )


def cache_rules(engine: EngineConfig, *, probes: bool) -> CacheRules:
    """Return how replicas' caches work; `probes`: the policy looks prompts up everywhere."""
    return CacheRules(
        engine.block_tokens,
        keep_partial=engine.partial_block == "keep",
        whole_leaves=engine.cache_unit == "leaf",
        probes_touch=probes and engine.refresh == "probe",
        match_touches=engine.refresh == "match" or (not probes and engine.refresh == "probe"),
    )
