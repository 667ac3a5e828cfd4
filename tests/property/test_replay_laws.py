"""The replay kernels decide as the oracle and the online router do, and obey their own laws."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import oracle
import pytest
from engine import (
    Engine,
    EngineRun,
    link,
    random_settings,
    random_trace,
    replay_engine,
    seeded,
    share,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import Decision, OracleRun
from strategies import (
    POLICIES,
    Costs,
    Fleet,
    Tokens,
    arrival_gaps,
    costs,
    decays,
    fleets,
    policies,
    token_traces,
)

from pipeline import CacheAwareRouter

every_policy = pytest.mark.parametrize("policy", POLICIES)
with_and_without_refreshing_probes = pytest.mark.parametrize("refreshes", [True, False])


def check_equal(told: EngineRun, expected: OracleRun) -> None:
    for decision, wanted in zip(told.decisions, expected.decisions, strict=True):
        assert decision == wanted
    assert told.evictions == expected.evictions


def served(run: EngineRun) -> list[Decision]:
    return [decision for decision in run.decisions if decision.outcome == "served"]


def large(seed: int, **changed: Any) -> tuple[list[Tokens], dict[str, Any]]:
    """Return a trace of 1,500 prompts, and a fleet that has to evict most of the time."""
    rng = seeded(seed)
    trace = random_trace(rng, 1500, vocabulary=rng.choice((2, 8, 50)), added=20)
    chosen = random_settings(rng, len(trace)) | {"capacity_tokens": rng.choice((40, 150, 1000))}
    return trace, chosen | changed


@every_policy
@settings(max_examples=250, deadline=None)
@given(data=st.data(), trace=token_traces(), fleet=fleets(), price=costs())
def test_every_decision_and_every_eviction_is_the_oracles(
    data: st.DataObject, policy: str, trace: list[Tokens], fleet: Fleet, price: Costs
) -> None:
    knobs = {
        **fleet._asdict(),
        **price._asdict(),
        "policy": policy,
        "drain_ms": data.draw(st.one_of(decays(), arrival_gaps(len(trace))), "drain"),
        "probe_refreshes_recency": data.draw(st.booleans(), "refreshes"),
    }
    told = replay_engine(trace, batch_requests=data.draw(st.integers(1, 26), "batch"), **knobs)
    check_equal(told, oracle.replay(trace, **knobs))


@settings(max_examples=150, deadline=None)
@given(data=st.data(), trace=token_traces(), seed=st.integers(0, 2**32))
def test_namespaces_share_nothing_as_if_they_had_other_tokens(
    data: st.DataObject, trace: list[Tokens], seed: int
) -> None:
    spaces = data.draw(st.lists(st.integers(0, 2), min_size=len(trace), max_size=len(trace)))
    apart = [
        tuple(token + 60 * space for token in tokens)  # the same replica by first token
        for tokens, space in zip(trace, spaces, strict=True)
    ]
    knobs = random_settings(seeded(seed), len(trace))
    told = replay_engine(trace, links=link(trace, [str(space) for space in spaces]), **knobs)
    check_equal(told, oracle.replay(apart, **knobs))


@settings(max_examples=250, deadline=None)
@given(trace=token_traces(), fleet=fleets(), price=costs(), decay=decays(), policy=policies())
def test_every_decision_is_the_online_routers(
    trace: list[Tokens], fleet: Fleet, price: Costs, decay: float, policy: str
) -> None:
    router = CacheAwareRouter(*fleet, *price, decay)
    knobs = {**fleet._asdict(), **price._asdict(), "policy": policy, "drain_ms": decay}
    for tokens, decision in zip(trace, replay_engine(trace, **knobs).decisions, strict=True):
        before = sum(replica.tree.total_evicted_tokens for replica in router.replicas)
        if decision.outcome != "served":
            with pytest.raises(ValueError, match="Empty" if not tokens else "exceeds"):
                router.route_request(tokens, policy)
            continue
        assert router.route_request(tokens, policy) == {
            "replica_id": decision.replica_id,
            "matched_tokens": decision.matched_tokens,
            "computed_tokens": decision.computed_tokens,
            "exec_ms": round(decision.exec_ms, 2),
            "ttft_ms": decision.ttft_ms,
        }
        after = sum(replica.tree.total_evicted_tokens for replica in router.replicas)
        assert after - before == decision.evicted_tokens
        tree = router.replicas[decision.replica_id].tree
        assert tree.cached_tokens == decision.resident_tokens


@every_policy
@pytest.mark.parametrize("replicas", [64, 65, 97, 128, 130])
def test_a_fleet_of_more_than_one_word_of_replicas_decides_as_the_oracle(
    policy: str, replicas: int
) -> None:
    rng = seeded(replicas)
    trace = random_trace(rng, 330, vocabulary=2 * replicas, added=4)
    knobs = random_settings(rng, len(trace)) | {
        "policy": policy,
        "replicas": replicas,
        "capacity_tokens": 12,
        "prefill_ms_per_token": 0.3,
        "drain_ms": 0.001,
    }
    told = replay_engine(trace, batch_requests=100, **knobs)
    check_equal(told, oracle.replay(trace, **knobs))
    used = {decision.replica_id for decision in served(told)}
    assert len(used) > replicas / 3
    assert max(used) > replicas - 10


@pytest.mark.parametrize("seed", range(12))
def test_every_token_is_accounted_for(seed: int) -> None:
    trace, knobs = large(seed)
    run = replay_engine(trace, batch_requests=400, **knobs)
    resident = [0] * knobs["replicas"]
    lost = {decision.seq: [0, 0] for decision in run.decisions}
    for row in run.evictions:
        lost[row.seq][0] += row.evicted_tokens
        lost[row.seq][1] += 1
        assert row.replica_id == run.decisions[row.seq].replica_id
        assert row.last_used_seq <= row.seq
    assert [decision.seq for decision in run.decisions] == list(range(len(trace)))
    for one in served(run):
        reasons = one.cold_tokens, one.evicted_tokens_missed, one.elsewhere_tokens
        assert min(reasons) >= 0
        assert one.matched_tokens >= 0
        assert sum(reasons) == one.computed_tokens
        assert one.matched_tokens + one.computed_tokens == one.prompt_tokens == len(trace[one.seq])
        assert [one.evicted_tokens, one.evicted_nodes] == lost[one.seq]
        resident[one.replica_id] += one.computed_tokens - one.evicted_tokens
        assert one.prompt_tokens <= one.resident_tokens == resident[one.replica_id]
        assert one.resident_tokens <= knobs["capacity_tokens"]
    assert len(run.evictions) > 100


@pytest.mark.parametrize("seed", range(6))
def test_what_the_fleet_keeps_for_speed_can_be_recounted(seed: int) -> None:
    trace, knobs = large(seed, replicas=70)
    engine = Engine(trace, **knobs)
    engine.raw_step(len(trace))
    fleet = engine.replayer.fleet
    end, parent = fleet.nodes["end"], fleet.nodes["parent"]
    sizes = end - end[parent]
    for replica, tokens in enumerate(fleet.replicas["resident_tokens"].tolist()):
        held = fleet.resident[:, replica // 64] >> np.uint64(replica % 64) & np.uint64(1) == 1
        assert sizes[held].sum() == tokens <= knobs["capacity_tokens"]
        above = parent[held]
        assert held[above[above > 0]].all()
        assert fleet.ever[held].all()
    edges = fleet.edges[fleet.slots["value"][fleet.slots["key"] != -1]]
    assert len(edges) == fleet.pools["used"][0] - fleet.pools["free"][0]
    assert (edges["end"] == end[edges["tail"]]).all()
    assert (edges["end"] - end[parent[edges["head"]]]).sum() == fleet.replicas[
        "resident_tokens"
    ].sum()
    assert edges["children"].sum() == np.count_nonzero(edges["parent"] != -1)


@pytest.mark.parametrize("seed", range(6))
def test_the_size_of_a_batch_changes_no_decision(seed: int) -> None:
    trace, knobs = large(seed)
    whole = replay_engine(trace, batch_requests=len(trace), **knobs)
    for batch in (1, 3, 64, 1499):
        assert replay_engine(trace, batch_requests=batch, **knobs) == whole


@every_policy
@with_and_without_refreshing_probes
def test_one_replica_that_never_evicts_finds_every_linked_token(
    policy: str, refreshes: bool
) -> None:
    trace, knobs = large(
        7, policy=policy, replicas=1, capacity_tokens=10**6, probe_refreshes_recency=refreshes
    )
    run = replay_engine(trace, **knobs)
    found = [decision.matched_tokens or 0 for decision in run.decisions]
    assert found == link(trace).prefix_tokens.tolist()
    assert run.evictions == []
    assert served(run)[-1].resident_tokens == sum(map(len, trace)) - sum(found)


@every_policy
@with_and_without_refreshing_probes
def test_cold_is_what_no_earlier_request_has(policy: str, refreshes: bool) -> None:
    trace, knobs = large(8, policy=policy, replicas=5, probe_refreshes_recency=refreshes)
    knobs["capacity_tokens"] = max(map(len, trace))
    run = replay_engine(trace, **knobs)
    assert {decision.outcome for decision in run.decisions} == {"served", "rejected_empty"}
    prefix_tokens = link(trace).prefix_tokens
    for one in served(run):
        assert one.cold_tokens == one.prompt_tokens - prefix_tokens[one.seq]
    assert sum(one.evicted_tokens_missed for one in served(run)) > 100
    elsewhere = sum(one.elsewhere_tokens for one in served(run))
    assert elsewhere == 0 if policy == "pure_affinity" else elsewhere > 100


@with_and_without_refreshing_probes
@pytest.mark.parametrize("seed", range(3))
def test_on_one_replica_all_policies_are_one(seed: int, refreshes: bool) -> None:
    trace, knobs = large(seed, replicas=1, probe_refreshes_recency=refreshes)
    runs = [replay_engine(trace, **knobs | {"policy": policy}) for policy in POLICIES]
    assert runs[0] == runs[1] == runs[2]
    assert len(runs[0].evictions) > 100


@every_policy
def test_a_longer_wait_changes_no_match_where_queues_do_not_route(policy: str) -> None:
    trace, knobs = large(9, policy=policy)
    slow, fast = (replay_engine(trace, **knobs | {"drain_ms": drain}) for drain in (0.0, 50.0))
    same = [replace(one, queue_wait_ms=None, ttft_ms=None) for one in slow.decisions] == [
        replace(one, queue_wait_ms=None, ttft_ms=None) for one in fast.decisions
    ]
    assert same == (policy != "cache_aware")


def test_replays_of_one_trace_side_by_side_in_threads_decide_as_alone() -> None:
    trace = random_trace(seeded(3), 3000, vocabulary=3)
    knobs = [random_settings(seeded(seed), len(trace)) for seed in range(8)]
    alone = [replay_engine(trace, **each) for each in knobs]
    shared = share(link(trace))
    with ThreadPoolExecutor(4) as pool:
        together = pool.map(lambda each: replay_engine(trace, shared=shared, **each), knobs)
        assert list(together) == alone
