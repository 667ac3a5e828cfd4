"""Explaining requests of a fleet whose replicas go away, restart and return."""

from pathlib import Path

import pytest
from explained import chosen_of, run_of, story_of
from samples import column, decisions

from pipeline.config import Absence, FleetConfig
from pipeline.explain import as_text, explain_request

pytestmark = pytest.mark.usefixtures("compiled")


def test_a_replica_that_is_away_has_no_score_and_is_notchosen(tmp_path: Path) -> None:
    fleet = FleetConfig(3, 100, absences=(Absence((0,), 1, 3),))
    run = run_of(tmp_path, [(n, 9) for n in range(4)], "round_robin", fleet)
    scores = [column(story_of(run, seq)["replicas"], "score") for seq in range(4)]
    assert scores == [[0, 1, 2], [None, 1, 0], [None, 0, 1], [0, 1, 2]]
    assert [chosen_of(story_of(run, seq)) for seq in range(4)] == [[0], [2], [1], [0]]


def test_first_tokens_are_told_modulo_the_replicas_that_are_there(tmp_path: Path) -> None:
    fleet = FleetConfig(3, 100, absences=(Absence((1,), 0),))
    run = run_of(tmp_path, [(5,)], "pure_affinity", fleet)
    story = story_of(run, 0)
    assert (
        story["reason"]
        == "all scores are 0, so it is first token id 5 modulo 2 replicas that are there"
    )
    assert chosen_of(story) == [2]  # the second of those that are there


def test_what_a_drained_replica_holds_is_told_while_it_is_away(tmp_path: Path) -> None:
    fleet = FleetConfig(2, 100, absences=(Absence((0,), 1, cache="warm"),))
    run = run_of(tmp_path, [(1, 2, 3), (1, 2, 3, 4)], "cache_aware", fleet)
    story = story_of(run, 1)
    assert column(story["replicas"], "matched_tokens") == [3, 0]
    assert column(story["replicas"], "score") == [None, 4.0]
    assert [part["part"] for part in story["tokens"]] == ["elsewhere", "cold"]
    assert story["tokens"][0]["replicas"] == [{"replica_id": 0, "prefix_tokens": 3}]


def test_tokens_that_a_restart_took_are_told_as_lost_in_it(tmp_path: Path) -> None:
    fleet = FleetConfig(1, 100, absences=(Absence((0,), 1, 2),))
    run = run_of(tmp_path, [(1, 2, 3, 4), (5,), (1, 2, 3, 4, 6)], "cache_aware", fleet)
    told = explain_request(run, "r2")
    [story] = told["policies"].values()
    lost, cold = story["tokens"]
    assert (lost["part"], lost["start_tokens"], lost["tokens"]) == ("evicted", 0, 4)
    assert (lost["replica_id"], lost["evicted_for"]) == (0, None)
    assert lost["last_used_by"]["request_id"] == "r0"
    assert (cold["part"], cold["tokens"]) == ("cold", 1)
    assert "lost when replica 0 restarted, at most 100.0 ms and 1 request before" in as_text(told)
    assert "; last used by r0 (seq 0)\n" in as_text(told)


def test_a_crash_takes_tokens_when_it_comes_and_a_drain_when_it_ends(tmp_path: Path) -> None:
    prompts = [(1, 2), (5,), (6,), (1, 2, 3)]
    # Counted from the last request that came before: r0 or r2.
    for kind, before in (("crash", (3, 300.0)), ("drain", (1, 100.0))):
        (tmp_path / kind).mkdir()
        # Replica 1 takes what comes meanwhile, and then goes for good.
        away = (Absence((0,), 1, 3, kind=kind), Absence((1,), 3))
        run = run_of(tmp_path / kind, prompts, "cache_aware", FleetConfig(2, 100, absences=away))
        lost = story_of(run, 3)["tokens"][0]
        assert (lost["part"], lost["replica_id"]) == ("evicted", 0)
        assert (lost["requests_before"], lost["ms_before"]) == before


def test_a_request_that_failed_is_told_with_what_the_router_saw(tmp_path: Path) -> None:
    fleet = FleetConfig(2, 100, absences=(Absence((0,), 1, kind="crash"),))
    run = run_of(tmp_path, [(1, 2, 3), (1, 2)], "cache_aware", fleet, outputs=[1000, 1])
    assert column(decisions(run, "cache_aware"), "outcome") == ["failed", "served"]
    told = explain_request(run, "r0")
    [story] = told["policies"].values()
    assert (story["outcome"], chosen_of(story)) == ("failed", [0])
    assert story["rejected"] == "the replica was lost before the request completed"
    assert "tokens" not in story
    assert as_text(told).splitlines()[2].startswith("cache_aware: failed ")
    assert story_of(run, 1)["replicas"][0]["score"] is None


def test_a_request_that_came_as_all_were_away_is_told_without_replicas(tmp_path: Path) -> None:
    fleet = FleetConfig(2, 100, absences=(Absence((0, 1), 1, 2),))
    run = run_of(tmp_path, [(1, 2), (3,), (1, 2)], "sglang", fleet)
    told = explain_request(run, "r1")
    [story] = told["policies"].values()
    why = "all replicas are away: nothing is looked up or routed"
    assert story == {"outcome": "rejected_no_replica", "reason": why}
    assert as_text(told).endswith(f"\nsglang: rejected_no_replica: {why}\n")
    assert story_of(run, 2)["outcome"] == "served"
