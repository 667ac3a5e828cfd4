"""The user's own policy in a run: beside others, in decisions, and what it may do wrong."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Done, replay, replay_here
from engine_days import busy, random_day, write_day
from samples import SMALL_FLEET, column, names_in, rows_of, write_trace

from pipeline.config import ReplayConfig, RoutingConfig
from pipeline.errors import PolicyError, UsageError
from pipeline.report import open_run
from pipeline.run import replay_trace
from pipeline.run_folder import table_file

pytestmark = pytest.mark.usefixtures("compiled")

HEAD = "def rule(request, replicas, parameters, memory):\n"
MINE = '''
from numba import njit
from pipeline.replay.policies.choice import least, uniform


def last(request, replicas, parameters, memory):
    """The last one."""
    return len(replicas) - 1


@njit
def turn(request, replicas, parameters, memory):
    memory[0] += 1
    return (memory[0] - 1) % len(replicas)


def shortest(request, replicas, parameters, memory):
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].queue_ticks + replicas[r].exec_ticks
    return least(request, replicas)


def drawn(request, replicas, parameters, memory):
    return int(uniform(request, 1) * len(replicas))
'''
PROMPTS = [(i, i + 1, i + 2) for i in range(0, 60, 10)]

Run = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the current folder, which has my_module.py and a trace of six requests, r0 to r5."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_module.py").write_text(MINE, encoding="utf-8")
    write_trace(tmp_path / "day.parquet", PROMPTS)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def asked(*policies: str, **routing: Any) -> ReplayConfig:
    """Return a fleet of two replicas of 6 tokens, each of which costs 1 ms."""
    return ReplayConfig(
        SMALL_FLEET.fleet,
        cost=SMALL_FLEET.cost,
        clock=SMALL_FLEET.clock,
        routing=RoutingConfig(**routing),
        policies=policies,
    )


def decisions(run: Path, policy: str) -> list[dict[str, Any]]:
    return rows_of(table_file(run, "decisions", policy))


def broken(folder: Path, body: str, **routing: Any) -> str:
    """Replay under a policy with that body; return the error, after which no file is left."""
    name = f"wrong_{len(list(folder.glob('*.py')))}"
    (folder / f"{name}.py").write_text(HEAD + body, encoding="utf-8")
    before = names_in(folder)
    with pytest.raises(PolicyError) as error:
        replay_trace(folder / "day.parquet", folder / "run", asked(f"{name}:rule", **routing), 4)
    assert names_in(folder) - {"__pycache__"} == before - {"__pycache__"}
    return str(error.value).replace(name, "wrong")


def test_a_plain_function_and_a_jitted_one_decide_beside_built_in_ones(folder: Path) -> None:
    policies = ("round_robin", "my_module:last", "cache_aware", "my_module:turn")
    run = folder / "run"
    replay_trace(folder / "day.parquet", run, asked(*policies))
    assert column(decisions(run, "my_module:last"), "replica_id") == [1] * 6
    assert column(decisions(run, "my_module:turn"), "replica_id") == [0, 1] * 3
    assert column(decisions(run, "round_robin"), "replica_id") == [0, 1] * 3
    rows = open_run(run).sql("select policy, count(*) from decisions group by 1").fetchall()
    assert sorted(rows) == sorted((policy, 6) for policy in policies)


def test_a_run_names_the_policy_as_it_was_asked_for_and_says_what_decided(folder: Path) -> None:
    text = "my_module:last:router_view=lag:50"
    run = folder / "run"
    replay_trace(folder / "day.parquet", run, asked(text))
    rows = open_run(run).sql(
        "select distinct policy, decided_by, queued_requests is not null from decisions"
    ).fetchall()  # fmt: skip
    assert rows == [(text, "score of my_module:last", True)]
    about = json.loads((run / "run.json").read_text(encoding="utf-8"))
    [chosen] = about["config"]["chosen_policies"]
    assert (chosen["policy"], chosen["name"]) == (text, "my_module:last")
    assert (chosen["source"], chosen["router_view"]) == ("my_module:last", "lag:50")
    assert list(about["totals"]) == [text]


@pytest.mark.parametrize("view", ["exact", "lag:2", "routed"])
def test_a_rule_of_the_user_s_that_is_a_built_in_one_decides_the_same(
    folder: Path, view: str
) -> None:
    trace = write_day(folder / "busy.parquet", random_day(6, 150))
    policies = ("cache_aware", "my_module:shortest", "round_robin", "my_module:turn")
    for model in ("reference", "vllm in flight"):
        config = busy(model, *(f"{policy}:router_view={view}" for policy in policies))
        replay_trace(trace, folder / "run", config)
        one, mine, other, turn = (decisions(folder / "run", p) for p in config.policies)
        assert {row["replica_id"] for row in mine} == {None, 0, 1}
        assert [told(row) for row in mine] == [told(row) for row in one]
        assert column(turn, "replica_id") == column(other, "replica_id")


def told(row: dict[str, Any]) -> dict[str, Any]:
    """Return a decision without what each policy calls or counts its own way."""
    own = {"decided_by", "queued_requests", "running_requests"}
    return {name: value for name, value in row.items() if name not in own}


def test_chance_is_the_seed_s_and_each_seed_is_replayed(folder: Path) -> None:
    trace = write_day(folder / "busy.parquet", random_day(6, 150))
    policies = ("random", "my_module:drawn")
    replay_trace(trace, folder / "run", asked(*policies, seed=4, seeds=2))
    for place in (folder / "run", folder / "run" / "seeds" / "seed=5"):
        built_in, users = (decisions(place, policy) for policy in policies)
        assert column(built_in, "replica_id") == column(users, "replica_id")
    views = open_run(folder / "run")
    counts = views.sql("select policy, count(distinct seed) from seed_decisions group by 1")
    assert sorted(counts.fetchall()) == sorted((policy, 2) for policy in policies)


@pytest.mark.parametrize("place", ["2", "-1", "2**62"])
def test_a_replica_that_does_not_exist_ends_the_run_and_the_request_is_named(
    folder: Path, place: str
) -> None:
    body = f"    return {place} if request.seq == 4 else 0\n"
    assert broken(folder, body) == (
        "request r4 (seq 4): policy wrong:rule chose a replica that does not exist: give a place"
        " from 0 to 1, one of the 2 replicas that it was shown"
    )


RAISED = "request r5 (seq 5): policy wrong:rule failed with ValueError: none is good"
RAISES = "    if request.seq == 5:\n        raise ValueError('none is good')\n    return 0\n"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (RAISES, RAISED),
        ("    return int(parameters[request.seq - 3])\n",
         "request r0 (seq 0): policy wrong:rule failed with IndexError: index is out of bounds"),
        ("    memory[request.seq * 2] = 1\n    return 0\n",
         "request r4 (seq 4): policy wrong:rule failed with IndexError: index is out of bounds"),
        ("    return 1 // (2 - request.seq)\n",
         "request r2 (seq 2): policy wrong:rule failed with ZeroDivisionError: "),
    ],
)  # fmt: skip
def test_an_exception_ends_the_run_with_its_name_its_words_and_the_request(
    folder: Path, body: str, told: str
) -> None:
    assert broken(folder, body).startswith(told)


@pytest.mark.parametrize("view", ["lag:30", "routed"])
def test_the_request_of_an_exception_is_the_one_at_hand_in_any_view(
    folder: Path, view: str
) -> None:
    assert broken(folder, RAISES, router_view=view) == RAISED


def test_an_earlier_run_stays_if_a_policy_fails(folder: Path) -> None:
    run = folder / "run"
    replay_trace(folder / "day.parquet", run, asked("my_module:last"))
    (folder / "wrong.py").write_text(f"{HEAD}    return 7\n", encoding="utf-8")
    with pytest.raises(PolicyError, match=r"^request r0 \(seq 0\): policy wrong:rule chose"):
        replay_trace(folder / "day.parquet", run, asked("round_robin", "wrong:rule"))
    assert column(decisions(run, "my_module:last"), "replica_id") == [1] * 6
    assert not (run / "decisions" / "policy=round_robin").exists()


def test_a_policy_that_can_not_be_compiled_is_refused_before_anything_is_written(
    folder: Path,
) -> None:
    (folder / "wrong.py").write_text(f"{HEAD}    return replicas[0].mood\n", encoding="utf-8")
    with pytest.raises(UsageError, match="neither a request nor a replica has a field mood"):
        replay_trace(folder / "day.parquet", folder / "run", asked("wrong:rule"))
    assert not (folder / "run").exists()


def command(folder: Path, *policies: str) -> tuple[str, ...]:
    given = [word for policy in policies for word in ("--policy", policy)]
    sizes = ("--replicas", "2", "--capacity-tokens", "6")
    return ("run", str(folder / "day.parquet"), "-o", str(folder / "run"), *given, *sizes)


def check_failed(done: Done, code: int, message: str) -> None:
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr == f"replay: {message}\n"


def test_the_command_takes_a_function_of_the_current_folder(folder: Path) -> None:
    done = replay(*command(folder, "my_module:turn", "my_module:last", "random"), cwd=folder)
    assert done.returncode == 0, done.stderr
    for policy in ("my_module:turn", "my_module:last", "random"):
        assert policy in done.stdout
    assert column(decisions(folder / "run", "my_module:turn"), "replica_id") == [0, 1] * 3


def test_the_command_ends_with_1_and_one_line_if_a_policy_fails(folder: Path) -> None:
    (folder / "far.py").write_text(f"{HEAD}    return 2\n", encoding="utf-8")
    (folder / "bad.py").write_text(
        f"{HEAD}    if request.seq == 0:\n        raise ValueError('no')\n    return 0\n",
        encoding="utf-8",
    )
    before = names_in(folder)
    done = replay_here(*command(folder, "round_robin", "far:rule"), cwd=folder)
    check_failed(
        done, 1, "request r0 (seq 0): policy far:rule chose a replica that does not exist: give a"
        " place from 0 to 1, one of the 2 replicas that it was shown",
    )  # fmt: skip
    done = replay_here(*command(folder, "bad:rule"), cwd=folder)
    check_failed(done, 1, "request r0 (seq 0): policy bad:rule failed with ValueError: no")
    assert names_in(folder) - {"__pycache__"} == before


CHEATS = """
from pipeline.replay.policies.choice import least


def honest(request, replicas, parameters, memory):
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].queue_ticks + replicas[r].exec_ticks
    return least(request, replicas)


def cheat(request, replicas, parameters, memory):
    chosen = honest_of(request, replicas)
    for r in range(len(replicas)):
        replicas["exec_ticks"][r] = 0
        replicas["matched_tokens"][r] = request.prompt_tokens
        replicas["queue_ticks"][r] = 0
    return chosen


from numba import njit

@njit
def honest_of(request, replicas):
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].queue_ticks + replicas[r].exec_ticks
    return least(request, replicas)
"""


def test_what_a_policy_writes_over_its_replicas_changes_nothing_but_its_view(folder: Path) -> None:
    (folder / "cheats.py").write_text(CHEATS, encoding="utf-8")
    policies = ("cheats:honest", "cheats:cheat")
    replay_trace(folder / "day.parquet", folder / "run", asked(*policies))
    honest, cheat = (rows_of(table_file(folder / "run", "decisions", p)) for p in policies)
    believed = column(cheat, "believed_matched_tokens")
    assert believed == column(cheat, "prompt_tokens")
    for row in (*honest, *cheat):
        del row["decided_by"], row["believed_matched_tokens"]
    assert honest == cheat


def test_a_branch_without_a_score_is_told_with_its_request(folder: Path) -> None:
    (folder / "wrong_branch.py").write_text(
        f"{HEAD}    request.branch = 3\n    return 0\n", "utf-8"
    )
    with pytest.raises(PolicyError, match=r"request r0 \(seq 0\): .* set request.branch to 3"):
        replay_trace(folder / "day.parquet", folder / "run", asked("wrong_branch:rule"))
    assert not (folder / "run").exists()


@pytest.mark.parametrize("word", ["async def", "def"])
def test_a_policy_that_does_not_simply_return_is_refused(folder: Path, word: str) -> None:
    body = f"{HEAD.replace('def', word, 1)}    {'return' if word == 'async def' else 'yield'} 0\n"
    (folder / "no_return.py").write_text(body, "utf-8")
    with pytest.raises(UsageError, match="is async or yields: give a plain function that returns"):
        replay_trace(folder / "day.parquet", folder / "run", asked("no_return:rule"))


def test_parameters_that_are_none_are_refused(folder: Path) -> None:
    record = "from pipeline.replay.policies import Policy, Score\n"
    record += f"{HEAD}    return 0\n"
    record += 'mine = Policy(rule, "us", (Score("x"),), ("weight",))\n'
    (folder / "bare_record.py").write_text(record, "utf-8")
    with pytest.raises(UsageError, match=r"give a tuple of Parameter\(name, default, low, high"):
        replay_trace(folder / "day.parquet", folder / "run", asked("bare_record:mine"))
