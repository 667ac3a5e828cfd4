"""OpenTelemetry's spans and events of model calls, in the GenAI conventions of any year."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.logs.bodies import chat_of, filled
from pipeline.logs.clocks import duration_ms
from pipeline.logs.fields import count_or_none, first_of, text_or_none
from pipeline.logs.genai import answer_in, prompt_messages, said_in_event, tools_in
from pipeline.logs.kept import Kept
from pipeline.logs.otlp import Entry, entries_of, is_otlp
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Prompt, Skip

_KEPT_CHARACTERS = 1 << 26
_OTHER = Skip("a span or event that is no generation")
_MESSAGE = Skip("a message of a request, told as an event of its own")
_GENERATIONS = ("chat", "generate_content", "text_completion", "completion")
_TEXT = ("text_completion", "completion")
_CHOICE = "gen_ai.choice"
_OUTPUTS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
_CACHED = ("gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens")
_TTFTS = ("gen_ai.response.time_to_first_chunk", "gen_ai.latency.time_to_first_token")
_SESSIONS = ("gen_ai.conversation.id", "session.id")
_USERS = ("user.id", "enduser.id")
_MODELS = ("gen_ai.request.model", "gen_ai.response.model")


def _recognises(line: Any) -> bool:
    return isinstance(line, dict) and is_otlp(line)


class _Reader:
    """Reads one file; keeps the messages that come as events of their own."""

    def __init__(self) -> None:
        self._messages = Kept(_KEPT_CHARACTERS)

    def __call__(self, line: dict[str, Any]) -> Iterator[LogRecord | Skip | BadLine]:
        entries = 0
        for entry in entries_of(line):
            entries += 1
            try:
                yield self._span(entry) if entry.is_span else self._event(entry)
            except BadLine as reason:
                yield reason
        if not entries:
            yield _OTHER

    def _span(self, span: Entry) -> LogRecord | Skip:
        """Return a span's request; of one without its prompt, what it adds to its events."""
        if not _generates(span.attributes):
            return _OTHER
        prompt = _prompt(span)
        messages = self._messages.take(span.span) if span.span else []
        if prompt is None and messages:
            prompt = _chat([told["message"] for told in messages], span)
        return replace(_record(span, prompt), again=prompt is None)

    def _event(self, event: Entry) -> LogRecord | Skip:
        """Return an event's request, which its span may tell of too, and with the time it began."""
        if event.span and (message := said_in_event(event)):
            self._messages.add(event.span, {"message": message, "time": event.time})
            return _MESSAGE
        if event.name == _CHOICE and event.span:
            told = self._messages.take(event.span)
            if not told:
                return _OTHER
            event = event._replace(time=told[0]["time"])
            prompt: Prompt | None = _chat([one["message"] for one in told], event)
        else:
            prompt = _prompt(event)
        if prompt is None or not _generates(event.attributes):
            return _OTHER
        return replace(_record(event, prompt), again=True)


def _generates(attributes: dict[str, Any]) -> bool:
    """Tell whether a span is a model's generation, not a tool's, an agent's or of embeddings."""
    kind = first_of(attributes, "gen_ai.operation.name", "llm.request.type")
    if kind is not None:
        return kind in _GENERATIONS
    if attributes.get("traceloop.span.kind") is not None:
        return False
    return any(name.startswith("gen_ai.") for name in attributes)


def _prompt(entry: Entry) -> Prompt | None:
    """Return the prompt that a span or its events hold, None if it is told elsewhere."""
    for place in (entry, *entry.events):
        messages = prompt_messages(place.attributes)
        if messages is not None:
            return _chat(messages, entry)
    told = [message for event in entry.events if (message := said_in_event(event))]
    return _chat(told, entry) if told else None


def _chat(messages: str | list[dict[str, Any]], entry: Entry) -> Prompt:
    """Return messages as a prompt; those of text completions are its text."""
    if isinstance(messages, str):
        return filled(messages)  # type: ignore[no-any-return]
    attributes = entry.attributes
    kind = first_of(attributes, "gen_ai.operation.name", "llm.request.type")
    content = messages[0].get("content") if len(messages) == 1 else None
    if kind in _TEXT and isinstance(content, str):
        return filled(content)  # type: ignore[no-any-return]
    return chat_of({"messages": messages, "tools": tools_in(attributes)})


def _record(entry: Entry, prompt: Prompt | None) -> LogRecord:
    attributes = entry.attributes
    model = text_or_none(first_of(attributes, *_MODELS))
    outputs = count_or_none(first_of(attributes, *_OUTPUTS))
    return LogRecord(
        prompt=prompt,
        time=entry.time,
        request_id=entry.span,
        carried={
            "namespace": model,
            "model": model,
            "tenant": text_or_none(first_of(attributes, *_USERS)),
            "session_id": text_or_none(first_of(attributes, *_SESSIONS)),
        },
        output_tokens=outputs,
        answer=_answer(attributes, known=outputs is not None),
        observed_cached_tokens=count_or_none(first_of(attributes, *_CACHED)),
        observed_ttft_ms=duration_ms(first_of(attributes, *_TTFTS), unit_ms=1000),
        failed=entry.failed and not outputs,
    )


def _answer(attributes: dict[str, Any], *, known: bool) -> str | None:
    """Return the text of an answer; where its tokens are known, it need not be to be read."""
    try:
        return answer_in(attributes)
    except BadLine:
        if known:
            return None
        raise


FAMILY = LogFamily(
    name="otel",
    written_by="OpenTelemetry: GenAI spans and events, as OTLP JSON or one object a line",
    mark="resourceSpans or resourceLogs, or attributes and span_id or trace_id",
    recognises=_recognises,
    fields=("resourceSpans", "resourceLogs", "resourceMetrics", "attributes"),
    reader=_Reader,
)
