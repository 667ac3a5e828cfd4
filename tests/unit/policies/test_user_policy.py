"""The user's own policy: what --policy my_module:my_function takes, and what it says otherwise."""

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import pytest
from policy_states import state

from pipeline.errors import UsageError
from pipeline.replay.policies.rule import FOREVER, Policy
from pipeline.replay.policies.user import compiled_policy, load_policy

Write = Callable[..., str]
_SHORTEST = """
from pipeline.replay.policies.choice import least, uniform

def shortest(request, replicas, parameters, memory):
    for r in range(len(replicas)):
        replicas[r].score = replicas[r].queue_ticks + uniform(request, 1)
    return least(request, replicas)
"""
_HEAD = "def rule(request, replicas, parameters, memory):\n"


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that writes my_policy.py, or another module, in the current folder."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def module(text: str, name: str = "my_policy") -> None:
        Path(f"{name}.py").write_text(text, encoding="utf-8")

    yield module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def refused(text: str) -> str:
    with pytest.raises(UsageError) as error:
        load_policy(text)
    return str(error.value)


def asked(policy: Policy, queue: list[int], memory: int = 8) -> int:
    """Return the place that a policy chooses among replicas with these queues."""
    moment = state(queue=queue)
    compiled = compiled_policy(policy, own=True)
    place = compiled(moment.request[0], moment.replicas, np.zeros(0), np.zeros(memory, np.int64))
    return int(place)


def not_compiled(write: Write, body: str) -> str:
    """Return why a rule with that body is refused."""
    write(_HEAD + indent(body, "    "))
    with pytest.raises(UsageError) as error:
        compiled_policy(load_policy("my_policy:rule"), own=True)
    return str(error.value)


def test_a_plain_function_of_the_current_folder_is_found_and_compiled(write: Write) -> None:
    write(_SHORTEST)
    path = list(sys.path)
    policy = load_policy("my_policy:shortest")
    assert sys.path == path
    assert asked(policy, [5, 3, 9]) == 1
    assert compiled_policy(policy, own=True) is compiled_policy(policy, own=True)


def test_a_function_sees_all_and_promises_nothing(write: Write) -> None:
    write(_SHORTEST)
    policy = load_policy("my_policy:shortest")
    assert policy.source == "my_policy:shortest"
    assert [(score.name, score.best) for score in policy.scores] == [
        ("score of my_policy:shortest", "")
    ]
    assert (policy.needs, policy.tie, policy.draws, policy.looks_up) == (31, "lowest", True, True)
    assert (policy.view, policy.router_tokens, policy.parameters) == ("exact", FOREVER, ())


def test_a_jitted_function_and_one_of_a_package_are_taken_too(write: Write) -> None:
    Path("mine").mkdir()
    text = f"import numba\n\n@numba.njit\n{_HEAD}    return np.argmax(replicas['queue_ticks'])\n"
    write(f"import numpy as np\n{text}", "mine/longest")
    assert asked(load_policy("mine.longest:rule"), [5, 3, 9]) == 2


def test_a_rule_may_allocate_arrays_and_call_functions_of_its_own(write: Write) -> None:
    write(
        "import numpy as np\nfrom numba import njit\n\n"
        "@njit\ndef queues(replicas):\n"
        "    waits = np.empty(len(replicas))\n"
        "    for r in range(len(replicas)):\n"
        "        waits[r] = replicas[r].queue_ticks\n"
        "    return waits\n\n"
        f"{_HEAD}    return np.argmin(queues(replicas))\n"
    )
    assert asked(load_policy("my_policy:rule"), [5, 3, 9]) == 1


def test_any_integer_is_a_place(write: Write) -> None:
    for number, place in enumerate(("1", "np.int32(1)", "np.uint64(1)")):
        write(f"import numpy as np\n{_HEAD}    return {place}\n", f"mine_{number}")
        assert asked(load_policy(f"mine_{number}:rule"), [5, 3, 9]) == 1


def test_a_policy_record_brings_its_own_parameters_view_and_memory(write: Write) -> None:
    write(
        "import numpy as np\n"
        "from numba import njit\n"
        "from pipeline.replay.policies.rule import Parameter, Policy, Score\n\n"
        f"@njit\n{_HEAD}"
        "    memory[len(memory) - 1] += 1\n"
        "    return memory[len(memory) - 1] % len(replicas)\n\n"
        "def cells(replicas):\n    return np.zeros(replicas, np.int64)\n\n"
        "mine = Policy(rule, source='me', scores=[Score('turn')], view='lag:50',\n"
        "    parameters=[Parameter('step', 1, 0, 9, 'how far')], memory=cells)\n"
    )
    policy = load_policy("my_policy:mine")
    assert (policy.source, policy.view, len(policy.memory(5))) == ("me", "lag:50", 5)
    assert [parameter.name for parameter in policy.parameters] == ["step"]
    assert asked(policy, [0, 0, 0], memory=5) == 1
    assert compiled_policy(policy, own=True) is compiled_policy(policy, own=True)


def test_an_exception_of_the_rule_comes_out_of_the_compiled_one(write: Write) -> None:
    write(
        f"{_HEAD}    if request.seq == 0:\n        raise ValueError('none is good')\n    return 0\n"
    )
    with pytest.raises(ValueError, match="none is good"):
        asked(load_policy("my_policy:rule"), [1, 2])


@pytest.mark.parametrize("text", ["my_policy:", ":rule"])
def test_half_a_name_is_refused(text: str) -> None:
    assert refused(text) == (
        f"policy {text!r}: give MODULE:FUNCTION, for example my_module:my_policy"
    )


def test_an_unknown_module_is_refused_with_the_nearest_file(write: Write) -> None:
    write(_SHORTEST)
    for name in ("my_polcy", "my_policy.py"):
        assert refused(f"{name}:shortest") == (
            f"policy '{name}:shortest': there is no module {name} (did you mean"
            f" my_policy:shortest?): give the name of a file in {Path.cwd()} without"
            " .py, or of an installed module"
        )
    assert "no module zzz: give the name of a file in" in refused("zzz:shortest")
    assert "there is no module ./my_policy (did you mean" in refused("./my_policy:shortest")


def test_a_module_that_fails_is_refused_with_its_error_and_line(write: Write) -> None:
    write("x = 1\ny = x / 0\n")
    assert refused("my_policy:rule") == (
        "policy 'my_policy:rule': module my_policy can't be imported: ZeroDivisionError: division"
        f" by zero ({Path.cwd() / 'my_policy.py'}, line 2)"
    )
    write("def rule(:\n", "broken")
    assert f"SyntaxError: invalid syntax (broken.py, line 1) ({Path.cwd()}" in refused("broken:r")
    write("import nowhere\n", "asking")
    assert "module asking can't be imported: ModuleNotFoundError: No module named 'nowhere'" in (
        refused("asking:rule")
    )
    write("import sys\nsys.exit(3)\n", "leaving")
    assert "module leaving can't be imported: SystemExit: 3" in refused("leaving:rule")


def test_an_unknown_function_is_refused_with_the_nearest(write: Write) -> None:
    write(_SHORTEST)
    assert refused("my_policy:shortst") == (
        "policy 'my_policy:shortst': module my_policy has no shortst (did you mean shortest?)"
    )
    assert refused("my_policy:zzz").endswith("has no zzz: it has shortest")


def test_what_is_no_function_is_refused(write: Write) -> None:
    write("rule = 7\n\nclass Rule:\n    pass\n")
    assert refused("my_policy:rule") == (
        "policy 'my_policy:rule' is of type int: give a function of (request, replicas,"
        " parameters, memory), or a Policy"
    )
    assert "is of type type: give a function" in refused("my_policy:Rule")


@pytest.mark.parametrize(
    "arguments", ["request, replicas", "*all", "a, b, c, d, e=1", "a, b, c, *, d"]
)
def test_another_number_of_arguments_is_refused(write: Write, arguments: str) -> None:
    write(f"def rule({arguments}):\n    return 0\n")
    assert refused("my_policy:rule").endswith(
        "it has to take 4 arguments, (request, replicas, parameters, memory)"
    )


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ("scores=()", "has no scores: name what it compares"),
        ("tie='dice'", "has tie='dice': give one of lowest, random, rotate, or None"),
        ("view='late'", "router-view is 'late': give exact, lag:MS or routed"),
        ("needs=99", "has needs=99: add up LOAD"),
        ("parameters=(P('x', 5, 0, 3, ''),)", "has x=5, which is not from 0 to 3"),
        ("parameters=(P('x', 1, 0, 3, ''),) * 2", "has two parameters of one name: x, x"),
    ],
)
def test_a_policy_record_that_makes_no_sense_is_refused(
    write: Write, changed: str, said: str
) -> None:
    write(
        "from pipeline.replay.policies.rule import Parameter as P, Policy, Score\n"
        f"{_HEAD}    return 0\n"
        f"mine = Policy(rule, source='me', scores=(Score('x'),))._replace({changed})\n"
    )
    assert said in refused("my_policy:mine")


@pytest.mark.parametrize("read", ["replicas['queue']", "replicas[0].queue", "replicas['queues']"])
def test_what_is_no_field_of_a_policy_is_refused(write: Write, read: str) -> None:
    write(f"{_HEAD}    {read}\n    return 0\n")
    assert refused("my_policy:rule") == (
        "policy 'my_policy:rule': neither a request nor a replica has a field"
        f" queue{'s' * ('queues' in read)} (did you mean queue_ticks?)"
    )


def test_a_rule_that_changes_the_fleet_is_refused(write: Write) -> None:
    write(f"{_HEAD}    replicas[0].queue_ticks = 0\n    return 0\n")
    assert refused("my_policy:rule") == (
        "policy 'my_policy:rule' writes queue_ticks: of what it is given, a policy may write"
        " replicas[...].score, request.branch and memory"
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "return replicas[0].matched_token",
            "has a field matched_token (did you mean matched_tokens?)",
        ),
        ("return nearest(replicas)", "NameError: name 'nearest' is not defined"),
        ("with open('x') as f:\n    return 0", "construct is not supported ("),
        ("return max(replicas, key=len)", "No implementation of function Function(<built-in"),
    ],
)
def test_what_numba_refuses_is_told_in_its_own_words_in_one_line(
    write: Write, body: str, said: str
) -> None:
    told = not_compiled(write, body)
    assert told.startswith("policy my_policy:rule: ")
    assert said in told
    assert "\n" not in told
    assert len(told) < 500
    assert f"{Path.cwd() / 'my_policy.py'}, line " in told


@pytest.mark.parametrize(
    ("body", "returned"),
    [
        ("replicas[0].score = 1", "none"),
        ("return replicas[0].score", "float64"),
        ("return request.first_token_id if request.seq else 0", "float64"),
        ("return request.seq > 3", "bool"),
        ("if request.seq > 3:\n    return 0", "OptionalType(int64)"),
    ],
)
def test_a_rule_that_returns_no_integer_is_refused(write: Write, body: str, returned: str) -> None:
    assert not_compiled(write, body) == (
        f"policy my_policy:rule returns {returned}: on every way it has to return an integer, the"
        " chosen one's place in replicas; np.int64(...) makes one"
        f" ({Path.cwd() / 'my_policy.py'}, line 1)"
    )
