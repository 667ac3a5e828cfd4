"""Explaining how a router chose: branches, chance, what it saw, ties, replicas that differ."""

from pathlib import Path

import pytest
from explained import THREE, chosen_of, run_of, story_of
from samples import column, decisions

from pipeline.config import FleetConfig, RoutingConfig
from pipeline.explain import as_text, explain_request
from pipeline.toml_files import read_fleet

pytestmark = pytest.mark.usefixtures("compiled")


def test_a_policy_with_branches_is_explained_by_the_score_that_decided(tmp_path: Path) -> None:
    run = run_of(tmp_path, [(1, 2, 3, 4), (1, 2, 3, 4, 5)], "sglang", gap_ms=1)
    first, second = story_of(run, 0), story_of(run, 1)
    assert first["score"]["name"] == "requests in flight, as no match is long enough"
    assert first["reason"].startswith("least requests in flight, as no match is long enough, 0, ")
    # Replica 0 was touched by r0; replica 1 does not match, and is put aside.
    assert column(second["replicas"], "score") == [0, None]
    assert second["score"]["name"] in second["reason"]
    decided = ["requests in flight, as no match is long enough", second["score"]["name"]]
    assert column(decisions(run, "sglang"), "decided_by") == decided
    assert second["score"]["name"].startswith("recent use of the longest match")


def test_a_branch_for_loads_out_of_balance_is_named(tmp_path: Path) -> None:
    policy = "sglang:imbalance_abs=0"
    run = run_of(tmp_path, [(1, 2, 3, 4), (1, 2, 3, 4, 5)], policy, gap_ms=1)
    story = story_of(run, 1)
    assert story["reason"] == (
        "least requests in flight, as load is out of balance, 0; next: replica 0 with 1"
    )
    assert chosen_of(story) == [1]
    assert column(decisions(run, policy), "decided_by") == [
        "requests in flight, as no match is long enough",
        "requests in flight, as load is out of balance",
    ]


def test_a_random_choice_says_so_and_names_the_seed(tmp_path: Path) -> None:
    run = run_of(tmp_path, [(1,), (2,), (3,)], "random", THREE, routing=RoutingConfig(seed=7))
    for seq, decision in enumerate(decisions(run, "random")):
        story = story_of(run, seq)
        assert "chance" in story["reason"]
        assert "seed 7" in story["reason"]
        assert chosen_of(story) == [decision["replica_id"]]


@pytest.mark.parametrize("seed", range(4))
def test_of_several_seeds_the_first_is_explained(tmp_path: Path, seed: int) -> None:
    run = run_of(
        tmp_path,
        [(n,) for n in range(8)],
        "random",
        THREE,
        routing=RoutingConfig(seed=seed, seeds=3),
    )
    chosen = column(decisions(run, "random"), "replica_id")
    assert [chosen_of(story_of(run, seq)) for seq in range(8)] == [[replica] for replica in chosen]


def test_a_router_that_is_late_is_told_with_what_it_believed(tmp_path: Path) -> None:
    prompts = [(1, 2, 3, 4), (1, 2, 3, 4, 5)]
    run = run_of(
        tmp_path, prompts, "cache_aware", gap_ms=1, routing=RoutingConfig(router_view="lag:5")
    )
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
    run = run_of(
        tmp_path, prompts, "least_loaded", gap_ms=4, routing=RoutingConfig(router_view="lag:5")
    )
    story = story_of(run, 2)
    # At 8 ms: r0 leaves 2 ms on replica 0; at 3 ms, before r1 came, 7 ms.
    assert column(story["replicas"], "believed_queue_wait_ms")[0] == 7.0
    assert column(story["replicas"], "queue_wait_ms")[0] in (2.0, 4.0)
    assert column(story["replicas"], "believed_matched_tokens") == [None, None]


def test_a_router_that_remembers_is_told_with_what_it_expected(tmp_path: Path) -> None:
    prompts = [(1, 2, 3, 4), (9,) * 6, (1, 2, 3, 4, 5)]
    remembers = RoutingConfig(router_view="routed", router_capacity_tokens=100)
    run = run_of(tmp_path, prompts, "cache_aware", FleetConfig(1, 6), routing=remembers)
    story = story_of(run, 2)
    [replica] = story["replicas"]
    assert (replica["believed_matched_tokens"], replica["matched_tokens"]) == (4, 0)
    assert (replica["score"], replica["exec_ms"]) == (1.4, 5.0)
    assert replica["believed_queue_wait_ms"] is None  # loads are true
    assert decisions(run, "cache_aware")[2]["believed_matched_tokens"] == 4


def test_an_exact_view_is_told_once(tmp_path: Path) -> None:
    run = run_of(
        tmp_path, [(1, 2), (1, 2, 3)], "cache_aware", routing=RoutingConfig(router_view="exact")
    )
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
    run = run_of(
        tmp_path, [(n,) for n in range(4)], "cache_aware", THREE, routing=RoutingConfig(tie=tie)
    )
    stories = [story_of(run, seq) for seq in range(4)]
    assert [chosen_of(story) for story in stories] == [[replica] for replica in chosen]
    why = "least queue + lookup + prefill, 1.0 ms, is that of replicas 0, 1 and 2: "
    assert column(stories, "reason") == [why + how] * 4


def test_a_tie_broken_at_random_names_the_seed(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        [(n,) for n in range(6)],
        "cache_aware",
        THREE,
        routing=RoutingConfig(tie="random", seed=3),
    )
    chosen = column(decisions(run, "cache_aware"), "replica_id")
    for seq in range(6):
        story = story_of(run, seq)
        assert story["reason"].endswith(
            " is that of replicas 0, 1 and 2: one of them at random, seed 3"
        )
        assert chosen_of(story) == [chosen[seq]]


def test_fewer_requests_in_flight_break_a_tie_of_lmetric_and_it_says_so(tmp_path: Path) -> None:
    # 4 new tokens x (1 + 1) on replica 0, 8 x (0 + 1) on replica 1.
    prompts = [(1, 2, 3, 4), (1, 2, 3, 4, 5, 6, 7, 8)]
    story = story_of(run_of(tmp_path, prompts, "lmetric", gap_ms=1, outputs=[100, 1]), 1)
    assert column(story["replicas"], "score") == [8, 8]
    assert chosen_of(story) == [1]
    assert "the lowest replica wins" not in story["reason"]


def test_replicas_of_a_fleet_file_cost_what_their_speeds_make_them_cost(tmp_path: Path) -> None:
    file = tmp_path / "fleet.toml"
    file.write_text("[[replicas]]\nspeed = 0.5\n[[replicas]]\nspeed = 2\ncapacity_tokens = 2\n")
    fleet = read_fleet(file, capacity_tokens=100)
    run = run_of(tmp_path, [(3, 4), (3, 4, 5)], "cache_aware", fleet)
    fast = story_of(run, 0)
    assert column(fast["replicas"], "exec_ms") == column(fast["replicas"], "score") == [4.0, 1.0]
    assert chosen_of(fast) == [1]
    # Replica 1 is too small for the next prompt; the policy takes it all the same: 0.1 + 0.5 ms.
    small = story_of(run, 1)
    assert column(small["replicas"], "score") == [6.0, 0.6]
    assert (small["outcome"], chosen_of(small)) == ("rejected_too_long", [1])
    assert small["rejected"].startswith("the prompt takes 3 tokens, and ")
    assert small["rejected"].endswith(" has 2 tokens")
