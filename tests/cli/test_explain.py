"""`replay explain`: what it prints for requests of tiny runs, to the letter, and its refusals."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import replay_here, replay_ok
from samples import Prompts, write_trace

pytestmark = pytest.mark.usefixtures("compiled")

COSTS = ("--prefill-ms-per-token", "1", "--lookup-ms-per-token", "0.1")
SMALL = ("--replicas", "1", "--capacity-tokens", "6", *COSTS)
LAST_OF_THREE = """\
request r3 (seq 3): 5 tokens, came at 1970-01-01 00:00:00
tenant a

round_robin: served by replica 1; ttft 5.0 ms = queue 0.0 ms + lookup and prefill 5.0 ms
why replica 1: least turns until it is due, 0; next: replica 0 with 1

what each replica held; score: turns until it is due, least wins

replica_id  resident_tokens  matched_tokens  queue_wait_ms  exec_ms  score  chosen
----------  ---------------  --------------  -------------  -------  -----  ------
         0                6               4            0.0      1.4      1
         1                3               0            0.0      5.0      0  chosen

what became of its tokens

part       start_tokens  part_tokens  what
---------  ------------  -----------  -------------------------------
elsewhere             0            4  held by replica 0 (4 tokens)
cold                  4            1  computed for no earlier request

evicted for it on replica 1: 3 tokens in 1 leaf

evicted_tokens  start_tokens  brought_by  last_used_by  age_requests  age_ms  asked_again_by  asked_again_ms
--------------  ------------  ----------  ------------  ------------  ------  --------------  --------------
             3             0  r1 (seq 1)  r1 (seq 1)               2     0.0  r4 (seq 4)                 0.0

pure_affinity: served by replica 1; ttft 1.4 ms = queue 0.0 ms + lookup and prefill 1.4 ms
why replica 1: most matched tokens, 4; next: replica 0 with 0

what each replica held; score: matched tokens, most wins

replica_id  resident_tokens  matched_tokens  queue_wait_ms  exec_ms  score  chosen
----------  ---------------  --------------  -------------  -------  -----  ------
         0                0               0            0.0      5.0      0
         1                6               4            0.0      1.4      4  chosen

what became of its tokens

part     start_tokens  part_tokens  what
-------  ------------  -----------  -------------------------------
matched             0            4  found on replica 1
cold                4            1  computed for no earlier request

evicted for it on replica 1: 2 tokens in 1 leaf

evicted_tokens  start_tokens  brought_by  last_used_by     age_requests  age_ms  asked_again_by  asked_again_ms
--------------  ------------  ----------  ---------------  ------------  ------  --------------  --------------
             2             4  r2 (seq 2)  its own look-up             0     0.0

cache_aware: served by replica 0; ttft 1.4 ms = queue 0.0 ms + lookup and prefill 1.4 ms
why replica 0: least queue + lookup + prefill, 1.4 ms; next: replica 1 with 5.0 ms

what each replica held; score: queue + lookup + prefill in ms, least wins

replica_id  resident_tokens  matched_tokens  queue_wait_ms  exec_ms  score  chosen
----------  ---------------  --------------  -------------  -------  -----  ------
         0                6               4            0.0      1.4    1.4  chosen
         1                0               0            0.0      5.0    5.0

what became of its tokens

part     start_tokens  part_tokens  what
-------  ------------  -----------  -------------------------------
matched             0            4  found on replica 0
cold                4            1  computed for no earlier request

evicted for it on replica 0: 2 tokens in 1 leaf

evicted_tokens  start_tokens  brought_by  last_used_by     age_requests  age_ms  asked_again_by  asked_again_ms
--------------  ------------  ----------  ---------------  ------------  ------  --------------  --------------
             2             4  r2 (seq 2)  its own look-up             0     0.0
"""  # noqa: E501 - as it is printed
WAITED = """\
request r1 (seq 1): 3 tokens, came at 1970-01-01 00:00:00.001000

cache_aware: served by replica 0; ttft 26.0 ms = queue 23.0 ms + lookup and prefill 3.0 ms
why replica 0: it is the only one: queue + lookup + prefill 6.0 ms

what each replica held; score: queue + lookup + prefill in ms, least wins

replica_id  resident_tokens  matched_tokens  queue_wait_ms  exec_ms  queued_requests  running_requests  score  chosen
----------  ---------------  --------------  -------------  -------  ---------------  ----------------  -----  ------
         0                4               0            3.0      3.0                0                 1    6.0  chosen

too much was pinned on replica 0: it waited for the completion of r0 (seq 0) after 23.0 ms

what became of its tokens

part  start_tokens  part_tokens  what
----  ------------  -----------  -------------------------------
cold             0            3  computed for no earlier request

evicted for it on replica 0: 4 tokens in 1 leaf

evicted_tokens  start_tokens  brought_by  last_used_by  age_requests  age_ms  asked_again_by  asked_again_ms
--------------  ------------  ----------  ------------  ------------  ------  --------------  --------------
             4             0  r0 (seq 0)  r0 (seq 0)               1     1.0  r2 (seq 2)                 1.0
"""  # noqa: E501 - as it is printed
PINNED = """\
request r1 (seq 1): 3 tokens, came at 1970-01-01 00:00:00.001000

cache_aware: rejected_pinned on replica 0: 3 tokens have to be free beside its match, and too much\
 is pinned: of 6 tokens 2 are free, 4 pinned by 1 request in flight
why replica 0: it is the only one: queue + lookup + prefill 6.0 ms

what each replica held; score: queue + lookup + prefill in ms, least wins

replica_id  resident_tokens  matched_tokens  queue_wait_ms  exec_ms  queued_requests  running_requests  score  chosen
----------  ---------------  --------------  -------------  -------  ---------------  ----------------  -----  ------
         0                4               0            3.0      3.0                0                 1    6.0  chosen
"""  # noqa: E501 - as it is printed


def _run(
    folder: Path, prompts: Prompts, *options: str | Path, times: Any = None, **carried: Any
) -> Path:
    trace = write_trace(folder / "day.parquet", prompts, times, **carried)
    replay_ok(trace, *options, "-o", folder / "run")
    return folder / "run"


def _json(*arguments: str | Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(replay_ok("explain", *arguments, "--format", "json"))
    return told


def _parts(told: dict[str, Any], policy: str = "cache_aware") -> list[tuple[str, int, int]]:
    parts = told["policies"][policy]["tokens"]
    return [(part["part"], part["start_tokens"], part["tokens"]) for part in parts]


def _refusal(*arguments: str | Path) -> tuple[int, str]:
    done = replay_here("explain", *arguments)
    assert done.stdout == ""
    assert done.stderr.startswith("replay: ")
    assert done.stderr.count("\n") == 1
    return done.returncode, done.stderr.removeprefix("replay: ").rstrip("\n")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    prompts = [(1, 2, 3, 4), (7, 8, 9), (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 9), (7, 8)]
    tenants = ["a", "b", "a", "a", "b"]
    options = ("--replicas", "2", "--capacity-tokens", "6", *COSTS)
    return _run(tmp_path, prompts, *options, tenant=tenants)


def test_each_policy_of_the_run_has_its_section(run: Path) -> None:
    assert replay_ok("explain", run, "r3") == LAST_OF_THREE


def test_a_policy_alone_is_one_section(run: Path) -> None:
    title, _, rest = LAST_OF_THREE.partition("round_robin:")
    section = "pure_affinity:" + rest.split("\npure_affinity:")[1].split("\ncache_aware:")[0]
    printed = replay_ok("explain", run, "r3", "--policy", "pure_affinity")
    assert printed == title + section


@pytest.mark.parametrize(
    ("request_id", "policy", "why"),
    [
        ("r0", "round_robin", "least turns until it is due, 0; next: replica 1 with 1"),
        ("r0", "pure_affinity", "all scores are 0, so it is first token id 1 modulo 2 replicas"),
        (
            "r0",
            "cache_aware",
            (
                "least queue + lookup + prefill, 4.0 ms, is that of replicas 0 and 1:"
                " the lowest replica wins"
            ),
        ),
    ],
)
def test_ties_and_turns_are_told(run: Path, request_id: str, policy: str, why: str) -> None:
    story = _json(run, request_id, "--policy", policy)["policies"][policy]
    assert story["reason"] == why


def test_json_says_all_that_the_text_does(run: Path) -> None:
    told = _json(run, "r3", "--policy", "round_robin")
    assert told["request"] == {
        "request_id": "r3",
        "seq": 3,
        "arrival": "1970-01-01 00:00:00",
        "namespace": None,
        "model": None,
        "tenant": "a",
        "session_id": None,
        "prompt_tokens": 5,
        "is_warmup": False,
    }
    named = {"request_id": "r1", "seq": 1, "is_of_warmup_trace": False}
    story = told["policies"]["round_robin"]
    assert story["evictions"] == [
        {
            "evicted_tokens": 3,
            "evicted_nodes": 1,
            "start_tokens": 0,
            "last_used_by": named,
            "age_requests": 2,
            "age_ms": 0.0,
            "brought_by": {"request": named, "as": "prompt"},
            "asked_again_by": {"request_id": "r4", "seq": 4, "is_of_warmup_trace": False},
            "asked_again_ms": 0.0,
            "asked_again_tokens": 2,
        }
    ]
    assert story["tokens"][0] == {
        "part": "elsewhere",
        "start_tokens": 0,
        "tokens": 4,
        "replicas": [{"replica_id": 0, "prefix_tokens": 4}],
    }


def test_what_was_evicted_says_from_where_when_and_for_whom(tmp_path: Path) -> None:
    prompts = [(1, 2, 3, 4), (5, 6, 7), (1, 2, 9)]
    run = _run(tmp_path, prompts, *SMALL, times=[0, 1000, 5000])
    printed = replay_ok("explain", run, "r2", "--policy", "cache_aware")
    what = "evicted from replica 0 for r1 (seq 1), 4.0 ms and 1 request before"
    assert [line.split(maxsplit=3) for line in printed.splitlines()[-2:]] == [
        ["evicted", "0", "2", f"{what}; last used by r0 (seq 0)"],
        ["cold", "2", "1", "computed for no earlier request"],
    ]


def test_blocks_that_are_computed_again_are_told_apart(tmp_path: Path) -> None:
    prompts = [range(10), range(10), range(8)]
    options = ("--engine", "vllm", "--block-tokens", "4", "--capacity-tokens", "16")
    run = _run(tmp_path, prompts, *options, "--replicas", "1")
    assert _parts(_json(run, "r1")) == [("matched", 0, 8), ("recomputed", 8, 2)]
    assert _parts(_json(run, "r2")) == [("matched", 0, 4), ("recomputed", 4, 4)]
    rounded, end = (replay_ok("explain", run, name) for name in ("r1", "r2"))
    assert "less than a block: only whole blocks are found again" in rounded
    assert "held by replica 0 too, but a look-up leaves the prompt's end out" in end
    assert "prefix_tokens" in end
    assert "prefix_tokens" not in rounded


@pytest.mark.parametrize(("when_full", "text"), [("wait", WAITED), ("reject", PINNED)])
def test_a_request_that_finds_no_room_says_what_is_pinned(
    tmp_path: Path, when_full: str, text: str
) -> None:
    in_flight = ("--in-flight", "pins", "--when-full", when_full, "--decode-ms-per-token", "10")
    run = _run(
        tmp_path,
        [(1, 2, 3, 4), (5, 6, 7), (1, 2, 9)],
        *(*SMALL, *in_flight, "--policy", "cache_aware"),
        times=[0, 1000, 2000],
        output_tokens=[2, 1, None],
    )
    assert replay_ok("explain", run, "r1") == text


def test_what_is_too_long_or_empty_is_explained_too(tmp_path: Path) -> None:
    run = _run(tmp_path, [(1, 2), range(50, 59), ()], *SMALL, "--policy", "pure_affinity")
    long, empty = (replay_ok("explain", run, name).splitlines() for name in ("r1", "r2"))
    assert long[2] == (
        "pure_affinity: rejected_too_long on replica 0:"
        " the prompt takes 9 tokens, and replica 0 has 6 tokens"
    )
    assert long[-1].split() == ["0", "2", "0", "0.0", "9.0", "0", "chosen"]
    assert empty[2:] == [
        "pure_affinity: rejected_empty: the prompt has no tokens: nothing is looked up or routed"
    ]


def test_requests_of_a_warm_up_trace_are_named_as_such(tmp_path: Path) -> None:
    yesterday = [(1, 2, 3, 4), (9, 9)]
    warmup = write_trace(tmp_path / "w.parquet", yesterday, request_id=["w0", "w1"])
    options = (*SMALL, "--warmup", warmup, "--warmup-fraction", "0.4", "--policy", "cache_aware")
    run = _run(tmp_path, [(1, 2, 3), (5, 6, 7), (1, 2, 3, 4)], *options)
    first = replay_ok("explain", run, "r0").splitlines()
    assert first[1] == "it is of the warm-up: reports don't count it"
    assert first[-1].split() == ["matched", "0", "3", "found", "on", "replica", "0"]
    told = _json(run, "r1")
    [leaf, tail] = told["policies"]["cache_aware"]["evictions"]
    assert leaf["last_used_by"] == {"request_id": "w1", "seq": 1, "is_of_warmup_trace": True}
    assert (tail["brought_by"]["request"]["request_id"], tail["last_used_by"]["request_id"]) == (
        "w0",
        "r0",
    )
    assert "w1 (seq 1 of the warm-up trace)" in replay_ok("explain", run, "r1")
    assert _refusal(run, "w0") == (
        2,
        (
            "no request of this run's trace is called 'w0': one of the warm-up trace is,"
            " and these are not explained"
        ),
    )


def test_a_warm_up_is_found_again_from_another_folder(tmp_path: Path) -> None:
    write_trace(tmp_path / "w.parquet", [(1, 2, 3, 4)])
    write_trace(tmp_path / "day.parquet", [(1, 2, 3)])
    options = (*SMALL, "--warmup", "w.parquet", "--policy", "cache_aware")
    replay_ok("day.parquet", *options, "-o", "run", cwd=tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    told = replay_ok("explain", tmp_path / "run", "r0", "--format", "json", cwd=other)
    assert _parts(json.loads(told)) == [("matched", 0, 3)]


def test_a_request_that_was_left_out_is_refused_and_the_others_keep_their_seq(
    tmp_path: Path,
) -> None:
    prompts = [(1, 2, 3), (5, 6, 7), (1, 2, 3, 4)]
    run = _run(tmp_path, prompts, *SMALL, "--where", "tenant = 'a'", tenant=["a", "b", "a"])
    told = _json(run, "r2")
    assert told["request"]["seq"] == 2
    assert _parts(told) == [("matched", 0, 3), ("cold", 3, 1)]
    code, message = _refusal(run, "r1")
    assert code == 2
    assert message == (
        "request 'r1' (seq 1) was not replayed: the run has where \"tenant = 'a'\":"
        " replay the trace without, and explain it in that run"
    )


def test_requests_of_one_id_are_told_apart_by_their_seq(tmp_path: Path) -> None:
    prompts = [(1, 2, 3), (5, 6, 7), (1, 2, 3, 4)]
    run = _run(tmp_path, prompts, *SMALL, request_id=["a", "b", "a"])
    assert _refusal(run, "a") == (2, "2 requests are called 'a': name one by --seq: 0, 2")
    assert _json(run, "a", "--seq", "2")["request"]["prompt_tokens"] == 4
    assert _refusal(run, "a", "--seq", "1") == (2, "seq 1 is not 'a': that is seq 0, 2")


def test_an_id_that_is_not_there_is_refused_with_the_nearest(tmp_path: Path) -> None:
    ids = ["chat-0001", "chat-0002", "agent-7"]
    run = _run(tmp_path, [(1,), (2,), (3,)], *SMALL, request_id=ids)
    missing = "no request of this run's trace is called"
    assert _refusal(run, "agent-07") == (2, f"{missing} 'agent-07': did you mean agent-7?")
    assert _refusal(run, "zzz") == (
        2,
        f"{missing} 'zzz': the first one, for example, is 'chat-0001'",
    )


def test_a_policy_that_the_run_does_not_have_is_refused(tmp_path: Path) -> None:
    run = _run(tmp_path, [(1,)], *SMALL, "--policy", "cache_aware")
    assert _refusal(run, "r0", "--policy", "round_robin") == (
        2,
        "unknown policy of this run 'round_robin': choose from cache_aware",
    )


def test_a_run_that_is_none_is_refused(tmp_path: Path) -> None:
    none = tmp_path / "none"
    assert _refusal(none, "r0") == (
        1,
        f"{none}: no such run; make one with: replay TRACE -o {none}",
    )
    none.mkdir()
    assert _refusal(none, "r0")[0] == 1


def test_a_run_whose_trace_is_gone_or_changed_is_refused(tmp_path: Path) -> None:
    run = _run(tmp_path, [(1, 2, 3), (1, 2)], *SMALL)
    trace = write_trace(tmp_path / "day.parquet", [(1, 2, 3), (1, 3)])
    assert _refusal(run, "r1") == (
        1,
        f"{run}: the trace {trace} has changed since it was replayed: replay it again",
    )
    trace.unlink()
    assert _refusal(run, "r1") == (
        1,
        (
            f"{trace}: the run {run} was made of it, and it is gone: put it back, as a request is"
            " explained by replaying the requests before it"
        ),
    )


def test_a_run_of_an_older_version_is_refused(tmp_path: Path) -> None:
    run = _run(tmp_path, [(1, 2, 3)], *SMALL)
    about = json.loads((run / "run.json").read_text(encoding="utf-8"))
    about["config"]["engine"]["gone_since"] = 1
    (run / "run.json").write_text(json.dumps(about), encoding="utf-8")
    assert _refusal(run, "r0") == (1, f"{run}: made by an older version: replay it again")


def test_a_run_that_was_decided_otherwise_is_refused(tmp_path: Path) -> None:
    run = _run(tmp_path, [(1, 2, 3), (1, 2, 4)], *SMALL)
    about = json.loads((run / "run.json").read_text(encoding="utf-8"))
    about["config"]["cost"]["prefill_ms_per_token"] = 2.0
    (run / "run.json").write_text(json.dumps(about), encoding="utf-8")
    code, message = _refusal(run, "r1", "--policy", "cache_aware")
    assert code == 1
    assert message == (
        f"{run}: seq 1 was decided otherwise under cache_aware than this version does:"
        " the run was made by another one, or is damaged: replay it again"
    )


def test_bytes_that_are_no_text_are_an_unknown_id(tmp_path: Path) -> None:
    run = _run(tmp_path, [(1, 2, 3)], *SMALL)
    assert _refusal(run, "r\udcff")[0] == 2


def test_the_help_tells_what_it_does_and_ends_with_an_example() -> None:
    text = replay_ok("explain", "--help")
    assert "Explain what happened to one request of RUN." in text
    assert "Example: replay explain runs/day1" in text
