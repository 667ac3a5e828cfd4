"""Runs of a few requests under one policy, explained: how the router chose, and from what."""

from pathlib import Path
from typing import Any

from samples import Prompts, write_trace

from pipeline.config import ClockConfig, CostModel, FleetConfig, ReplayConfig, RoutingConfig
from pipeline.explain import explain_request
from pipeline.run import replay_trace

COST = CostModel(prefill_ms_per_token=1.0, lookup_ms_per_token=0.1, decode_ms_per_token=2.0)
AS_THEY_ARE = RoutingConfig()
TWO, THREE = FleetConfig(2, 100), FleetConfig(3, 100)


def run_of(
    folder: Path,
    prompts: Prompts,
    policy: str,
    fleet: FleetConfig = TWO,
    *,
    gap_ms: int = 100,
    outputs: Any = None,
    routing: RoutingConfig = AS_THEY_ARE,
) -> Path:
    """Replay requests that come one every `gap_ms`, each with one output token unless given."""
    trace = write_trace(
        folder / "day.parquet",
        prompts,
        [1000 * gap_ms * seq for seq in range(len(prompts))],
        output_tokens=outputs or [1] * len(prompts),
    )
    config = ReplayConfig(
        fleet=fleet,
        cost=COST,
        clock=ClockConfig("timestamps"),
        routing=routing,
        policies=(policy,),
    )
    replay_trace(trace, folder / "run", config)
    return folder / "run"


def story_of(run: Path, seq: int) -> dict[str, Any]:
    """Return what is told of a request under the run's only policy."""
    [story] = explain_request(run, f"r{seq}")["policies"].values()
    return dict(story)


def chosen_of(story: dict[str, Any]) -> list[int]:
    """Return the replicas that are told to be the chosen one."""
    return [replica["replica_id"] for replica in story["replicas"] if replica["chosen"]]
