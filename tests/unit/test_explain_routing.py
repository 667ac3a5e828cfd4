"""Explaining how a router chose: branches, chance, views, ties, and replicas that come and go."""

from pathlib import Path
from typing import Any

import pytest
from samples import Prompts, column, decisions, write_trace

from pipeline.config import (
    Absence,
    ClockConfig,
    CostModel,
    FleetConfig,
    ReplayConfig,
    RoutingConfig,
)
from pipeline.explain import as_text, explain_request
from pipeline.run import replay_trace
from pipeline.toml_files import read_fleet

pytestmark = pytest.mark.usefixtures("compiled")

COST = CostModel(prefill_ms_per_token=1.0, lookup_ms_per_token=0.1, decode_ms_per_token=2.0)
TWO, THREE = FleetConfig(2, 100), FleetConfig(3, 100)


def _run(
    folder: Path,
    prompts: Prompts,
    policy: str,
    fleet: FleetConfig = TWO,
    *,
    gap_ms: int = 100,
    outputs: Any = None,
    **routing: Any,
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
        routing=RoutingConfig(**routing),
        policies=(policy,),
    )
    replay_trace(trace, folder / "run", config)
    return folder / "run"


def _story(run: Path, seq: int) -> dict[str, Any]:
    [story] = explain_request(run, f"r{seq}")["policies"].values()
    return dict(story)


def _chosen(story: dict[str, Any]) -> list[int]:
    return [replica["replica_id"] for replica in story["replicas"] if replica["chosen"]]


def test_a_policy_with_branches_is_explained_by_the_score_that_decided(tmp_path: Path) -> None:
    run = _run(tmp_path, [(1, 2, 3, 4), (1, 2, 3, 4, 5)], "sglang", gap_ms=1)
    first, second = _story(run, 0), _story(run, 1)
    assert first["score"]["name"] == "requests in flight, as no match is long enough"
    assert first["reason"].startswith("least requests in flight, as no match is long enough, 0, ")
    # Replica 0 was touched by r0; replica 1 does not match, and is put aside.
    assert column(second["replicas"], "score") == [0, None]
    assert second["score"]["name"] in second["reason"]
    decided = ["requests in flight, as no match is long enough", second["score"]["name"]]
    assert column(decisions(run, "sglang"), "decided_by") == decided
    assert second["score"]["name"].startswith("request that touched the match last")


def test_a_branch_for_loads_out_of_balance_is_named(tmp_path: Path) -> None:
    policy = "sglang:imbalance_abs=0"
    run = _run(tmp_path, [(1, 2, 3, 4), (1, 2, 3, 4, 5)], policy, gap_ms=1)
    story = _story(run, 1)
    assert story["reason"] == (
        "least requests in flight, as load is out of balance, 0; next: replica 0 with 1"
    )
    assert _chosen(story) == [1]
    assert column(decisions(run, policy), "decided_by") == [
        "requests in flight, as no match is long enough",
        "requests in flight, as load is out of balance",
    ]


def test_a_random_choice_says_so_and_names_the_seed(tmp_path: Path) -> None:
    run = _run(tmp_path, [(1,), (2,), (3,)], "random", THREE, seed=7)
    for seq, decision in enumerate(decisions(run, "random")):
        story = _story(run, seq)
        assert "random" in story["reason"]
        assert "seed 7" in story["reason"]
        assert _chosen(story) == [decision["replica_id"]]


@pytest.mark.parametrize("seed", range(4))
def test_of_several_seeds_the_first_is_explained(tmp_path: Path, seed: int) -> None:
    run = _run(tmp_path, [(n,) for n in range(8)], "random", THREE, seed=seed, seeds=3)
    chosen = column(decisions(run, "random"), "replica_id")
    assert [_chosen(_story(run, seq)) for seq in range(8)] == [[replica] for replica in chosen]


def test_a_replica_that_is_away_has_no_score_and_is_not_chosen(tmp_path: Path) -> None:
    fleet = FleetConfig(3, 100, absences=(Absence((0,), 1, 3),))
    run = _run(tmp_path, [(n, 9) for n in range(4)], "round_robin", fleet)
    scores = [column(_story(run, seq)["replicas"], "score") for seq in range(4)]
    assert scores == [[0, 1, 2], [None, 1, 0], [None, 0, 1], [0, 1, 2]]
    assert [_chosen(_story(run, seq)) for seq in range(4)] == [[0], [2], [1], [0]]


def test_first_tokens_are_told_modulo_the_replicas_that_are_there(tmp_path: Path) -> None:
    fleet = FleetConfig(3, 100, absences=(Absence((1,), 0),))
    run = _run(tmp_path, [(5,)], "pure_affinity", fleet)
    story = _story(run, 0)
    assert story["reason"] == "all scores are 0, so it is first token id 5 modulo 2 replicas"
    assert _chosen(story) == [2]  # the second of those that are there


def test_what_a_drained_replica_holds_is_told_while_it_is_away(tmp_path: Path) -> None:
    fleet = FleetConfig(2, 100, absences=(Absence((0,), 1, cache="warm"),))
    run = _run(tmp_path, [(1, 2, 3), (1, 2, 3, 4)], "cache_aware", fleet)
    story = _story(run, 1)
    assert column(story["replicas"], "matched_tokens") == [3, 0]
    assert column(story["replicas"], "score") == [None, 4.0]
    assert [part["part"] for part in story["tokens"]] == ["elsewhere", "cold"]
    assert story["tokens"][0]["replicas"] == [{"replica_id": 0, "prefix_tokens": 3}]


def test_tokens_that_a_restart_took_are_told_as_lost_in_it(tmp_path: Path) -> None:
    fleet = FleetConfig(1, 100, absences=(Absence((0,), 1, 2),))
    run = _run(tmp_path, [(1, 2, 3, 4), (5,), (1, 2, 3, 4, 6)], "cache_aware", fleet)
    told = explain_request(run, "r2")
    [story] = told["policies"].values()
    lost, cold = story["tokens"]
    assert (lost["part"], lost["start_tokens"], lost["tokens"]) == ("evicted", 0, 4)
    assert (lost["replica_id"], lost["evicted_for"]) == (0, None)
    assert lost["last_used_by"]["request_id"] == "r0"
    assert (cold["part"], cold["tokens"]) == ("cold", 1)
    assert "lost in a restart of replica 0, " in as_text(told)
    assert "; last used by r0 (seq 0)\n" in as_text(told)


def test_a_crash_takes_tokens_when_it_comes_and_a_drain_when_it_ends(tmp_path: Path) -> None:
    prompts = [(1, 2), (5,), (6,), (1, 2, 3)]
    # Counted from the last request that came before: r0 or r2.
    for kind, before in (("crash", (3, 300.0)), ("drain", (1, 100.0))):
        (tmp_path / kind).mkdir()
        # Replica 1 takes what comes meanwhile, and then goes for good.
        away = (Absence((0,), 1, 3, kind=kind), Absence((1,), 3))
        run = _run(tmp_path / kind, prompts, "cache_aware", FleetConfig(2, 100, absences=away))
        lost = _story(run, 3)["tokens"][0]
        assert (lost["part"], lost["replica_id"]) == ("evicted", 0)
        assert (lost["requests_before"], lost["ms_before"]) == before


def test_a_request_that_failed_is_told_with_what_the_router_saw(tmp_path: Path) -> None:
    fleet = FleetConfig(2, 100, absences=(Absence((0,), 1, kind="crash"),))
    run = _run(tmp_path, [(1, 2, 3), (1, 2)], "cache_aware", fleet, outputs=[1000, 1])
    assert column(decisions(run, "cache_aware"), "outcome") == ["failed", "served"]
    told = explain_request(run, "r0")
    [story] = told["policies"].values()
    assert (story["outcome"], _chosen(story)) == ("failed", [0])
    assert story["rejected"] == "the replica was lost before the request completed"
    assert "tokens" not in story
    assert as_text(told).splitlines()[2].startswith("cache_aware: failed ")
    assert _story(run, 1)["replicas"][0]["score"] is None


def test_a_request_that_came_as_all_were_away_is_told_without_replicas(tmp_path: Path) -> None:
    fleet = FleetConfig(2, 100, absences=(Absence((0, 1), 1, 2),))
    run = _run(tmp_path, [(1, 2), (3,), (1, 2)], "sglang", fleet)
    told = explain_request(run, "r1")
    [story] = told["policies"].values()
    why = "all replicas are away: nothing is looked up or routed"
    assert story == {"outcome": "rejected_no_replica", "reason": why}
    assert as_text(told).endswith(f"\nsglang: rejected_no_replica: {why}\n")
    assert _story(run, 2)["outcome"] == "served"


def test_a_router_that_is_late_is_told_with_what_it_believed(tmp_path: Path) -> None:
    prompts = [(1, 2, 3, 4), (1, 2, 3, 4, 5)]
    run = _run(tmp_path, prompts, "cache_aware", gap_ms=1, router_view="lag:5")
    told = explain_request(run, "r1")
    [story] = told["policies"].values()
    assert story["router_view"] == "lag:5"
    # In truth replica 0 has 3 ms of r0 left, and all but the last token.
    assert column(story["replicas"], "matched_tokens") == [4, 0]
    assert column(story["replicas"], "queue_wait_ms") == [3.0, 0.0]
    assert column(story["replicas"], "believed_matched_tokens") == [0, 0]
    assert column(story["replicas"], "believed_queue_wait_ms") == [0.0, 0.0]
    assert column(story["replicas"], "score") == [5.0, 5.0]
    assert story["reason"] == (
        "least queue + lookup + prefill, 5.0 ms, is that of replicas 0 and 1:"
        " the lowest replica wins"
    )
    assert story["matched_tokens"] == 4
    assert "(the router sees lag:5: what it believed is told beside)\n" in as_text(told)


def test_a_late_router_knows_the_load_that_there_was(tmp_path: Path) -> None:
    prompts = [range(10), (7, 7), (8, 8)]
    run = _run(tmp_path, prompts, "least_loaded", gap_ms=4, router_view="lag:5")
    story = _story(run, 2)
    # At 8 ms: r0 leaves 2 ms on replica 0; at 3 ms, before r1 came, 7 ms.
    assert column(story["replicas"], "believed_queue_wait_ms")[0] == 7.0
    assert column(story["replicas"], "queue_wait_ms")[0] in (2.0, 4.0)
    assert column(story["replicas"], "believed_matched_tokens") == [None, None]


def test_a_router_that_remembers_is_told_with_what_it_expected(tmp_path: Path) -> None:
    prompts = [(1, 2, 3, 4), (9,) * 6, (1, 2, 3, 4, 5)]
    remembers = {"router_view": "routed", "router_capacity_tokens": 100}
    run = _run(tmp_path, prompts, "cache_aware", FleetConfig(1, 6), **remembers)
    story = _story(run, 2)
    [replica] = story["replicas"]
    assert (replica["believed_matched_tokens"], replica["matched_tokens"]) == (4, 0)
    assert (replica["score"], replica["exec_ms"]) == (1.4, 5.0)
    assert replica["believed_queue_wait_ms"] is None  # loads are true
    assert decisions(run, "cache_aware")[2]["believed_matched_tokens"] == 4


def test_an_exact_view_is_told_once(tmp_path: Path) -> None:
    run = _run(tmp_path, [(1, 2), (1, 2, 3)], "cache_aware", router_view="exact")
    told = explain_request(run, "r1")
    [story] = told["policies"].values()
    assert column(story["replicas"], "believed_matched_tokens") == [None, None]
    assert "believed" not in as_text(told)


@pytest.mark.parametrize(
    ("tie", "chosen", "how"),
    [
        ("lowest", [0, 0, 0, 0], "the lowest replica wins"),
        ("rotate", [0, 1, 2, 0], "the next in turn"),
    ],
)
def test_ties_are_told_as_they_are_broken(
    tmp_path: Path, tie: str, chosen: list[int], how: str
) -> None:
    run = _run(tmp_path, [(n,) for n in range(4)], "cache_aware", THREE, tie=tie)
    stories = [_story(run, seq) for seq in range(4)]
    assert [_chosen(story) for story in stories] == [[replica] for replica in chosen]
    why = "least queue + lookup + prefill, 1.0 ms, is that of replicas 0, 1 and 2: "
    assert column(stories, "reason") == [why + how] * 4


def test_a_tie_broken_at_random_names_the_seed(tmp_path: Path) -> None:
    run = _run(tmp_path, [(n,) for n in range(6)], "cache_aware", THREE, tie="random", seed=3)
    chosen = column(decisions(run, "cache_aware"), "replica_id")
    for seq in range(6):
        story = _story(run, seq)
        assert story["reason"].endswith(
            " is that of replicas 0, 1 and 2: one of them at random, seed 3"
        )
        assert _chosen(story) == [chosen[seq]]


def test_fewer_requests_in_flight_break_a_tie_of_lmetric_and_it_says_so(tmp_path: Path) -> None:
    # 4 new tokens x (1 + 1) on replica 0, 8 x (0 + 1) on replica 1.
    prompts = [(1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8)]
    story = _story(_run(tmp_path, prompts, "lmetric", gap_ms=1, outputs=[100, 1]), 1)
    assert column(story["replicas"], "score") == [8, 8]
    assert _chosen(story) == [1]
    assert "the lowest replica wins" not in story["reason"]


def test_replicas_of_a_fleet_file_cost_what_their_speeds_make_them_cost(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("[[replicas]]\nspeed = 0.5\n[[replicas]]\nspeed = 2\ncapacity_tokens = 2\n")
    fleet = read_fleet(file, capacity_tokens=100)
    run = _run(tmp_path, [(3, 4), (3, 4, 5)], "cache_aware", fleet)
    fast = _story(run, 0)
    assert column(fast["replicas"], "exec_ms") == column(fast["replicas"], "score") == [4.0, 1.0]
    assert _chosen(fast) == [1]
    # Replica 1 is too small for the next prompt; the policy takes it all the same: 0.1 + 0.5 ms.
    small = _story(run, 1)
    assert column(small["replicas"], "score") == [6.0, 0.6]
    assert (small["outcome"], _chosen(small)) == ("rejected_too_long", [1])
    assert small["rejected"].startswith("the prompt takes 3 tokens, and ")
    assert small["rejected"].endswith(" has 2 tokens")
