"""`replay policies`, and the options of `replay run` that say how requests are routed."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from command import Done, environment, replay_here, replay_ok

from pipeline.cli.options import fleet_options, replay_config
from pipeline.config import Absence, FleetConfig, ReplayConfig, ReplicaConfig, RoutingConfig
from pipeline.replay.policies.spec import every_policy

pytestmark = pytest.mark.usefixtures("compiled")

COLUMNS = ["policy", "rule", "source", "view", "tie", "parameters"]
SGLANG = [
    ("match_threshold", "0.5", "0 to 1"),
    ("imbalance_abs", "32", "0 to 1000000"),
    ("imbalance_rel", "1.1", "1 to 1000000"),
    ("router_view", "routed", "exact, lag:MS, routed"),
    ("router_capacity_tokens", "16777216 tokens", "0 for as much as it keeps, or more"),
    ("router_ttl_ms", "for ever", "more than 0"),
    ("tie", "lowest", "lowest, random, rotate"),
]
FLEET = """
[[replicas]]
count = 2
[[replicas]]
speed = 2.0
[[absent]]
replicas = 2
from = "+30m"
"""
POLICIES = """
[[policy]]
name = "sglang"
match_threshold = 0.3
[[policy]]
name = "random"
"""
MINE = '''
def mine(request, replicas, parameters, memory):
    """The first one.

    Formula: 0.
    """
    return 0


def silent(request, replicas, parameters, memory):
    return 0
'''


def asked(*arguments: str | Path) -> ReplayConfig:
    """Return the configuration that options of `replay run` ask for."""
    made: list[ReplayConfig] = []

    @click.command()
    @fleet_options
    def command(**options: Any) -> None:
        made.append(replay_config(options))

    ran = CliRunner().invoke(command, [*map(str, arguments)], catch_exceptions=False)
    assert ran.exit_code == 0, ran.output
    return made[0]


def check_refused(done: Done, message: str) -> None:
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("replay: ")
    assert done.stderr.count("\n") == 1
    assert message in done.stderr


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a fleet.toml, a policies.toml and a module of policies."""
    (tmp_path / "fleet.toml").write_text(FLEET, encoding="utf-8")
    (tmp_path / "policies.toml").write_text(POLICIES, encoding="utf-8")
    (tmp_path / "cli_mine.py").write_text(MINE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def own_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make modules of the folder importable, for this test."""
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("cli_mine", None)


def test_policies_are_listed_in_the_order_of_their_table() -> None:
    lines = replay_ok("policies").splitlines()
    assert lines[0].split() == COLUMNS
    assert [line.split()[0] for line in lines[2:]] == every_policy()
    rows = {row["policy"]: row for row in json.loads(replay_ok("policies", "--format", "json"))}
    assert rows["round_robin"] == {
        "policy": "round_robin",
        "rule": "Each replica in turn.",
        "source": "the reference",
        "view": "exact",
        "tie": "none left open",
        "parameters": "",
    }
    sglang = rows["sglang"]
    assert sglang["parameters"] == "match_threshold=0.5,imbalance_abs=32,imbalance_rel=1.1"
    assert (sglang["view"], sglang["tie"]) == ("routed, 16777216 tokens", "lowest")
    assert rows["aibrix"]["view"] == "routed, without limit, 1200000 ms"
    assert rows["preble"]["view"] == "routed, as much as it keeps"
    assert "threshold=inf" in rows["ray"]["parameters"]


def test_what_is_listed_can_be_given_to_policy_again() -> None:
    rows = json.loads(replay_ok("policies", "--format", "json"))
    texts = [":".join(filter(None, (row["policy"], row["parameters"]))) for row in rows]
    given = [word for text in texts for word in ("--policy", text)]
    assert asked(*given).policies == tuple(texts)


def test_one_policy_is_told_with_its_docstring_parameters_and_scores() -> None:
    told, parameters, scores = replay_ok("policies", "pure_affinity").rsplit("\n\n", 2)
    assert told.startswith("Longest match; without a match, first token modulo replicas.\n\n")
    assert "\nSource: the reference." in told
    assert [line.split("  ")[0] for line in parameters.splitlines()[2:]] == [
        "router_view",
        "router_capacity_tokens",
        "router_ttl_ms",
        "tie",
    ]
    assert scores == (
        "decided_by      best  unit  if_all_are_0\n"
        "--------------  ----  ----  ----------------------------------\n"
        "matched tokens  most        first token id T modulo N replicas\n"
    )


def test_parameters_are_told_with_default_and_range() -> None:
    rows = json.loads(replay_ok("policies", "sglang", "--format", "json"))
    assert [(row["parameter"], row["default"], row["range"]) for row in rows] == SGLANG
    assert all(row["meaning"] for row in rows)
    lines = replay_ok("policies", "sglang", "--format", "csv").splitlines()
    assert (lines[0], len(lines)) == ("parameter,default,range,meaning", 1 + len(SGLANG))


def test_a_parameter_that_has_to_be_whole_is_told_as_such() -> None:
    row = json.loads(replay_ok("policies", "prefix_aware", "--format", "json"))[0]
    assert (row["parameter"], row["default"]) == ("chunk_tokens", "32")
    assert row["range"] == "1 to 1000000, whole"


def test_a_policy_without_ties_has_no_setting_for_them() -> None:
    rows = json.loads(replay_ok("policies", "round_robin", "--format", "json"))
    assert [row["parameter"] for row in rows] == [
        "router_view",
        "router_capacity_tokens",
        "router_ttl_ms",
    ]


@pytest.mark.parametrize("name", every_policy())
def test_every_policy_can_be_told(name: str) -> None:
    told = replay_ok("policies", name)
    assert "Formula: " in told
    assert "Source:" in told
    assert "\ndecided_by" in told


def test_an_unknown_policy_is_told_with_the_nearest() -> None:
    check_refused(
        replay_here("policies", "sglagn"), "unknown policy 'sglagn' (did you mean sglang?): choose"
    )


@pytest.mark.usefixtures("own_modules")
def test_the_user_s_own_policy_is_told_too() -> None:
    assert replay_ok("policies", "cli_mine:mine").startswith("The first one.\n\nFormula: 0.\n\n")
    assert replay_ok("policies", "cli_mine:silent").startswith("It has no docstring.\n\nparameter")


def test_without_options_routing_is_each_policy_s_own() -> None:
    assert asked() == ReplayConfig()


def test_routing_options_are_settings_of_all_policies() -> None:
    config = asked(
        "--router-view", "routed", "--router-capacity-tokens", "0", "--router-ttl-ms", "9.5",
        "--tie", "random", "--seed", "7", "--seeds", "3",
    )  # fmt: skip
    assert config.routing == RoutingConfig("routed", 0, 9.5, "random", 7, 3)


def test_policies_come_from_the_option_and_then_from_the_file(folder: Path) -> None:
    file = ("--policies", folder / "policies.toml")
    assert asked(*file).policies == ("sglang:match_threshold=0.3", "random")
    assert asked("--policy", " sglang : imbalance_abs=9 ", *file).policies == (
        "sglang:imbalance_abs=9",
        "sglang:match_threshold=0.3",
        "random",
    )
    assert asked("--policy", "all").policies == tuple(every_policy())
    both = asked("--policy", "sglang:tie=random", "--policy", "all").policies
    assert both == ("sglang:tie=random", *every_policy())


def test_a_policy_of_the_user_s_own_is_one_of_the_run(own_modules: Path) -> None:
    assert own_modules.is_dir()
    text = "cli_mine:mine:router_view=lag:50"
    assert asked("--policy", text).policies == (text,)


def test_a_fleet_comes_from_a_file(folder: Path) -> None:
    fast, usual = ReplicaConfig(500, 2.0), ReplicaConfig(500)
    fleet = FleetConfig(3, 500, (usual, usual, fast), (Absence((2,), "+30m"),))
    file = ("--fleet", folder / "fleet.toml", "--capacity-tokens", "500")
    assert asked(*file).fleet == fleet
    assert asked(*file, "--replicas", "3").fleet == fleet
    assert asked("--replicas", "9", "--capacity-tokens", "5").fleet == FleetConfig(9, 5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--policy sglagn", "unknown policy 'sglagn' (did you mean sglang?)"),
        ("--policy sglang:match_threshold=2", "policy sglang: match_threshold is '2': give a"),
        ("--policies wrong.toml", "wrong.toml: [[policy]] 2: policy sglang: unknown parameter 'x'"),
        ("--policies none.toml", "none.toml: No such file or directory: give the path of a TOML"),
        ("--fleet fleet.toml --replicas 4", "replicas is 4, but fleet.toml describes 3: leave out"),
        ("--fleet policies.toml", "policies.toml: unknown table 'policy'"),
        ("--replicas 0", "replicas is 0: give 1 to 4096"),
        ("--router-view late", "router-view is 'late': give exact, lag:MS or routed"),
        ("--router-capacity-tokens -1", "router-capacity-tokens is -1: give how many tokens"),
        ("--router-ttl-ms 0", "router-ttl-ms is 0.0: give a number of ms"),
        ("--router-ttl-ms 5", "router-ttl-ms says nothing: no policy of this run sees routed"),
        ("--router-view exact --policy sglang --router-capacity-tokens 9",
         "router-capacity-tokens says nothing: no policy of this run sees routed: add"),
        ("--tie highest", "Invalid value for '--tie': 'highest' is not one of 'lowest', 'random'"),
        ("--seed -1", "seed is -1: give 0 to "),
        ("--seeds 0", "seeds is 0: give 1 to 1000"),
        ("--seeds 2", "seeds is 2, but no policy of this run chooses at random: add --tie random"),
    ],
)  # fmt: skip
def test_routing_that_can_not_be_is_refused_in_one_line(
    folder: Path, arguments: str, message: str
) -> None:
    wrong = '[[policy]]\nname = "sglang"\n[[policy]]\nname = "sglang"\nx = 1\n'
    (folder / "wrong.toml").write_text(wrong, encoding="utf-8")
    check_refused(replay_here("run", "no.parquet", *arguments.split(), cwd=folder), message)


@pytest.mark.parametrize("command", ["run", "policies"])
def test_help_does_not_wait_for_numba(command: str) -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom pipeline.cli.commands import cli\n"
        f"ran = CliRunner().invoke(cli, [{command!r}, '--help'])\n"
        "print(ran.exit_code, 'Example: ' in ran.output, {'numba', 'pyarrow'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("0 True set()\n", "")
