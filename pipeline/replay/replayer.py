"""Replayer: one policy's replay of a trace, batch after batch."""

import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pipeline.config import ENGINES, EngineConfig, ReplayConfig
from pipeline.errors import PolicyError
from pipeline.replay.fleet import NO_CHANGES, CacheRules, Fleet, TracePaths, new_fleet, paths_of
from pipeline.replay.growth import copied, reserved
from pipeline.replay.loop import DECISION, replay_batch
from pipeline.replay.policies.spec import find_policy
from pipeline.replay.policies.user import compiled_policy
from pipeline.replay.records import ACTIVE, REQUEST, WIPE, new_replicas
from pipeline.replay.router import AGAIN, CALLS, EXACT, LAG, ROUTED, TOLD, Batch, Router
from pipeline.replay.settings import cache_rules, loop_settings
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


def _fleet(
    paths: TracePaths,
    config: ReplayConfig,
    rules: CacheRules,
    changes: NDArray[Any],
    *,
    active: bool,
) -> Fleet:
    replicas = new_replicas(config.fleet.members, config.cost, config.engine.block_tokens)
    return new_fleet(paths, replicas, rules, changes, active=active)


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
        self._settings = loop_settings(
            config, self.spec, config.routing.seed if seed is None else seed
        )
        view, active = self._settings.sees, self.spec.policy.needs & ACTIVE != 0
        rules = cache_rules(config.engine, probes=self.spec.policy.looks_up and view != ROUTED)
        self.fleet = _fleet(paths, config, rules, changes, active=active)
        belief = self.fleet
        if view == LAG:
            belief = _fleet(paths, config, rules, changes, active=active)
        elif view == ROUTED:
            own = rules._replace(whole_leaves=True, probes_touch=False, match_touches=False)
            restarts = changes[changes["what"] == WIPE]
            belief = _fleet(paths, config, own, restarts, active=False)
            if self.spec.router_tokens:
                blocks = self.spec.router_tokens // config.engine.block_tokens
                belief.replicas["capacity_blocks"] = blocks
        self.router = Router(
            belief=belief,
            here=self.fleet.replicas.copy(),
            request=np.zeros(2, REQUEST),
            parameters=np.array(self.spec.parameters, np.float64),
            memory=self.spec.policy.memory(config.fleet.replicas),
            progress=np.zeros(2, np.int64),
            choices=np.zeros(1, np.int64),
            exactly=self._settings._replace(sees=AGAIN, delay_ticks=0),
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
        self.fleet = self._roomy(self.fleet, requests)
        belief = self.fleet
        if self._settings.sees != EXACT:
            belief = self._roomy(self.router.belief, len(past.seq))
        self.router = self.router._replace(belief=belief)
        decisions = np.zeros(requests, DECISION)
        try:
            done, evictions = replay_batch(
                self.fleet, self.router, batch, past, self._settings, decisions, self._choose
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
        if self.spec.is_users_own:
            self._check_branches(decisions, batch)
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
        twin.fleet = copied(self.fleet)
        same = self.router.belief is self.fleet
        arrays: dict[str, Any] = {
            name: part.copy()
            for name, part in self.router._asdict().items()
            if isinstance(part, np.ndarray)
        }
        belief = twin.fleet if same else copied(self.router.belief)
        twin.router = self.router._replace(belief=belief, **arrays)
        return twin

    def shown(self) -> NDArray[Any]:
        """Return the records.REPLICA that the policy was shown last."""
        away = self.fleet.replicas["away"] > 0
        if away.any() or self._settings.guarded:
            return self.router.here[: int((~away).sum())]
        return self.router.belief.replicas

    def _check_branches(self, decisions: NDArray[Any], batch: Batch) -> None:
        """Raise PolicyError if the policy set a branch that it has no score for."""
        scores = len(self.spec.policy.scores)
        wrong = np.flatnonzero((decisions["branch"] < 0) | (decisions["branch"] >= scores))
        if len(wrong):
            raise PolicyError(
                f"policy {self.spec.text} set request.branch to {decisions['branch'][wrong[0]]}:"
                f" give 0 to {scores - 1}, one of its {scores} scores",
                int(batch.seq[wrong[0]]),
            )

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

    def _roomy(self, fleet: Fleet, requests: int) -> Fleet:
        return reserved(fleet, requests, self._settings, cuts_twice=self._cuts_twice)
