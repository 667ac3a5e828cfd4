"""LiteLLM's standard logging payload, as its S3, GCS and other callbacks write it."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import EMPTY, carried_of, usage_of
from pipeline.logs.clocks import milliseconds, utc
from pipeline.logs.cuts import head_of
from pipeline.logs.envelopes import answer_of, prompts_in, response_of
from pipeline.logs.fields import count_or_none, first_of, inner_json, mapping, text_or_none
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Prompt, Skip

CUT = "cut by the logger"
_PATHS = {
    "completion": "/chat/completions",
    "text_completion": "/completions",
    "responses": "/responses",
    "anthropic_messages": "/messages",
}
_PROMPTS = {"/completions": "prompt", "/responses": "input"}
_PLACES = ("messages", "prompt", "input")
_MARKS = ("... (litellm_truncated skipped ", "...truncated by litellm")
_REDACTED = "redacted-by-litellm"


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict) or "request_id" in line:
        return False
    return all(name in line for name in ("call_type", "startTime", "model_parameters"))


def _read(line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    more = mapping(line.get("model_parameters"))
    yield from read_call(line, more | body_of_call(line))


def body_of_call(line: dict[str, Any]) -> dict[str, Any]:
    """Return what a line has as its messages in the form of a body; {} if it has none."""
    said = inner_json(line.get("messages"))
    if isinstance(said, dict):
        return said
    if not said:
        return {}
    place = _PROMPTS.get(path_of(line) or "", "messages")
    if isinstance(said, str) and place == "messages":
        place = "prompt"  # no template made it
    return {place: said}


def path_of(line: dict[str, Any]) -> str | None:
    """Return where a call of this type goes, None if it has no prompt."""
    call = str(line.get("call_type")).removeprefix("CallTypes.")
    return _PATHS.get(call) or _PATHS.get(call.removeprefix("a"))


def read_call(line: dict[str, Any], body: dict[str, Any]) -> Iterator[LogRecord | Skip]:
    """Yield the requests of a call whose line says what came of it, in any of LiteLLM's tables."""
    path = path_of(line)
    if path is None:
        yield Skip("another call than chat, completions, responses and messages")
        return
    if str(line.get("cache_hit")).lower() == "true":
        yield Skip("answered from the gateway's own cache: no engine saw it")
        return
    if not any(body.get(name) for name in _PLACES):
        raise BadLine("its prompt is not in the log")
    if _is_redacted(body):
        raise BadLine("its prompt was redacted by LiteLLM")
    prompts = prompts_in(body, None if "prompt" in body else path)
    for prompt in prompts:
        yield _record(line, body, prompt, alone=len(prompts) == 1)


def _is_redacted(body: dict[str, Any]) -> bool:
    for name in _PLACES:
        said = body.get(name)
        first = said[0] if isinstance(said, list) and said else said
        if first == _REDACTED or (isinstance(first, dict) and first.get("content") == _REDACTED):
            return True
    return False


def _record(
    line: dict[str, Any], body: dict[str, Any], prompt: Prompt, *, alone: bool
) -> LogRecord:
    head, cut = head_of(prompt, _MARKS)
    if head is None:
        raise BadLine(CUT if cut else EMPTY)
    metadata = mapping(line.get("metadata"))
    response = response_of(line.get("response"))
    usage = usage_of(response)
    if usage.cached_tokens is None:
        usage = usage_of({"usage": metadata.get("usage_object")})
    asked, answered = _count(line.get("prompt_tokens")), _count(line.get("completion_tokens"))
    return LogRecord(
        prompt=head,
        time=utc(line.get("startTime")),
        request_id=text_or_none(first_of(line, "request_id", "id", "litellm_call_id")),
        carried=carried_of(body, _around(line, metadata)),
        output_tokens=answered if alone else None,
        answer=answer_of(response) if alone and answered is not None else None,
        observed_cached_tokens=usage.cached_tokens if alone else None,
        observed_ttft_ms=_ttft_ms(line),
        failed=line.get("status") == "failure" and not asked and not answered,
        cut=cut,
        length=asked if cut and alone else None,
    )


def _count(value: object) -> int | None:
    """Return a count, which an export as CSV writes as text."""
    return count_or_none(int(value) if isinstance(value, str) and value.isdecimal() else value)


def _around(line: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    teams = (line.get("end_user"), line.get("team_id"), metadata.get("user_api_key_team_id"))
    users = (line.get("user"), metadata.get("user_api_key_user_id"))
    tenant = next((name for name in (*teams, *users) if text_or_none(name)), None)
    return {"model": line.get("model"), "tenant": tenant, "session_id": line.get("session_id")}


def _ttft_ms(line: dict[str, Any]) -> float | None:
    """Return the time to the first token: an answer that wasn't streamed has only an end."""
    first = line.get("completionStartTime")
    if first is None or first == line.get("endTime"):
        return None
    return milliseconds(line.get("startTime"), first)


FAMILY = LogFamily(
    name="litellm",
    written_by="LiteLLM: standard logging payloads",
    mark="call_type, startTime and model_parameters",
    recognises=_recognises,
    fields=("call_type",),
    reader=lambda: _read,
)
