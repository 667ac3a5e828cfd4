"""vLLM's text log of requests: with the prompt up to 0.11.0, at debug level from 0.11.1 on.

Its lines name no year. Where nothing before them does either, times are in the year 2000, or 1999
for a log that starts after June: order and gaps are right, the year is not.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from pipeline.logs.bodies import filled
from pipeline.logs.fields import ids_or_none, token_ids
from pipeline.logs.records import BadLine, LogFamily, LogRecord, Prompt, Skip
from pipeline.logs.reprs import fields, value, value_or_none
from pipeline.logs.sglang import OTHER_ENDPOINT, SERVER_LINE

NO_PROMPT = "no prompt in it: vLLM logs it with VLLM_LOGGING_LEVEL=DEBUG"
_LINE = re.compile(
    r"(?P<before>[^'\"]{0,300}?)\b(?:"
    r"Received request (?P<came>.{1,300}?): (?=prompt: |params: )"
    r"|Request (?P<details>.{1,300}?) details: (?=prompt: )"
    r"|Generated response (?P<ended>.{1,300}?)(?: \(streaming (?P<streamed>delta|complete)\))?"
    r"(?: details)?: (?=output: |output_token_ids: ))"
)
_DATE = re.compile(r"(\d{4})-(\d\d-\d\d)[ T](\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)(Z|[+-]\d\d:?\d\d)?")
_NO_YEAR = re.compile(r"(?<![\d-])(\d\d-\d\d) (\d\d:\d\d:\d\d(?:[.,]\d{1,9})?)")
_YEAR = 2000
_HALF_YEAR = 6
_OTHER_IDS = ("embd-", "pool-", "score-", "rerank-", "classify-", "tokn-")
_TOKENS = re.compile(r"<streaming_complete: (\d{1,9}) tokens>")


def _recognises(line: Any) -> bool:
    return isinstance(line, str) and _LINE.match(line) is not None


class _Reader:
    """Reads the lines of one file."""

    def __init__(self) -> None:
        self._clock = _Clock()
        self._with_details = False

    def __call__(self, line: str) -> Iterator[LogRecord | Skip]:
        start = _LINE.match(line)
        assert start is not None
        request_id = start["came"] or start["details"] or start["ended"]
        if start["streamed"] == "delta":
            yield Skip("a part of an answer that comes whole")
            return
        if request_id.startswith(_OTHER_IDS):
            yield Skip(OTHER_ENDPOINT)
            return
        said = fields(line, start.end())
        if start["ended"]:
            yield _answer(request_id, said)
            return
        time = self._clock.read(start["before"])
        yield self._request(request_id, time, said, details=bool(start["details"]))

    def _request(
        self, request_id: str, time: str | None, said: dict[str, str], *, details: bool
    ) -> LogRecord | Skip:
        params = said.get("params") or said.get("sampling_params") or said.get("sampling params")
        if params is not None and params.startswith(("None", "PoolingParams(")):
            return Skip(OTHER_ENDPOINT)
        carried = {"namespace": _adapter(said.get("lora_request"))}
        if "prompt" not in said:
            if not self._with_details:
                raise BadLine(NO_PROMPT)
            return LogRecord(None, time=time, request_id=request_id, carried=carried, again=True)
        self._with_details |= details
        return LogRecord(_prompt(said), time=time, request_id=request_id, carried=carried)


class _Clock:
    """Dates to the times of one file's lines, all of one kind, as the first shows."""

    def __init__(self) -> None:
        self._dated: bool | None = None
        self._year = _YEAR
        self._first_year = _YEAR
        self._month: int | None = None

    def read(self, before: str) -> str | None:
        """Return the time that stands before a line's text, with a year."""
        date, stamp = _DATE.search(before), _NO_YEAR.search(before)
        if self._dated is None and (date or stamp):
            self._dated = date is not None
        if date and self._dated:
            return self._with_year(int(date[1]), date[2], date[3]) + (date[4] or "")
        if date and stamp is None:
            return self._with_year(None, date[2], date[3])
        return self._with_year(None, stamp[1], stamp[2]) if stamp else None

    def _with_year(self, year: int | None, day: str, time: str) -> str:
        """Return a date; without a year, in the one of the line before or the one beside it."""
        month = int(day[:2])
        if year is not None:
            self._year = self._first_year = year
        elif self._month is None:
            # so that a 29 February after a turn of the year is in 2000, which has one
            self._year = self._first_year = _YEAR - (month > _HALF_YEAR)
        elif self._month - month > _HALF_YEAR:
            self._year += 1
        elif month - self._month > _HALF_YEAR and self._year > self._first_year:
            return f"{self._year - 1}-{day} {time.replace(',', '.')}"
        self._month = month
        return f"{self._year}-{day} {time.replace(',', '.')}"


def _prompt(said: dict[str, str]) -> Prompt:
    """Return the token ids, which are what was computed, else the text."""
    ids = said.get("prompt_token_ids") or said.get("prompt token ids")
    prompt: Any = value(ids.rstrip(". ")) if ids else None
    if isinstance(prompt, list) and prompt:
        return token_ids(prompt)
    prompt = value(said["prompt"])
    if prompt is None and said.get("prompt_embeds shape", "None").rstrip(".") != "None":
        raise BadLine("the prompt came as embeddings")
    if filled(prompt) and not isinstance(prompt, str):
        raise BadLine("a prompt is neither text nor token ids")
    text: str = prompt
    return text


def _adapter(said: str | None) -> str | None:
    if said is None or not said.startswith("LoRARequest("):
        return None
    name = value_or_none(fields(said, said.index("(") + 1).get("lora_name"))
    return name if isinstance(name, str) and name else None


def _answer(request_id: str, said: dict[str, str]) -> LogRecord:
    ids, text = value_or_none(said.get("output_token_ids")), value_or_none(said.get("output"))
    text = text if isinstance(text, str) else None
    counted = _TOKENS.fullmatch(text or "")
    tokens = len(ids) if isinstance(ids, list) else int(counted[1]) if counted else None
    return LogRecord(
        None,
        request_id=request_id,
        output_tokens=tokens,
        answer=None if counted else text,
        output_ids=ids_or_none(ids),
        again=True,
    )


def _reader() -> Callable[[str], Iterator[LogRecord | Skip]]:
    return _Reader()


FAMILY = LogFamily(
    name="vllm",
    written_by="vLLM: --enable-log-requests",
    mark="Received request …: prompt: … or Request … details: prompt: …",
    recognises=_recognises,
    reader=_reader,
    other_lines=SERVER_LINE,
)
