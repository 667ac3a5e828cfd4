"""Online objects, oracle and the user's reference are one and the same on random traces."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Eviction, OracleRun, OracleTree, replay, user_reference
from strategies import (
    LONGEST_PROMPT,
    Costs,
    Fleet,
    Operation,
    capacities,
    costs,
    decays,
    fleets,
    policies,
    token_traces,
    tree_operations,
)

from pipeline import CacheAwareRouter, RadixKvTree

Tokens = tuple[int, ...]
Shape = list[tuple[Tokens, int, int, int]]

REFERENCE: Any = user_reference()
needs_reference = pytest.mark.skipif(
    REFERENCE is None, reason="the user's reference is not beside the project (../shared/reference)"
)
law = settings(max_examples=200, deadline=None)


def ranked(edges: list[tuple[Tokens, int, int, int]]) -> Shape:
    """Sort (path, start, last use, pins), with last uses numbered densely: only order counts."""
    steps = sorted({step for _, _, step, _ in edges})
    return sorted((path, start, steps.index(step), pins) for path, start, step, pins in edges)


def shape(tree: Any) -> Shape:
    """Walk a tree of nodes, checking its links on the way."""
    edges = []
    waiting = [(tree.root, ())]
    while waiting:
        parent, above = waiting.pop()
        assert parent.is_leaf == (not parent.children)
        for first, node in parent.children.items():
            assert (first, node.parent) == (node.tokens[0], parent)
            path = above + node.tokens
            edges.append((path, len(above), node.last_access_step, node.pin_count))
            waiting.append((node, path))
    return ranked(edges)


def oracle_shape(tree: OracleTree) -> Shape:
    return ranked([(edge.path, edge.start, edge.last_used, edge.pins) for edge in tree.edges])


def result_or_error(call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except (ValueError, RuntimeError) as error:
        return type(error).__name__


def on_nodes(tree: Any, operation: Operation) -> Any:
    """Apply an operation to a tree of nodes; `evict` asks for no more than there is."""
    tokens = operation.tokens
    match operation.name:
        case "match":
            return tree.match_prefix(tokens)[0]
        case "release":
            return tree.release_pin(tokens)
        case "evict":
            unpinned = sum(len(path) - start for path, start, _, pins in shape(tree) if not pins)
            return tree.evict_lru(min(len(tokens), unpinned))
    return tree.insert(tokens, pin=operation.name == "pin")


def on_oracle(tree: OracleTree, operation: Operation) -> Any:
    tokens = operation.tokens
    match operation.name:
        case "match":
            assert tree.match(tokens) == tree.touch(tokens)
            return tree.match(tokens)
        case "release":
            return tree.release(tokens)
        case "evict":
            return sum(edge.size for edge in tree.evict(min(len(tokens), tree.evictable)))
    inserted = tree.insert(tokens, pin=operation.name == "pin")
    return {
        "matched_tokens": inserted.matched,
        "new_tokens": inserted.new,
        "cached_tokens": tree.cached,
    }


@law
@given(capacity=capacities(), operations=tree_operations())
def test_the_online_tree_is_the_oracles(capacity: int, operations: list[Operation]) -> None:
    tree, oracle = RadixKvTree(capacity), OracleTree(capacity)
    for operation in operations:
        told = result_or_error(on_nodes, tree, operation)
        assert told == result_or_error(on_oracle, oracle, operation), operation
        assert shape(tree) == oracle_shape(oracle)
        assert (tree.cached_tokens, tree.total_evicted_tokens) == (
            oracle.cached,
            oracle.evicted_total,
        )
        assert sorted(oracle.holders) == sorted(
            tokens for tokens, pins in tree.pinned_sequences.items() for _ in range(pins)
        )


@law
@given(capacity=capacities(), operations=tree_operations())
def test_pinned_and_evictable_make_up_the_whole_and_never_pass_the_capacity(
    capacity: int, operations: list[Operation]
) -> None:
    tree = RadixKvTree(capacity)
    for operation in operations:
        result_or_error(on_nodes, tree, operation)
        edges = shape(tree)
        assert sum(len(path) - start for path, start, _, _ in edges) == tree.cached_tokens
        assert tree.cached_tokens <= capacity
        held = {
            path[:end]
            for path, start, _, pins in edges
            if pins
            for end in range(start + 1, len(path) + 1)
        }
        assert held == {
            tokens[:end] for tokens in tree.pinned_sequences for end in range(1, len(tokens) + 1)
        }
    for tokens, pins in list(tree.pinned_sequences.items()):
        for _ in range(pins):
            tree.release_pin(tokens)
    assert all(pins == 0 for _, _, _, pins in shape(tree))


def oracle_run(
    trace: list[Tokens], fleet: Fleet, price: Costs, decay: float, policy: str
) -> OracleRun:
    return replay(
        trace,
        policy=policy,
        replicas=fleet.replicas,
        capacity_tokens=fleet.capacity_tokens,
        prefill_ms_per_token=price.prefill_ms_per_token,
        lookup_ms_per_token=price.lookup_ms_per_token,
        drain_ms=decay,
    )


def check_router(router: Any, trace: list[Tokens], policy: str, run: OracleRun) -> None:
    """Route a trace request by request and hold every answer and the last state to the oracle."""
    for tokens, decision in zip(trace, run.decisions, strict=True):
        told = result_or_error(router.route_request, tokens, policy)
        if decision.outcome != "served":
            assert told == "ValueError"
            continue
        assert told == {
            "replica_id": decision.replica_id,
            "matched_tokens": decision.matched_tokens,
            "computed_tokens": decision.computed_tokens,
            "exec_ms": round(decision.exec_ms, 2),
            "ttft_ms": decision.ttft_ms,
        }
        replica = router.replicas[decision.replica_id]
        assert replica.queue_wait_ms == round(decision.queue_wait_ms + decision.exec_ms, 4)
        assert replica.tree.cached_tokens == decision.resident_tokens
    assert [replica.queue_wait_ms for replica in router.replicas] == run.queues_ms
    for replica, tree in zip(router.replicas, run.trees, strict=True):
        mine = [one for one in run.decisions if one.replica_id == replica.replica_id]
        assert replica.routed_requests == len(mine)
        assert replica.matched_tokens_total == sum(one.matched_tokens for one in mine)
        assert replica.computed_tokens_total == sum(one.computed_tokens for one in mine)
        assert replica.tree.total_evicted_tokens == sum(one.evicted_tokens for one in mine)
        assert shape(replica.tree) == oracle_shape(tree)


@law
@given(trace=token_traces(), fleet=fleets(), price=costs(), decay=decays(), policy=policies())
def test_the_online_router_decides_as_the_oracle(
    trace: list[Tokens], fleet: Fleet, price: Costs, decay: float, policy: str
) -> None:
    run = oracle_run(trace, fleet, price, decay, policy)
    check_router(CacheAwareRouter(*fleet, *price, decay), trace, policy, run)


@needs_reference
@law
@given(
    trace=token_traces(allow_empty=False),
    replicas=st.integers(1, 5),
    capacity=st.integers(LONGEST_PROMPT, 24),
    price=costs(),
    decay=decays(),
    policy=policies(),
)
def test_the_oracle_decides_as_the_reference(
    trace: list[Tokens], replicas: int, capacity: int, price: Costs, decay: float, policy: str
) -> None:
    fleet = Fleet(replicas, capacity)
    run = oracle_run(trace, fleet, price, decay, policy)
    assert {decision.outcome for decision in run.decisions} <= {"served"}
    check_router(REFERENCE.CacheAwareRouter(*fleet, *price, decay), trace, policy, run)


@needs_reference
@law
@given(capacity=capacities(), operations=tree_operations())
def test_the_online_tree_is_the_references(capacity: int, operations: list[Operation]) -> None:
    ours, theirs = RadixKvTree(capacity), REFERENCE.RadixKvTree(capacity)
    for operation in operations:
        told = result_or_error(on_nodes, ours, operation)
        assert told == result_or_error(on_nodes, theirs, operation), operation
        assert shape(ours) == shape(theirs)
        assert ours.step_clock == theirs.step_clock
        assert ours.cached_tokens == theirs.cached_tokens
        assert ours.total_evicted_tokens == theirs.total_evicted_tokens
        assert ours.pinned_sequences == theirs.pinned_sequences


@law
@given(trace=token_traces(), fleet=fleets(), policy=policies(), silent=st.booleans())
def test_the_oracle_accounts_for_every_token(
    trace: list[Tokens], fleet: Fleet, policy: str, silent: bool
) -> None:
    run = replay(
        trace,
        policy=policy,
        replicas=fleet.replicas,
        capacity_tokens=fleet.capacity_tokens,
        drain_ms=0.05,
        probe_refreshes_recency=not silent,
    )
    assert [decision.seq for decision in run.decisions] == list(range(len(trace)))
    served = [decision for decision in run.decisions if decision.outcome == "served"]
    for one in served:
        reasons = one.cold_tokens, one.evicted_tokens_missed, one.elsewhere_tokens
        assert min(reasons) >= 0
        assert sum(reasons) == one.computed_tokens == one.prompt_tokens - one.matched_tokens
        assert one.resident_tokens <= fleet.capacity_tokens
    evicted = sum(row.evicted_tokens for row in run.evictions)
    assert evicted == sum(one.evicted_tokens for one in served)
    assert len(run.evictions) == sum(one.evicted_nodes for one in served)
    inserted = sum(one.computed_tokens for one in served)
    assert sum(tree.cached for tree in run.trees) == inserted - evicted
    for row in run.evictions:
        assert row.last_used_seq <= row.seq
        assert row.asked_again_seq is None or row.asked_again_seq > row.seq


@pytest.mark.parametrize(
    ("replicas", "trace", "last"),
    [
        (3, [(1, 2), (4, 5, 6, 21), (1, 2, 3), (10, 11, 12), (4, 5, 6)], (0, 3, 1.3)),
        (2, [(1, 2, 3, 11), (4, 5, 6), (7, 8, 9), (1, 2, 3, 10), (7, 8, 9)], (0, 3, 0.6)),
    ],
)
def test_without_refreshing_probes_only_an_insertion_is_a_use(
    replicas: int, trace: list[Tokens], last: tuple[int, int, float]
) -> None:
    run = replay(
        trace,
        policy="cache_aware",
        replicas=replicas,
        capacity_tokens=7,
        prefill_ms_per_token=1.0,
        lookup_ms_per_token=0.1,
        drain_ms=2.0,
        probe_refreshes_recency=False,
    )
    final = run.decisions[-1]
    assert (final.replica_id, final.matched_tokens, final.ttft_ms) == last


def test_time_passes_for_an_empty_prompt_but_an_arrival_does_not_count() -> None:
    def last_queue(drain: float | list[float]) -> float | None:
        run = replay(
            [(1, 2, 3), (), (4,)],
            policy="round_robin",
            replicas=1,
            capacity_tokens=8,
            prefill_ms_per_token=1.0,
            drain_ms=drain,
        )
        assert run.decisions[1].outcome == "rejected_empty"
        return run.decisions[2].queue_wait_ms

    assert last_queue([0.0, 0.5, 0.25]) == 2.25
    assert last_queue(0.5) == 2.5


def test_an_eviction_tells_when_its_edge_was_used_last_and_is_asked_for_again() -> None:
    too_long = (5, 7, 7, 7, 7, 7, 7)
    trace = [(1, 2, 3, 4), (1, 2), (5, 6), (1, 2, 9), (1, 2, 3), (8, 8), too_long]
    run = replay(trace, policy="round_robin", replicas=1, capacity_tokens=6, drain_ms=1.0)
    assert run.decisions[-1].outcome == "rejected_too_long"
    assert run.evictions == [
        Eviction(3, 0, evicted_tokens=2, start_tokens=2, last_used_seq=1, asked_again_seq=4),
        Eviction(5, 0, evicted_tokens=2, start_tokens=0, last_used_seq=2, asked_again_seq=6),
    ]
