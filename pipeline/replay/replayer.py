"""Replayer: one policy's replay of a trace, batch after batch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import ReplayConfig
from pipeline.errors import PolicyError
from pipeline.kernel import NONE
from pipeline.replay.edges import reregister
from pipeline.replay.fleet import EDGE, Fleet, new_fleet
from pipeline.replay.loop import DECISION, Batch, Settings, replay_batch
from pipeline.replay.policies import find_policy
from pipeline.tree import TraceTree, UpcomingRequests


class Replayer:
    """A fleet that serves a trace's requests in order under one policy."""

    def __init__(
        self,
        tree: TraceTree,
        upcoming: UpcomingRequests,
        config: ReplayConfig,
        policy: str,
    ) -> None:
        self.policy = policy
        self._choose, probes = find_policy(policy)
        self._fleet = new_fleet(tree, config.fleet.replicas, upcoming)
        self._settings = Settings(
            config.fleet.capacity_tokens,
            float(config.cost.lookup_ms_per_token),
            float(config.cost.prefill_ms_per_token),
            probes_touch=probes and config.probe_refreshes_recency,
            match_touches=not probes and config.probe_refreshes_recency,
        )

    def replay(self, batch: Batch) -> tuple[NDArray[Any], NDArray[Any]]:
        """Serve the next requests; return loop.DECISION, one each, and cache.EVICTION rows."""
        requests = len(batch.prompt_tokens)
        self._fleet = _with_room(self._fleet, 2 * requests)
        decisions = np.zeros(requests, DECISION)
        done, evictions = replay_batch(self._fleet, batch, self._settings, decisions, self._choose)
        if done < requests:
            raise PolicyError(
                f"policy {self.policy} chose a replica that does not exist for request"
                f" {batch.first_seq + done}: the fleet has {len(self._fleet.replicas)}"
            )
        return decisions, evictions


def _with_room(fleet: Fleet, edges: int) -> Fleet:
    """Return the fleet with at least that many edges free, and its table at most half full."""
    used, _, free = (int(n) for n in fleet.pool)
    if len(fleet.edges) - used + free >= edges:
        return fleet
    pool = np.zeros(max(used - free + edges, 2 * len(fleet.edges)), EDGE)
    pool[:used] = fleet.edges[:used]
    slots = 1 << (2 * len(pool) - 1).bit_length()
    keys, values = np.full(slots, NONE, np.int64), np.zeros(slots, np.int32)
    reregister(fleet.slot_keys, fleet.slot_edges, keys, values)
    return fleet._replace(edges=pool, slot_keys=keys, slot_edges=values)
