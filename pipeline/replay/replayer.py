"""Replayer: one policy's replay of a trace, batch after batch."""

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.config import ENGINES, TICKS_PER_MS, EngineConfig, ReplayConfig
from pipeline.config.routing import VIEWS
from pipeline.errors import PolicyError
from pipeline.kernel import NONE
from pipeline.replay.fleet import (
    EDGES,
    FLIGHTS,
    CacheRules,
    Fleet,
    TracePaths,
    new_fleet,
    paths_of,
)
from pipeline.replay.loop import DECISION, nothing_to_tell, replay_batch
from pipeline.replay.policies.rule import ACTIVE, LOAD
from pipeline.replay.policies.spec import PolicySpec, find_policy
from pipeline.replay.policies.user import compiled_policy
from pipeline.replay.records import CHANGE, REQUEST, SLOT, WIPE, new_replicas
from pipeline.replay.router import CALLS, EXACT, LAG, ROUTED, TOLD, Batch, Router, Settings
from pipeline.replay.slots import refill
from pipeline.tree import NO_WHOLES, BlockRules, Wholes, build_tree
from pipeline.upcoming import upcoming_requests

_FOREVER = np.full(1, 2**63 - 1, np.int64)
NO_CHANGES = np.zeros(0, CHANGE)


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
    """A fleet that serves a trace's requests in order behind a router with one policy.

    `policy` is a policy as `policies.spec.find_policy` reads it; `seed` the configuration's own
    unless given. `changes` are records.CHANGE: when replicas go away and return.
    """

    def __init__(
        self,
        paths: TracePaths,
        config: ReplayConfig,
        policy: str,
        seed: int | None = None,
        changes: NDArray[Any] = NO_CHANGES,
    ) -> None:
        self.spec = find_policy(policy, config.routing)
        self._choose = compiled_policy(self.spec.policy, self.spec.is_users_own)
        self._settings = _settings(config, self.spec, config.routing.seed if seed is None else seed)
        view, needs = self._settings.sees, self.spec.policy.needs
        probes = self.spec.policy.looks_up and view != ROUTED
        rules = _rules(config.engine, probes=probes)
        members, block_tokens = config.fleet.members, config.engine.block_tokens

        def fleet(rules: CacheRules, changes: NDArray[Any], *, active: bool) -> Fleet:
            replicas = new_replicas(members, config.cost, block_tokens)
            return new_fleet(paths, replicas, rules, changes, active=active)

        self.fleet = fleet(rules, changes, active=needs & ACTIVE != 0)
        belief = self.fleet
        if view == LAG:
            belief = fleet(rules, changes, active=needs & ACTIVE != 0)
        elif view == ROUTED:
            own = rules._replace(whole_leaves=True, probes_touch=False, match_touches=False)
            belief = fleet(own, changes[changes["what"] == WIPE], active=False)
            if self.spec.router_tokens:
                belief.replicas["capacity_tokens"] = self.spec.router_tokens
                belief.replicas["capacity_blocks"] = self.spec.router_tokens // block_tokens
        self.router = Router(
            belief=belief,
            here=self.fleet.replicas.copy(),
            request=np.zeros(1, REQUEST),
            parameters=np.array(self.spec.parameters, np.float64),
            memory=self.spec.policy.memory(len(members)),
            progress=np.zeros(2, np.int64),
            choices=np.zeros(1, np.int64),
            exactly=self._settings._replace(sees=EXACT, delay_ticks=0),
        )
        self._cuts_twice = config.engine.recompute_last_token
        self._past: Batch | None = None

    @property
    def counts_requests(self) -> bool:
        """Whether requests in flight are followed."""
        return self._settings.counts

    def replay(self, batch: Batch) -> tuple[NDArray[Any], NDArray[Any]]:
        """Serve the next requests; return loop.DECISION, one each, and cache.EVICTION rows."""
        requests = len(batch.seq)
        past = self._remembered(batch)
        self.fleet = self._reserved(self.fleet, requests)
        belief = self.fleet
        if self._settings.sees != EXACT:
            belief = self._reserved(self.router.belief, len(past.seq))
        self.router = self.router._replace(belief=belief)
        decisions = np.zeros(requests, DECISION)
        try:
            done, evictions = replay_batch(
                self.fleet, self.router, batch, past, self._settings, decisions, self._choose,
                self._catch_up(),
            )  # fmt: skip
        except Exception as error:
            if not self.spec.is_users_own:
                raise
            seq = int(self.router.request["seq"][0])
            told = f"{type(error).__name__}: {error}"
            raise PolicyError(f"policy {self.spec.text} failed with {told}", seq) from error
        if done < requests:
            here = int((self.fleet.replicas["away"] == 0).sum())
            raise PolicyError(
                f"policy {self.spec.text} chose a replica that does not exist: give a place from"
                f" 0 to {here - 1}, one of the {here} replicas that it was shown",
                int(batch.seq[done]),
            )
        self._past = past
        return decisions, evictions

    def finish(self) -> NDArray[Any]:
        """Let the requests in flight complete; return the cache.EVICTION rows of their outputs.

        What would happen to replicas after the last request does not.
        """
        self.fleet.clock["next_change"] = len(self.fleet.changes)
        last, none = self.fleet.clock["latest_seq"], np.zeros(1, np.int64)
        names = none.astype(np.uint64)
        _, evictions = self.replay(Batch(last, none, names, _FOREVER, none, names))
        return evictions

    def twin(self) -> Self:
        """Return a replayer that goes on from here without this one's noticing."""
        twin = copy.copy(self)
        twin.fleet = _copied(self.fleet)
        same = self.router.belief is self.fleet
        arrays: dict[str, Any] = {
            name: part.copy()
            for name, part in self.router._asdict().items()
            if isinstance(part, np.ndarray)
        }
        belief = twin.fleet if same else _copied(self.router.belief)
        twin.router = self.router._replace(belief=belief, **arrays)
        return twin

    def shown(self) -> NDArray[Any]:
        """Return the records.REPLICA that the policy was shown last."""
        away = self.fleet.replicas["away"] > 0
        if away.any():
            return self.router.here[: int((~away).sum())]
        return self.router.belief.replicas

    def _catch_up(self) -> Any:
        if self._settings.sees != LAG:
            return nothing_to_tell
        from pipeline.replay.lag import catch_up  # noqa: PLC0415 - compiled for those who lag

        return catch_up

    def _remembered(self, batch: Batch) -> Batch:
        """Return the batch after what came before and the belief has yet to hear of, or forget."""
        if self._settings.delay_ticks == 0 and self._settings.sees != LAG:
            return batch
        progress, choices = self.router.progress, self.router.choices
        kept = choices[1 + choices[0] : 1 + progress[CALLS]]
        room = np.zeros(1 + len(kept) + len(batch.seq), np.int64)
        room[1 : 1 + len(kept)] = kept
        self.router = self.router._replace(choices=room)
        told = int(progress[TOLD])
        progress[TOLD], progress[CALLS] = 0, len(kept)
        if self._past is None:
            return batch
        parts = zip(self._past, batch, strict=True)
        return Batch(*(np.concatenate((before[told:], now)) for before, now in parts))

    def _reserved(self, fleet: Fleet, requests: int) -> Fleet:
        """Return a fleet with records for so many requests more, its tables at most half full.

        A request cuts an edge and adds one, cuts another where its last token is not looked up,
        and its output does the same as it completes.
        """
        flights, shared = fleet.flights, fleet.shared
        if self._settings.counts:
            flights = _grown(flights, fleet.pools[FLIGHTS], requests)
            shared = _roomy(shared, len(flights)) if len(fleet.active) > 1 else shared
        needed = (2 + self._cuts_twice) * requests
        if self._settings.cache_output:
            flying = int(fleet.pools["used"][FLIGHTS] - fleet.pools["free"][FLIGHTS])
            needed += 2 * (requests + flying)
        edges = _grown(fleet.edges, fleet.pools[EDGES], needed)
        slots = _roomy(fleet.slots, len(edges))
        return fleet._replace(flights=flights, edges=edges, slots=slots, shared=shared)


def _settings(config: ReplayConfig, spec: PolicySpec, seed: int) -> Settings:
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
        prefix_tokens=int(named.get("prefix_tokens", 1)),
        tie=spec.tie,
        seed=seed,
    )


def _rules(engine: EngineConfig, *, probes: bool) -> CacheRules:
    return CacheRules(
        engine.block_tokens,
        keep_partial=engine.partial_block == "keep",
        whole_leaves=engine.cache_unit == "leaf",
        probes_touch=probes and engine.refresh == "probe",
        match_touches=engine.refresh == "match" or (not probes and engine.refresh == "probe"),
    )


def _copied(fleet: Fleet) -> Fleet:
    parts = fleet._asdict().items()
    own: dict[str, Any] = {n: part.copy() for n, part in parts if isinstance(part, np.ndarray)}
    upcoming = fleet.upcoming._replace(earliest=fleet.upcoming.earliest.copy())
    return fleet._replace(upcoming=upcoming, **own)


def _grown(records: NDArray[Any], pool: Any, needed: int) -> NDArray[Any]:
    """Return a pool's records with `needed` of them free, moved into more if there are fewer."""
    used, free = int(pool["used"]), int(pool["free"])
    if len(records) - used + free >= needed:
        return records
    larger = np.zeros(max(used - free + needed, 2 * len(records)), records.dtype)
    larger[:used] = records[:used]
    return larger


def _roomy(slots: NDArray[Any], entries: int) -> NDArray[Any]:
    """Return a table that so many entries fill at most by half, with all that it holds."""
    if 2 * entries <= len(slots):
        return slots
    larger = np.zeros(1 << (2 * entries - 1).bit_length(), SLOT)
    larger["key"] = NONE
    refill(slots, larger)
    return larger
