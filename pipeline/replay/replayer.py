"""Replayer: one policy's replay of a trace, batch after batch."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pipeline.config import ENGINES, EngineConfig, ReplayConfig
from pipeline.errors import PolicyError
from pipeline.kernel import NONE
from pipeline.replay.edges import reregister
from pipeline.replay.fleet import (
    EDGES,
    FLIGHTS,
    SLOT,
    CacheRules,
    TracePaths,
    new_fleet,
    paths_of,
)
from pipeline.replay.loop import DECISION, Batch, Settings, replay_batch
from pipeline.replay.policies import find_policy
from pipeline.tree import NO_WHOLES, BlockRules, Wholes, build_tree
from pipeline.upcoming import upcoming_requests

_FOREVER = np.full(1, 2**63 - 1, np.int64)


def trace_paths(
    links: tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.uint32]],
    wholes: Wholes = NO_WHOLES,
    engine: EngineConfig = ENGINES["reference"],
    chosen: NDArray[np.bool_] | None = None,
) -> TracePaths:
    """Return what all replays of a trace with one engine share.

    `links` are prompt_tokens, prefix_seq and prefix_tokens as for `tree.build_tree`; only the
    requests `chosen` are to come.
    """
    whole_tokens = BlockRules(1, recompute_last_token=engine.recompute_last_token)
    rules = whole_tokens._replace(
        block_tokens=engine.block_tokens, keep_partial=engine.partial_block == "keep"
    )
    tokens = build_tree(*links, wholes, whole_tokens)
    single = engine.block_tokens == 1
    tree = tokens if single else build_tree(*links, wholes, rules, tokens)
    return paths_of(tree, tokens, upcoming_requests(tree, chosen))


class Replayer:
    """A fleet that serves a trace's requests in order under one policy."""

    def __init__(self, paths: TracePaths, config: ReplayConfig, policy: str) -> None:
        self.policy = policy
        self._choose, probes, _ = find_policy(policy)
        engine, cost = config.engine, config.cost
        rules = CacheRules(
            engine.block_tokens,
            config.fleet.capacity_tokens // engine.block_tokens,
            keep_partial=engine.partial_block == "keep",
            whole_leaves=engine.cache_unit == "leaf",
            probes_touch=probes and engine.refresh == "probe",
            match_touches=engine.refresh == "match" or (not probes and engine.refresh == "probe"),
        )
        self.fleet = new_fleet(paths, config.fleet.replicas, rules)
        self._cuts_twice = engine.recompute_last_token
        self._settings = Settings(
            float(cost.lookup_ms_per_token),
            float(cost.prefill_ms_per_token),
            in_flight=engine.in_flight == "pins",
            waits=engine.when_full == "wait",
            cache_output=engine.cache_output,
        )

    def replay(self, batch: Batch) -> tuple[NDArray[Any], NDArray[Any]]:
        """Serve the next requests; return loop.DECISION, one each, and cache.EVICTION rows."""
        requests = len(batch.seq)
        self._reserve(requests)
        decisions = np.zeros(requests, DECISION)
        done, evictions = replay_batch(self.fleet, batch, self._settings, decisions, self._choose)
        if done < requests:
            raise PolicyError(
                f"policy {self.policy} chose a replica that does not exist for request"
                f" {batch.seq[done]}: the fleet has {len(self.fleet.replicas)}"
            )
        return decisions, evictions

    def finish(self) -> NDArray[Any]:
        """Let the requests in flight complete; return the cache.EVICTION rows of their outputs."""
        last, none = self.fleet.clock["latest_seq"], np.zeros(1, np.int64)
        _, evictions = self.replay(Batch(last, none, none.astype(np.uint64), _FOREVER, none))
        return evictions

    def _reserve(self, requests: int) -> None:
        """Have records enough for so many requests, and the table of edges at most half full.

        A request cuts an edge and adds one, cuts another where its last token is not looked up,
        and its output does the same as it completes.
        """
        fleet = self.fleet
        flights = fleet.flights
        if self._settings.in_flight:
            flights = _grown(flights, fleet.pools[FLIGHTS], requests)
        needed = (2 + self._cuts_twice) * requests
        if self._settings.cache_output:
            flying = int(fleet.pools["used"][FLIGHTS] - fleet.pools["free"][FLIGHTS])
            needed += 2 * (requests + flying)
        edges, slots = _grown(fleet.edges, fleet.pools[EDGES], needed), fleet.slots
        if 2 * len(edges) > len(slots):
            slots = np.zeros(1 << (2 * len(edges) - 1).bit_length(), SLOT)
            slots["key"] = NONE
            reregister(fleet.slots, slots)
        self.fleet = fleet._replace(flights=flights, edges=edges, slots=slots)


def _grown(records: NDArray[Any], pool: Any, needed: int) -> NDArray[Any]:
    """Return a pool's records with `needed` of them free, moved into more if there are fewer."""
    used, free = int(pool["used"]), int(pool["free"])
    if len(records) - used + free >= needed:
        return records
    larger = np.zeros(max(used - free + needed, 2 * len(records)), records.dtype)
    larger[:used] = records[:used]
    return larger
