"""SWE-agent trajectory files: what the agent asked at each step, or its history of messages.

From version 1.1 on, a step holds its very query. Before, the history stands for it, although
the agent may have shortened it when it asked.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.logs.fields import mapping, text_or_none
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip
from pipeline.logs.turns import requests_of


def _recognises(line: Any) -> bool:
    return (
        isinstance(line, dict)
        and isinstance(line.get("trajectory"), list)
        and isinstance(line.get("history"), list)
    )


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    config = mapping(line.get("replay_config"))
    problem, model = (
        mapping(config.get("problem_statement")),
        mapping(mapping(config.get("agent")).get("model")),
    )
    name = text_or_none(line.get("instance_id")) or text_or_none(problem.get("id"))
    asked = text_or_none(model.get("name"))
    carried = {"namespace": asked, "model": asked, "tenant": None, "session_id": name}
    steps = [step for step in map(mapping, line["trajectory"]) if _is_query(step.get("query"))]
    if steps:
        for number, step in enumerate(steps):
            yield from _step(step, number, name, carried)
        return
    history = [_message(item) for item in line["history"]]
    examples = [at for at, item in enumerate(line["history"]) if item.get("is_demo")]
    yield from requests_of(history, name, carried, begin=max(examples, default=-1) + 1)


def _step(
    step: dict[str, Any], number: int, name: str | None, carried: dict[str, str | None]
) -> Iterator[LogRecord | Skip]:
    """Yield the request of a step: its query, and the response as its answer."""
    messages = [_message(item) for item in step["query"]]
    messages.append({"role": "assistant", "content": step.get("response") or step.get("thought")})
    for one in requests_of(messages, name, carried, begin=len(messages) - 1):
        if isinstance(one, LogRecord) and name is not None:
            yield replace(one, request_id=f"{name}-{number}")
        else:
            yield one


def _is_query(query: object) -> bool:
    """Tell a query from the default, which is a list of one empty object."""
    return isinstance(query, list) and bool(query) and isinstance(query[0], dict) and bool(query[0])


def _message(item: Any) -> dict[str, Any]:
    """Return a message of the history in the OpenAI form, without the agent's own fields."""
    if not isinstance(item, dict):
        raise BadLine("a message has no role")
    message = {"role": item.get("role"), "content": item.get("content")}
    if isinstance(item.get("tool_calls"), list):
        message["tool_calls"] = item["tool_calls"]
    answered = item.get("tool_call_ids")
    if isinstance(answered, list) and answered:
        message["tool_call_id"] = answered[0]
    thoughts = item.get("thinking_blocks")
    if isinstance(thoughts, list):
        texts = (text_or_none(mapping(block).get("thinking")) for block in thoughts)
        message["reasoning_content"] = "\n".join(filter(None, texts))
    return message


FAMILY = LogFamily(
    name="swe-agent",
    written_by="SWE-agent: trajectory files",
    mark="trajectory and history",
    recognises=_recognises,
    fields=("trajectory",),
    reader=lambda: _read,
)
