"""Observations of Langfuse: of its API (camelCase), or of its blob export (snake_case)."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import EMPTY, carried_of
from pipeline.logs.clocks import duration_ms, milliseconds, utc
from pipeline.logs.envelopes import answer_of, prompts_in
from pipeline.logs.fields import count_or_none, first_of, inner_json, mapping, text_or_none
from pipeline.logs.genai import openai_messages
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Prompt, Skip

_TYPES = (
    "AGENT", "CHAIN", "EMBEDDING", "EVALUATOR", "EVENT", "GENERATION", "GUARDRAIL", "RETRIEVER",
    "SPAN", "TOOL",
)  # fmt: skip
_CUT = "<truncated due to size"
_CACHED = ("input_cached_tokens", "input_cache_read", "cache_read_input_tokens")


def _is_observation(line: Any) -> bool:
    if not isinstance(line, dict) or line.get("type") not in _TYPES:
        return False
    camel, snake = ("traceId", "startTime"), ("trace_id", "start_time")
    return all(name in line for name in camel) or all(name in line for name in snake)


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    page = line.get("data")
    return _is_observation(line) or (isinstance(page, list) and _is_observation(*page[:1] or [0]))


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip | BadLine]:
    """Yield a line's generation, or those of a page as the API answers."""
    if _is_observation(line):
        yield _observation(line)
        return
    page = line.get("data")
    if not isinstance(page, list):
        raise BadLine("no prompt in a known form")
    for observation in page:
        try:
            yield _observation(observation)
        except BadLine as reason:
            yield reason


def _observation(line: dict[str, Any]) -> LogRecord | Skip:
    if line.get("type") != "GENERATION":
        return Skip("an observation that is no generation")
    [prompt, *others] = _prompts(line)
    if others:
        raise BadLine("several prompts in one generation")
    usage = mapping(first_of(line, "usageDetails", "usage_details", "usage"))
    outputs = _outputs(usage)
    level, start = line.get("level"), first_of(line, "startTime", "start_time")
    around = {
        "model": first_of(line, "model", "providedModelName", "provided_model_name"),
        "tenant": first_of(line, "userId", "user_id"),
        "session_id": first_of(line, "sessionId", "session_id"),
    }
    return LogRecord(
        prompt=prompt,
        time=utc(start),
        request_id=text_or_none(line.get("id")),
        carried=carried_of({}, around),
        output_tokens=outputs,
        answer=_answer(line.get("output")),
        observed_cached_tokens=count_or_none(first_of(usage, *_CACHED)),
        observed_ttft_ms=_ttft_ms(line, start),
        failed=level == "ERROR" and not outputs,
    )


def _prompts(line: dict[str, Any]) -> list[Prompt]:
    said = inner_json(line.get("input"))
    if said is None:
        raise BadLine("its prompt is not in the log")
    if isinstance(said, str):
        if said.startswith(_CUT):
            raise BadLine("cut by the logger")
        return prompts_in({"prompt": said})
    if isinstance(said, list):
        said = {"messages": said}
    if not isinstance(said, dict) or not said:
        raise BadLine(EMPTY)
    if isinstance(said.get("messages"), list):
        tools = mapping(first_of(line, "modelParameters", "model_parameters")).get("tools")
        said = {"tools": inner_json(tools)} | said
        said["messages"] = openai_messages(said["messages"])
    return prompts_in(said)


def _outputs(usage: dict[str, Any]) -> int | None:
    """Return the tokens of an answer: reasoning and others are counted beside `output`."""
    counts = [count_or_none(n) for name, n in usage.items() if name.startswith("output")]
    known = [count for count in counts if count is not None]
    return sum(known) if known else count_or_none(usage.get("completion_tokens"))


def _answer(output: object) -> str | None:
    output = inner_json(output)
    if isinstance(output, str):
        return output or None
    said = mapping(output)
    content = said.get("content")
    return content if isinstance(content, str) and content else answer_of(said)


def _ttft_ms(line: dict[str, Any], start: object) -> float | None:
    first = first_of(line, "completionStartTime", "completion_start_time")
    if first is not None:
        return milliseconds(start, first)
    return duration_ms(first_of(line, "timeToFirstToken", "time_to_first_token"), unit_ms=1000)


FAMILY = LogFamily(
    name="langfuse",
    written_by="Langfuse: observations of its API, or of its export to blob storage",
    mark="type, and traceId and startTime, or trace_id and start_time",
    recognises=_recognises,
    fields=("type", "data"),
    reader=lambda: _read,
)
