"""OpenAI Responses requests as JSON lines, bare or in an envelope; earlier responses are found."""

from collections.abc import Iterator
from typing import Any

from pipeline.logs.bodies import other_path
from pipeline.logs.envelopes import Envelope, body_of, goes_to, opened, path_of, records_of
from pipeline.logs.fields import text_or_none
from pipeline.logs.items import NOT_IN_LOG, is_responses, items_of, responses_chat
from pipeline.logs.kept import Kept
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Skip

_KEPT_CHARACTERS = 1 << 28
_UNFINISHED = ("queued", "in_progress")


def _recognises(line: Any) -> bool:
    if not isinstance(line, dict):
        return False
    body = body_of(line)
    return is_responses(body) or ("input" in body and goes_to(path_of(line), "responses"))


class _Reader:
    """Reads one file; keeps what was asked and answered, as later requests only name it."""

    def __init__(self) -> None:
        self._kept = Kept(_KEPT_CHARACTERS)

    def __call__(self, line: dict[str, Any]) -> Iterator[LogRecord | Skip]:
        if reason := other_path(path_of(line)):
            yield Skip(reason)
            return
        envelope = opened(line)
        body = envelope.body
        previous = text_or_none(body.get("previous_response_id"))
        if previous is None and body.get("previous_response_id"):
            raise BadLine(NOT_IN_LOG)
        earlier = self._until(previous)
        items = [self._found(item) for item in items_of(body.get("input"))]
        chat = responses_chat(body | {"input": items}, earlier)
        self._keep(envelope, previous, items)
        yield from records_of(envelope, [chat])

    def _until(self, response: str | None) -> list[Any]:
        """Return all items up to a response, of a conversation whose turns name one another."""
        turns = []
        while response is not None:
            kept = self._kept.get(response)
            if not kept:
                raise BadLine(NOT_IN_LOG)
            turns.append(kept[0]["items"])
            response = kept[0]["previous"]
        return [item for items in reversed(turns) for item in items]

    def _found(self, item: dict[str, Any]) -> Any:
        """Return the item that a reference names, any other as it is."""
        name = item.get("id")
        refers = item.get("type") == "item_reference" or item.keys() == {"id"}
        if not refers or not isinstance(name, str):
            return item
        if not (kept := self._kept.get(name)):
            raise BadLine("an item that it refers to is not in the log")
        return kept[0]["items"][0]

    def _keep(self, envelope: Envelope, previous: str | None, items: list[Any]) -> None:
        """Keep a response that later requests may name, and each item of it."""
        response, output = envelope.response, envelope.response.get("output")
        name = response.get("id")
        if not isinstance(name, str) or not isinstance(output, list) or name in self._kept:
            return
        if envelope.body.get("store") is False or response.get("status") in _UNFINISHED:
            return
        said = [item for item in output if isinstance(item, dict)]
        self._kept.add(name, {"previous": previous, "items": items + said})
        for item in said:
            if isinstance(item.get("id"), str) and item["id"] not in self._kept:
                self._kept.add(item["id"], {"previous": None, "items": [item]})


FAMILY = LogFamily(
    name="openai-responses",
    written_by="gateways: OpenAI Responses requests, bare or with time and response",
    mark="input and instructions, max_output_tokens or previous_response_id, as openai",
    recognises=_recognises,
    reader=_Reader,
)
