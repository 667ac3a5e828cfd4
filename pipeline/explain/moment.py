"""A replay up to one request under one policy, and what happens when it comes."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pipeline.config import DEFAULT_BATCH_REQUESTS
from pipeline.plan import Plan
from pipeline.replay import Replayer
from pipeline.replay.fleet import Fleet
from pipeline.replay.router import Batch
from pipeline.upcoming import UpcomingRequests, upcoming_requests

_NOWHERE = -1  # a request that no replica served


class History(NamedTuple):
    """What was served before the request, one item a row of the plan.

    replica  int16   replica that served the row, below 0 if none did or it came later
    held     uint32  prefix that this replica held when it came: the rest is what it brought
    """

    replica: NDArray[np.int16]
    held: NDArray[np.uint32]


class Outcome(NamedTuple):
    """What a request brought about.

    decision    its loop.DECISION
    fleet       the fleet afterwards, which still tells what its last look-up found
    chosen      replica that it was routed to, NONE if the policy was not asked
    evictions   cache.EVICTION rows of its prompt's insertion
    on_paths    for each of them a member of `witnesses` whose path begins to lose tokens
    losses      all cache.EVICTION rows before it that took tokens of its path, in order;
                asked_again_tokens tells how many
    """

    decision: NDArray[Any]
    fleet: Fleet
    chosen: int
    evictions: NDArray[Any]
    on_paths: NDArray[np.int64]
    losses: NDArray[Any]


def batches_until(plan: Plan, row: int) -> Iterator[Batch]:
    """Yield the requests before a row that is replayed, and last a batch of that one alone."""
    for step in plan.steps(DEFAULT_BATCH_REQUESTS):
        before = int(np.searchsorted(step.batch.seq, row))
        if before:
            yield _part(step.batch, slice(before))
        if before < len(step.batch.seq):
            yield _part(step.batch, slice(before, before + 1))
            return


def _part(batch: Batch, which: slice) -> Batch:
    parts: dict[str, Any] = {name: getattr(batch, name)[which] for name in batch._fields}
    return Batch(**parts)


def witnesses(plan: Plan, row: int) -> UpcomingRequests:
    """Return what came before a row as still to come: any node on a path names who was there.

    With n rows in the plan, member i < n is the prompt of row i, n + i its prompt + output.
    """
    tree = plan.paths.tree
    rows = len(tree.last)
    ends = np.concatenate([tree.last, tree.whole if len(tree.whole) else tree.last])
    before = plan.chosen & (np.arange(rows) < row)
    return upcoming_requests(tree._replace(last=ends), np.tile(before, 2))


class Seen(NamedTuple):
    """What there is when a request comes.

    fleet   what the replicas hold and do in truth
    shown   records.REPLICA of those that take requests, as the router showed them to the policy
    chosen  the replica that the policy chooses, NONE if it is not asked
    """

    fleet: Fleet
    shown: NDArray[Any]
    chosen: int


class Moment:
    """One policy's replay up to the request in a row of the plan."""

    def __init__(self, plan: Plan, policy: str, row: int) -> None:
        self.policy, self.row = policy, row
        tree = plan.paths.tree
        rows = len(tree.last)
        # The request is to come as a second one of its kind, which never does: every eviction
        # before it that takes tokens of its path then says so, whoever else asks for them.
        twice = tree._replace(last=np.concatenate([tree.last, tree.last]))
        self._itself = rows + row
        itself = np.arange(2 * rows) == self._itself
        paths = plan.paths._replace(upcoming=upcoming_requests(twice, itself))
        self._replayer = Replayer(paths, plan.config, policy, changes=plan.changes)
        self.spec = self._replayer.spec
        self.history = History(np.full(rows, _NOWHERE, np.int16), np.zeros(rows, np.uint32))
        self._losses: list[NDArray[Any]] = []

    @property
    def counts_requests(self) -> bool:
        """Whether requests in flight are followed."""
        return self._replayer.counts_requests

    def replay_until(self, plan: Plan) -> Batch:
        """Serve all requests before it; return a batch of the request alone."""
        for batch in batches_until(plan, self.row):
            if batch.seq[0] != self.row:
                self.replay(batch)
        return batch

    def replay(self, batch: Batch) -> None:
        """Serve the next requests before it."""
        decisions, evictions = self._replayer.replay(batch)
        served = decisions["replica_id"] >= 0
        seq = batch.seq[served]
        self.history.replica[seq] = decisions["replica_id"][served]
        self.history.held[seq] = decisions["resident_tokens_here"][served]
        self._note_losses(evictions)

    def seen(self, request: Batch) -> Seen:
        """Return the fleet as it is when the request comes; nothing is served."""
        twin = self._replayer.twin()
        # An empty prompt lets time pass, and is rejected before anything else.
        twin.replay(request._replace(prompt_tokens=np.zeros(1, np.int64)))
        # One for which no replica is large enough is rejected right after it was routed.
        capacity = twin.fleet.replicas["capacity_blocks"].copy()
        twin.fleet.replicas["capacity_blocks"] = 0
        [decision], _ = twin.replay(request)
        twin.fleet.replicas["capacity_blocks"] = capacity
        return Seen(twin.fleet, twin.shown().copy(), int(decision["routed_to"]))

    def serve(self, request: Batch, before: UpcomingRequests) -> Outcome:
        """Serve the request; `before` are the witnesses of the plan. To be called once."""
        twin = self._replayer.twin()
        twin.fleet = twin.fleet._replace(
            upcoming=before._replace(earliest=before.earliest.copy()),
        )
        _, witnessed = twin.replay(request)
        [decision], evictions = self._replayer.replay(request)
        own = evictions["for_seq"] == self.row
        self._note_losses(evictions[~own])
        evicted = np.cumsum(evictions["evicted_tokens"][own])
        of_prompt = int(np.searchsorted(evicted, decision["evicted_tokens"], side="right"))
        return Outcome(
            decision,
            self._replayer.fleet,
            int(decision["routed_to"]),
            evictions[own][:of_prompt],
            witnessed["asked_again_seq"][own][:of_prompt],
            np.concatenate(self._losses) if self._losses else evictions[:0],
        )

    def _note_losses(self, evictions: NDArray[Any]) -> None:
        self._losses.append(evictions[evictions["asked_again_seq"] == self._itself])


def went_ahead(fleet: Fleet, replica: int) -> list[int]:
    """Return the flights of a replica that completed ahead of the clock, in order."""
    flights, number = [], int(fleet.replicas["first_ahead"][replica])
    while number >= 0:
        flights.append(number)
        number = int(fleet.flights[number]["after"])
    return flights
