"""What the fleet of any engine keeps for speed is what a recount of its edges and flights finds."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from model_cases import large_run
from model_engine import ModelEngine
from numpy.typing import NDArray

from pipeline.replay.fleet import EDGES, FLIGHTS, Fleet

NONE = -1


class Recount:
    """A fleet, and which of its records are in use."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.block = fleet.rules.block_tokens
        slots = fleet.slots[fleet.slots["key"] != NONE]
        self.edges = slots["value"].tolist()
        self.replica_of = slots["key"] % len(fleet.replicas)
        assert (fleet.edges["head"][self.edges] == slots["key"] // len(fleet.replicas)).all()
        assert len(set(self.edges)) == len(self.edges)

    def blocks(self, tokens: Any) -> Any:
        return -(-tokens // self.block)

    def start(self, edges: NDArray[Any]) -> Any:
        nodes = self.fleet.nodes
        return nodes["end"][nodes["parent"][edges["head"]]]

    def of(self, replica: int) -> list[int]:
        """Return a replica's edges."""
        mine = zip(self.edges, self.replica_of.tolist(), strict=True)
        return [edge for edge, other in mine if other == replica]

    def flights(self, replica: int) -> list[int]:
        """Return a replica's requests in flight that have not completed."""
        return list(_heap(self.fleet.flights, self.fleet.replicas["flying"][replica]))


def _heap(entries: NDArray[Any], first: int) -> Iterator[int]:
    """Yield the entries of a heap, each after the one above it."""
    waiting = [int(first)]
    while waiting:
        entry = waiting.pop()
        if entry != NONE:
            yield entry
            child, sibling = int(entries["child"][entry]), int(entries["sibling"][entry])
            if child != NONE:
                keys = [(entries["key"][e], entries["seq"][e]) for e in (entry, child)]
                assert keys[0] <= keys[1]
            waiting += [child, sibling]


def _line(entries: NDArray[Any], first: int, link: str) -> Iterator[int]:
    entry = int(first)
    while entry != NONE:
        yield entry
        entry = int(entries[link][entry])


def check_edges(again: Recount) -> None:
    """Hold the edges against the trace tree, and residency, cuts and children against the edges."""
    fleet, nodes, edges = again.fleet, again.fleet.nodes, again.fleet.edges
    resident, cut = np.zeros_like(fleet.resident), np.zeros_like(fleet.cut)
    children: Counter[int] = Counter()
    for number, replica in zip(again.edges, again.replica_of.tolist(), strict=True):
        edge, bit = edges[number], np.uint64(1) << np.uint64(replica % 64)
        node, above = int(edge["tail"]), int(edge["parent"])
        assert nodes["end"][nodes["parent"][node]] < edge["end"] <= nodes["end"][node]
        if edge["end"] < nodes["end"][node]:
            cut[node, replica // 64] |= bit
            assert edge["children"] == 0
        while True:
            resident[node, replica // 64] |= bit
            if node == edge["head"]:
                break
            node = int(nodes["parent"][node])
        assert nodes["parent"][node] == (0 if above == NONE else edges["tail"][above])
        children[above] += 1
    np.testing.assert_array_equal(fleet.resident, resident)
    np.testing.assert_array_equal(fleet.cut, cut)
    assert [edges["children"][edge] for edge in again.edges] == [children[e] for e in again.edges]
    used = fleet.pools[EDGES]
    assert len(again.edges) == used["used"] - used["free"]


def check_pins(again: Recount) -> None:
    """Hold each edge's pins against the flights and the edges below it."""
    fleet, edges = again.fleet, again.fleet.edges
    pins: Counter[int] = Counter()
    for replica in range(len(fleet.replicas)):
        pins.update(fleet.flights["edge"][again.flights(replica)].tolist())
    deepest_first = sorted(again.edges, key=lambda edge: -edges["end"][edge])
    for edge in deepest_first:
        if pins[edge] > 0:
            pins[int(edges["parent"][edge])] += 1
    assert [edges["pins"][edge] for edge in again.edges] == [pins[edge] for edge in again.edges]


def check_counters(again: Recount) -> None:
    """Hold every counter of the replicas, and their eviction queues, against edges and flights."""
    fleet, flights = again.fleet, again.fleet.flights
    for replica, state in enumerate(fleet.replicas):
        numbers = np.array(again.of(replica), np.int64)
        edges = fleet.edges[numbers]
        start = again.start(edges)
        blocks = again.blocks(edges["end"]) - again.blocks(start)
        assert state["resident_tokens"] == (edges["end"] - start).sum()
        assert state["resident_blocks"] == blocks.sum()
        assert state["pinned_blocks"] == blocks[edges["pins"] > 0].sum()
        flying = again.flights(replica)
        assert state["held_blocks"] == flights["held_blocks"][flying].sum()
        held = state["resident_blocks"] + state["held_blocks"]
        assert held <= state["capacity_blocks"]

        queued = list(_heap(fleet.edges, state["queue"]))
        assert sorted(queued) == sorted(numbers[edges["queued"] == 1].tolist())
        evictable = numbers[(edges["children"] == 0) & (edges["pins"] == 0)]
        assert set(evictable.tolist()) <= set(queued)

        waiting = list(_line(flights, state["first_waiting"], "behind"))
        ahead = list(_line(flights, state["first_ahead"], "after"))
        assert state["queued_requests"] == len(waiting)
        assert state["running_requests"] == len({*flying, *ahead} - set(waiting))


def recount(fleet: Fleet) -> Recount:
    """Check all that is kept of a fleet for speed."""
    again = Recount(fleet)
    check_edges(again)
    check_pins(again)
    check_counters(again)
    return again


@pytest.mark.parametrize("seed", range(24))
def test_counters_pins_cuts_and_queues_are_right_all_the_time(seed: int) -> None:
    requests, knobs = large_run(seed, 250)
    engine = ModelEngine(requests, **knobs)
    while engine.done < len(requests):
        engine.step(1 + engine.done % 37)
        recount(engine.replayer.fleet)


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_pinned_held_or_in_flight_at_the_end(seed: int) -> None:
    requests, knobs = large_run(seed, 250, in_flight="pins")
    knobs["decode_ms_per_token"] = 2.0
    engine = ModelEngine(requests, **knobs)
    engine.step(len(requests))
    replicas = engine.replayer.fleet.replicas
    assert replicas["pinned_blocks"].sum() + replicas["held_blocks"].sum() > 0
    engine.replayer.finish()
    fleet = recount(engine.replayer.fleet).fleet
    for name in ("pinned_blocks", "held_blocks", "queued_requests", "running_requests"):
        assert fleet.replicas[name].tolist() == [0] * knobs["replicas"]
    assert fleet.pools["used"][FLIGHTS] == fleet.pools["free"][FLIGHTS]
