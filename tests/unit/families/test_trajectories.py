"""tau-bench and SWE-agent: what an agent asked its model on the way."""

import json
from typing import Any

import pytest
from family_reading import read_lines

from pipeline.logs.families import swe_agent, tau_bench
from pipeline.logs.records import BadLine, Chat, LogFamily, LogRecord, Skip

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Open it."}
CALLS = [{"id": "1", "type": "function", "function": {"name": "open", "arguments": "{}"}}]
ACTION = {"role": "assistant", "content": None, "tool_calls": CALLS}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "opened"}
ANSWER = {"role": "assistant", "content": "Done."}


_read = read_lines


def _prompts(found: list[LogRecord | Skip]) -> list[Any]:
    return [one.prompt for one in found if isinstance(one, LogRecord)]


def test_each_answer_of_a_trajectory_is_a_request_and_the_users_last_word_is_none() -> None:
    traj = [SYSTEM, USER, ACTION, RESULT, ANSWER, {"role": "user", "content": "###STOP###"}]
    carried = {"namespace": None, "model": None, "tenant": None, "session_id": "3-1"}
    assert _read(tau_bench.FAMILY, {"task_id": 3, "trial": 1, "traj": traj}) == [
        LogRecord(Chat([SYSTEM, USER]), request_id="3-1-0", carried=carried, answer="open\n{}"),
        LogRecord(
            Chat([SYSTEM, USER, ACTION, RESULT]),
            request_id="3-1-1",
            carried=carried,
            answer="Done.",
        ),
    ]


def test_a_trajectory_without_answers_is_skipped() -> None:
    line = {"task_id": 3, "traj": [SYSTEM, USER]}
    assert _read(tau_bench.FAMILY, line) == [Skip("a conversation without turns")]


def _history(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"trajectory": [], "history": list(messages), "info": {}} | more


def test_a_history_becomes_messages_without_the_agents_own_fields() -> None:
    own = {"agent": "main", "message_type": "action", "thought": "x", "action": "open"}
    result = {"role": "tool", "content": "opened", "tool_call_ids": ["1"], "agent": "main"}
    thoughts = [{"type": "thinking", "thinking": "Hm"}, {"type": "redacted_thinking"}]
    action = ACTION | own | {"thinking_blocks": thoughts}
    found = _read(swe_agent.FAMILY, _history(SYSTEM | own, USER, action, result, ANSWER))
    asked = ACTION | {"reasoning_content": "Hm"}
    assert _prompts(found) == [Chat([SYSTEM, USER]), Chat([SYSTEM, USER, asked, RESULT])]


def test_a_demonstration_is_part_of_the_prompt_and_no_request() -> None:
    shown = [message | {"is_demo": True} for message in (USER, ANSWER)]
    assert _prompts(_read(swe_agent.FAMILY, _history(SYSTEM, *shown, USER, ANSWER))) == [
        Chat([SYSTEM, USER, ANSWER, USER])
    ]


def test_a_steps_query_is_what_was_asked_whatever_the_history_says() -> None:
    short = {"role": "user", "content": "(old output left out)"}
    steps = [
        {"query": [SYSTEM, USER], "response": "open", "thought": "x"},
        {"query": [SYSTEM, short], "response": "", "thought": "Done."},
        {"query": [{}], "response": "Exit due to cost limit"},
    ]
    line = _history(SYSTEM, USER, ANSWER, trajectory=steps, instance_id="dome-7")
    carried = {"namespace": None, "model": None, "tenant": None, "session_id": "dome-7"}
    assert _read(swe_agent.FAMILY, line) == [
        LogRecord(Chat([SYSTEM, USER]), request_id="dome-7-0", carried=carried, answer="open"),
        LogRecord(Chat([SYSTEM, short]), request_id="dome-7-1", carried=carried, answer="Done."),
    ]


def test_model_and_problem_come_from_the_configuration() -> None:
    config = {"agent": {"model": {"name": "m"}}, "problem_statement": {"id": "dome-7"}}
    for written in (config, json.dumps(config)):
        [record] = _read(swe_agent.FAMILY, _history(USER, ANSWER, replay_config=written))
        assert isinstance(record, LogRecord)
        assert record.request_id == "dome-7-0"
        assert record.carried["model"] == "m"
        assert record.carried["session_id"] == "dome-7"


@pytest.mark.parametrize("config", [None, 7, "{", {"agent": 7}, {"problem_statement": "x"}])
def test_a_configuration_in_another_form_says_nothing(config: object) -> None:
    [record] = _read(swe_agent.FAMILY, _history(USER, ANSWER, replay_config=config))
    assert isinstance(record, LogRecord)
    assert record.request_id is None
    assert set(record.carried.values()) == {None}


def test_a_history_with_something_else_in_it_is_a_bad_line() -> None:
    with pytest.raises(BadLine, match="a message has no role"):
        _read(swe_agent.FAMILY, {"trajectory": [], "history": [USER, "x"]})


@pytest.mark.parametrize("family", [tau_bench.FAMILY, swe_agent.FAMILY])
@pytest.mark.parametrize(
    "line",
    [{}, "x", None, {"traj": []}, {"task_id": 1, "traj": "x"}, {"history": []}, {"trajectory": []}],
)
def test_other_lines_are_not_recognised(family: LogFamily, line: object) -> None:
    assert not family.recognises(line)
