"""The built-in chat templates: what they write is put together here in plain Python."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from template_samples import ANSWER, CALL, CHATS, QUESTION, SYSTEM, Message, bare_vocabulary

from pipeline.logs.records import BadLine, Chat
from pipeline.templates import BUILT_IN, find_template

Tools = list[Message] | None
LLAMA_TOKENS = {"bos_token": "<|begin_of_text|>"}
BAR = "\uff5c"


def dumps(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def text_of(message: Message) -> str:
    return str(message["content"] or "")


def calls_of(message: Message) -> list[Message]:
    return [call["function"] for call in message.get("tool_calls", [])]


def chatml(messages: Sequence[Message], tools: Tools) -> str:
    system = text_of(messages[0]) if messages[0]["role"] == "system" else None
    turns = list(messages if system is None else messages[1:])
    written = ""
    if tools:
        written = "<|im_start|>system\n" + (f"{system}\n\n" if system is not None else "")
        written += "# Tools\n\n<tools>\n" + "".join(dumps(tool) + "\n" for tool in tools)
        written += "</tools>\n\nCall a tool by writing <tool_call>"
        written += '{"name": ..., "arguments": ...}</tool_call>.<|im_end|>\n'
    elif system is not None:
        written = f"<|im_start|>system\n{system}<|im_end|>\n"
    for turn in turns:
        called = "".join(f"<tool_call>{dumps(call)}</tool_call>" for call in calls_of(turn))
        written += f"<|im_start|>{turn['role']}\n{text_of(turn)}{called}<|im_end|>\n"
    return written + "<|im_start|>assistant\n"


def llama3(messages: Sequence[Message], tools: Tools) -> str:
    def header(role: str) -> str:
        return f"<|start_header_id|>{role}<|end_header_id|>\n\n"

    has_system = messages[0]["role"] == "system"
    written = "<|begin_of_text|>" + header("system")
    written += "Environment: ipython\n" if tools else ""
    written += "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    written += (text_of(messages[0]).strip() if has_system else "") + "<|eot_id|>"
    for number, turn in enumerate(messages[1:] if has_system else messages):
        written += header("ipython" if turn["role"] == "tool" else turn["role"])
        if tools and number == 0:
            written += (
                "Given the following functions, please respond with a JSON for a function call"
                " with its proper arguments that best answers the given prompt.\n\n"
                'Respond in the format {"name": function name, "parameters": dictionary of'
                " argument name and its value}. Do not use variables.\n\n"
            )
            written += "".join(dumps(tool, 4) + "\n\n" for tool in tools)
        if calls_of(turn):
            for call in calls_of(turn):
                arguments = dumps(json.loads(call["arguments"]))
                written += f'{{"name": {dumps(call["name"])}, "parameters": {arguments}}}'
        elif turn["role"] == "tool":
            written += dumps(text_of(turn))
        else:
            written += text_of(turn).strip()
        written += "<|eot_id|>"
    return written + header("assistant")


def mistral(messages: Sequence[Message], tools: Tools) -> str:
    last = max(i for i, turn in enumerate(messages) if turn["role"] == "user")
    written = "<s>"
    for number, turn in enumerate(messages):
        text = text_of(turn)
        if turn["role"] == "system":
            written += f"[SYSTEM_PROMPT]{text}[/SYSTEM_PROMPT]"
        elif turn["role"] == "user":
            if tools and number == last:
                written += f"[AVAILABLE_TOOLS]{dumps(tools)}[/AVAILABLE_TOOLS]"
            written += f"[INST]{text}[/INST]"
        elif turn["role"] == "tool":
            written += f"[TOOL_RESULTS]{turn['tool_call_id']}[TOOL_CONTENT]{text}[/TOOL_RESULTS]"
        else:
            written += text
            if turn.get("tool_calls"):
                made = [
                    {"name": call["function"]["name"], "arguments": arguments, "id": call["id"]}
                    for call in turn["tool_calls"]
                    for arguments in [json.loads(call["function"]["arguments"])]
                ]
                written += "[TOOL_CALLS]" + dumps(made)
            written += "</s>"
    return written


def deepseek(messages: Sequence[Message], tools: Tools) -> str:
    def mark(name: str) -> str:
        return f"<{BAR}{name.replace(' ', '▁')}{BAR}>"

    written = "".join(text_of(turn) for turn in messages if turn["role"] == "system")
    if tools:
        written += "\n\n## Tools\n\n" + "".join(dumps(tool) + "\n" for tool in tools)
    for turn in messages:
        text = text_of(turn)
        if turn["role"] == "user":
            written += mark("User") + text
        elif turn["role"] == "assistant":
            written += mark("Assistant") + text
            if calls_of(turn):
                written += mark("tool calls begin")
                for call in calls_of(turn):
                    written += mark("tool call begin") + call["name"] + mark("tool sep")
                    written += dumps(json.loads(call["arguments"])) + mark("tool call end")
                written += mark("tool calls end")
            written += mark("end of sentence")
        elif turn["role"] == "tool":
            written += mark("tool output begin") + text + mark("tool output end")
    return written + mark("Assistant")


def plain(messages: Sequence[Message], tools: Tools) -> str:
    written = f"tools: {dumps(tools)}\n" if tools else ""
    for turn in messages:
        called = f" {dumps(turn['tool_calls'])}" if turn.get("tool_calls") else ""
        written += f"{turn['role']}: {text_of(turn)}{called}\n"
    return written + "assistant:"


WRITERS: dict[str, Callable[[Sequence[Message], Tools], str]] = {
    "chatml": chatml,
    "llama3": llama3,
    "mistral": mistral,
    "deepseek": deepseek,
    "plain": plain,
}


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("case", CHATS)
def test_a_built_in_template_writes_what_plain_python_writes(name: str, case: str) -> None:
    messages, tools = CHATS[case]
    tokens = LLAMA_TOKENS if name == "llama3" else {}
    found = find_template(name, bare_vocabulary("v", tokens))
    assert found.render(Chat(list(messages), tools)) == WRITERS[name](messages, tools)


@pytest.mark.parametrize("name", ["chatml", "llama3", "deepseek"])
def test_the_next_turn_begins_with_all_of_this_one(name: str) -> None:
    found = find_template(name, bare_vocabulary("v", LLAMA_TOKENS))
    first = found.render(Chat([SYSTEM, QUESTION]))
    more = found.render(Chat([SYSTEM, QUESTION, {**ANSWER, "content": "yes"}, QUESTION]))
    assert more.startswith(first)


def test_mistral_moves_the_tools_to_the_last_question() -> None:
    found = find_template("mistral", bare_vocabulary("v"))
    tools = CHATS["tools"][1]
    first = found.render(Chat([QUESTION], tools))
    assert not found.render(Chat([QUESTION, ANSWER, QUESTION], tools)).startswith(first)


def test_chatml_shows_arguments_as_they_were_logged() -> None:
    """Else day1.parquet, which ships, would be another trace."""
    found = find_template("chatml", bare_vocabulary("qwen3"))
    for arguments in ('{"a":1}', "{}", "not JSON", '{"a": 1, "a": 2}', ""):
        call = {"function": {"name": "f", "arguments": arguments}}
        messages = [QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]}]
        assert found.render(Chat(messages)) == chatml(messages, None)


def test_a_thought_of_an_earlier_turn_is_left_out_by_deepseek_alone() -> None:
    thought = {"role": "assistant", "content": "<think>why</think>because"}
    chats = Chat([QUESTION, thought, QUESTION])
    vocabulary = bare_vocabulary("v")
    assert "why" not in find_template("deepseek", vocabulary).render(chats)
    assert "why" in find_template("chatml", vocabulary).render(chats)


@pytest.mark.parametrize("name", ["mistral", "deepseek"])
def test_a_role_that_a_template_does_not_know_is_rejected(name: str) -> None:
    found = find_template(name, bare_vocabulary("v"))
    with pytest.raises(BadLine, match=r"^the chat template failed: TemplateError$"):
        found.render(Chat([{"role": "narrator", "content": "secret"}]))


def test_a_developer_speaks_as_the_system_does() -> None:
    for name in ("mistral", "deepseek"):
        found = find_template(name, bare_vocabulary("v"))
        developer = {**SYSTEM, "role": "developer"}
        assert found.render(Chat([developer, QUESTION])) == found.render(Chat([SYSTEM, QUESTION]))


def test_the_date_of_llama_may_be_set_by_the_request() -> None:
    found = find_template("llama3", bare_vocabulary("v"))
    assert "Today Date: 1 Jan 2030\n" in found.render(
        Chat([QUESTION], settings={"date_string": "1 Jan 2030"})
    )


def test_a_call_without_content_and_an_empty_message_are_written() -> None:
    for name in BUILT_IN:
        found = find_template(name, bare_vocabulary("v"))
        assert "look_up" in found.render(Chat([QUESTION, CALL]))
        assert found.render(Chat([QUESTION, {"role": "assistant"}]))
