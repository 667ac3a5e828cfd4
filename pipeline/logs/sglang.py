"""SGLang's request objects, as its text and JSON logs, metrics files and dumps hold them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pipeline.logs.bodies import Usage, failed, filled, numbered
from pipeline.logs.clocks import before, seconds_or_none
from pipeline.logs.fields import (
    count_or_none,
    ids_or_none,
    mapping,
    remember,
    text_or_none,
    token_ids,
)
from pipeline.logs.records import BadLine, LogRecord, Skip
from pipeline.logs.reprs import CUT, Cut

NO_PROMPT = "no prompt in it: SGLang logs it from --log-requests-level 2 on"
SERVER_LINE = "a line of the server's that tells of no request"
OTHER_ENDPOINT = "another endpoint than chat and completions"
_HEALTH_CHECK = "HEALTH_CHECK"
_ROUTING_KEY = "x-smg-routing-key"
_REMEMBERED = 1 << 16


def requests_of(
    obj: dict[str, Any],
    out: dict[str, Any],
    *,
    time: float | str | None = None,
    tenant: str | None = None,
    again: bool = False,
) -> Iterator[LogRecord | Skip | BadLine]:
    """Yield the requests of a GenerateReqInput's fields and its response, empty if there is none.

    A batch is one request for each of its prompts. What a logger cut stands in `obj` as Cut.
    """
    rid = obj.get("rid")
    first = rid[0] if isinstance(rid, list) and rid else rid
    if isinstance(first, str) and first.startswith(_HEALTH_CHECK):
        yield Skip("health check or other path")
        return
    if "is_cross_encoder_request" in obj:  # only an EmbeddingReqInput has it
        yield Skip(OTHER_ENDPOINT)
        return
    prompts, answer, meta = _prompts(obj), out.get("text"), mapping(out.get("meta_info"))
    output_ids = _output_ids(out) if len(prompts) == 1 else None
    usage = _usage(out, meta)
    for number, prompt in enumerate(prompts):
        try:
            record = _told(prompt, usage)
        except BadLine as reason:
            yield reason
            continue
        yield replace(
            record,
            time=time,
            request_id=_request_id(rid, number, len(prompts)),
            carried=_carried(obj, tenant, number, len(prompts)),
            answer=answer if isinstance(answer, str) else None,
            output_ids=output_ids,
            again=again,
            failed=failed(mapping(meta.get("finish_reason")).get("status_code"), usage),
        )


class Told:
    """Which requests lines so far told of with a whole prompt: the last ones."""

    def __init__(self) -> None:
        self._ids: dict[str, None] = {}

    def once(self, found: LogRecord | Skip | BadLine) -> LogRecord | Skip | BadLine:
        """Return what a line told, without a cut prompt if another line told the whole one."""
        if not isinstance(found, LogRecord) or found.request_id is None:
            return found
        if not found.cut:
            remember(self._ids, found.request_id, None, at_most=_REMEMBERED)
        elif found.again and found.request_id in self._ids:
            return replace(found, prompt=None, cut=False, length=None)
        return found


def tenant_of(headers: object) -> str | None:
    """Return the routing key that a request was sent with."""
    return text_or_none(mapping(headers).get(_ROUTING_KEY))


def started(ended: str | None, out: dict[str, Any]) -> float | str | None:
    """Return when a request came whose response is here, the end where that isn't known."""
    seconds = seconds_or_none(mapping(out.get("meta_info")).get("e2e_latency"))
    return ended if ended is None or seconds is None or seconds < 0 else before(ended, seconds)


def _prompts(obj: dict[str, Any]) -> list[Any]:
    """Return the prompts, as token ids rather than as text: these are what was computed."""
    if "text" not in obj and "input_ids" not in obj:
        raise BadLine(NO_PROMPT)
    if mapping(obj.get("session_params")).get("rid") is not None:
        raise BadLine("it goes on with a session, whose text is elsewhere")
    prompt: Any = obj.get("input_ids") or obj.get("text")
    if not prompt and obj.get("input_embeds") is not None:
        raise BadLine("the prompt came as embeddings")
    if isinstance(prompt, Cut):
        if _is_batch(prompt.head):
            raise BadLine(CUT)  # its last prompts are gone
        return [prompt]
    return list(prompt) if _is_batch(prompt) else [prompt]


def _is_batch(prompt: Any) -> bool:
    """Tell whether a prompt is a list of prompts, not of token ids."""
    return isinstance(prompt, list | tuple) and any(
        isinstance(first, str | list | tuple) for first in prompt[:1]
    )


def _told(prompt: Any, usage: Usage) -> LogRecord:
    """Return a prompt and what was reported of it."""
    cut = isinstance(prompt, Cut)
    prompt = prompt.head if isinstance(prompt, Cut) else prompt
    if cut and not prompt:
        raise BadLine(CUT)
    if isinstance(prompt, tuple):
        prompt = list(prompt)
    return LogRecord(
        filled(prompt) if not prompt or isinstance(prompt, str) else token_ids(prompt),
        output_tokens=usage.output_tokens,
        observed_cached_tokens=usage.cached_tokens,
        cut=cut,
        length=usage.prompt_tokens if cut else None,
    )


def _usage(out: dict[str, Any], meta: dict[str, Any]) -> Usage:
    ids = out.get("output_ids")
    output = count_or_none(meta.get("completion_tokens"))
    if output is None and isinstance(ids, list | tuple) and not isinstance(ids, Cut):
        output = len(ids)
    cached, prompt = meta.get("cached_tokens"), meta.get("prompt_tokens")
    return Usage(output, count_or_none(cached), count_or_none(prompt))


def _output_ids(out: dict[str, Any]) -> list[int] | None:
    """Return the output's token ids, unless the logger cut them."""
    ids = out.get("output_ids")
    if isinstance(ids, Cut) or not isinstance(ids, list | tuple):
        return None
    return ids_or_none(list(ids))


def _request_id(rid: object, number: int, of: int) -> str | None:
    if isinstance(rid, list) and len(rid) == of:
        return text_or_none(rid[number])
    return numbered(text_or_none(rid), number, of)


def _carried(
    obj: dict[str, Any], tenant: str | None, number: int, of: int
) -> dict[str, str | None]:
    """Return what a request carries; adapter and cache salt keep KV apart."""
    apart = [_own(obj.get(name), number, of) for name in ("lora_path", "extra_key")]
    session = mapping(obj.get("session_params")).get("id")
    return {
        "namespace": "/".join(part for part in apart if part) or None,
        "tenant": tenant or text_or_none(obj.get("routing_key")),
        "session_id": text_or_none(obj.get("session_id")) or text_or_none(session),
    }


def _own(value: Any, number: int, of: int) -> str | None:
    """Return a request's share of what a batch has as one value for all or as a list."""
    return text_or_none(value[number] if isinstance(value, list) and len(value) == of else value)
