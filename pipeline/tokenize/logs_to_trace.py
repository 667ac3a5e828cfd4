"""tokenize_logs: log files in, a linked trace out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.errors import LogError, UsageError
from pipeline.files import whole_file
from pipeline.logs import FAMILIES
from pipeline.logs.lines import parse_line, read_lines
from pipeline.logs.records import BadLine, Blocks, Chat, LogFamily, LogRecord, Prompt
from pipeline.tables import ARRIVAL_TYPE, TRACE
from pipeline.tokenize.chat import ChatTemplate, chatml
from pipeline.tokenize.summary import Summary
from pipeline.tokenize.times import FileTimes, check_unit, read_times
from pipeline.tokenize.vocabulary import Vocabulary, qwen3
from pipeline.trace.metadata import TraceMetadata
from pipeline.trace.writer import Requests, TraceWriter

_BATCH_CHARACTERS = 1 << 22
_BATCH_ROWS = 4096
_COLUMNS = {
    **{c.name: pl.String for c in TRACE if c.type == pa.string()},
    "arrival": pl.Int64,
    "output_tokens": pl.UInt32,
    "observed_cached_tokens": pl.UInt32,
    "observed_ttft_ms": pl.Float64,
}


def tokenize_logs(
    logs: Sequence[Path],
    target: Path,
    *,
    time_unit: str | None = None,
    max_rejects: float = 0.01,
    progress: Callable[[int], None] = lambda _: None,
) -> Summary:
    """Tokenize log files into one trace, sorted by (time, file, line), with prefix links.

    `progress` gets the bytes read so far, over all files. Lines that can't become requests go to
    `<target>.rejects.jsonl`. Raises LogError, leaving nothing behind, if a file can't be read to
    its end, if no request is left, or if more than a share `max_rejects` of lines is rejected.
    """
    check_unit(time_unit)
    if not 0 <= max_rejects <= 1:
        raise UsageError(f"--max-rejects is {max_rejects}: give a share from 0 to 1")
    if target.exists() and any(log.exists() and log.samefile(target) for log in logs):
        raise LogError(f"{target}: is one of the logs: name another file for the trace")
    intake = _Intake(time_unit)
    done = 0
    for log in logs:
        intake.read(log, partial(_progress_after, done, progress))
        done += log.stat().st_size
    summary = intake.summary
    summary.rejects.check(summary.lines, max_rejects)
    if not intake.ids:
        raise LogError(f"{', '.join(map(str, logs))}: no requests in it")
    with whole_file(target) as temporary:
        with TraceWriter(temporary, intake.metadata([log.name for log in logs])) as writer:
            for requests in intake.in_order():
                writer.write(requests)
        summary.requests = writer.rows
        summary.prompt_tokens, summary.prefix_tokens = writer.prompt_tokens, writer.prefix_tokens
        summary.rejects_file = summary.rejects.write(target)
    return summary


def _progress_after(before: int, progress: Callable[[int], None], read: int) -> None:
    progress(before + read)


class _Intake:
    """Requests of all files as columns, and their ids as one array a request."""

    def __init__(self, time_unit: str | None) -> None:
        self.summary = Summary()
        self.ids: list[NDArray[Any]] = []
        self._time_unit = time_unit
        self._prompt_tokens: list[int] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._family: LogFamily | None = None
        self._time_kind: str | None = None
        self._encoder: _Encoder | None = None

    def read(self, log: Path, progress: Callable[[int], None]) -> None:
        """Take in one file."""
        lines: list[int] = []
        records: list[LogRecord] = []
        prompts: list[Prompt] = []
        ids: list[NDArray[Any] | None] = []
        waiting = 0
        for number, line in read_lines(log, progress):
            self.summary.lines += 1
            try:
                found = list(self._records(line))
            except BadLine as reason:
                self.summary.rejects.add(str(log), number, str(reason))
                continue
            for record in found:
                lines.append(number)
                records.append(record)
                prompts.append(record.prompt)
                waiting += len(record.prompt) if isinstance(record.prompt, str) else 1
            if waiting > _BATCH_CHARACTERS:
                ids += self._encode(prompts)
                prompts, waiting = [], 0
        ids += self._encode(prompts)
        self._keep(str(log), lines, records, ids)

    def _records(self, line: bytes) -> Iterator[LogRecord]:
        """Yield a line's requests, chats already rendered."""
        parsed = parse_line(line)
        family = next((f for f in FAMILIES if f.recognises(parsed)), None)
        if family is None:
            raise BadLine("no prompt in it: neither messages, prompt nor hash_ids")
        self._family = self._family or family
        if family is not self._family:
            raise BadLine(f"a {family.name} line among {self._family.name} lines")
        yield from (self._rendered(record) for record in family.read(parsed))

    def _rendered(self, record: LogRecord) -> LogRecord:
        if not isinstance(record.prompt, Chat):
            return record
        text = self._text_encoder().template.render(record.prompt)
        return replace(record, prompt=text)

    def _text_encoder(self) -> "_Encoder":
        self._encoder = self._encoder or _Encoder(qwen3(), chatml())
        return self._encoder

    def _encode(self, prompts: list[Prompt]) -> list[NDArray[Any] | None]:
        """Return the ids of each prompt, None where the tokenizer gave up."""
        texts = [p for p in prompts if isinstance(p, str)]
        encoded = iter(self._text_encoder().vocabulary.encode_batch(texts) if texts else ())
        ids: list[NDArray[Any] | None] = []
        for prompt in prompts:
            if isinstance(prompt, Blocks):
                ids.append(np.array(prompt.ids, np.uint64))
            else:
                tokens = next(encoded) if isinstance(prompt, str) else prompt
                ids.append(None if tokens is None else np.array(tokens, np.uint32))
        return ids

    def _keep(
        self, log: str, lines: list[int], records: list[LogRecord], ids: list[NDArray[Any] | None]
    ) -> None:
        """Add a file's requests to the columns, those without a time or tokens left out."""
        unit = self._time_unit or (self._family.time_unit if self._family else None)
        times = read_times([record.time for record in records], unit)
        self._check_joinable(log, times)
        for i, record in enumerate(records):
            arrival_us, tokens = times.arrival_us[i], ids[i]
            if arrival_us is None or tokens is None:
                reason = times.reasons.get(i, "the tokenizer failed on it")
                self.summary.rejects.add(log, lines[i], reason)
                continue
            self.ids.append(tokens)
            blocks = record.prompt if isinstance(record.prompt, Blocks) else None
            self._prompt_tokens.append(blocks.prompt_tokens if blocks else len(tokens))
            values = {
                "request_id": record.request_id,
                "arrival": arrival_us,
                "output_tokens": record.output_tokens,
                "observed_cached_tokens": record.observed_cached_tokens,
                "observed_ttft_ms": record.observed_ttft_ms,
                **record.carried,
            }
            for name, column in self._columns.items():
                column.append(values.get(name))
        self.summary.time_notes.append(f"{Path(log).name}: {times.note}")

    def _check_joinable(self, log: str, times: FileTimes) -> None:
        """Raise LogError if the requests of this file can't stand beside those of the others."""
        if not times.arrival_us:
            return
        kind = self._time_kind or times.kind
        if times.kind != kind:
            raise LogError(
                f"{log}: it has {times.kind}, the logs before it have {kind}: no common order"
            )
        if self._time_kind and self._family and self._family.block_tokens:
            raise LogError(
                f"{log}: every block trace numbers its own blocks, so two can't be joined:"
                " tokenize them one by one"
            )
        self._time_kind = kind

    def metadata(self, sources: list[str]) -> TraceMetadata:
        """Return what the trace will say of itself."""
        assert self._family is not None
        encoder, family = self._encoder, self._family
        return TraceMetadata(
            tokenizer=encoder.vocabulary.name if encoder else None,
            tokenizer_sha256=encoder.sha256 if encoder else None,
            block_tokens=family.block_tokens,
            partial_block=family.partial_block,
            sources=tuple(sources),
            time_note="; ".join(self.summary.time_notes),
        )

    def in_order(self) -> Iterator[Requests]:
        """Yield all requests by time; ties keep the order of files and lines."""
        assert self._family is not None
        self.summary.family = self._family.name
        frame = pl.DataFrame(self._columns, schema=_COLUMNS).with_row_index("row")
        frame = frame.sort("arrival", "row")
        first, last = frame["arrival"].item(0), frame["arrival"].item(-1)
        self.summary.first_us, self.summary.last_us = first, last
        order = frame["row"].to_numpy()
        row_number = pl.int_range(pl.len()).cast(pl.String)
        frame = frame.with_columns(pl.col("request_id").fill_null(row_number)).drop("row")
        lengths = np.array(self._prompt_tokens, np.uint32)
        for begin in range(0, len(order), _BATCH_ROWS):
            rows = order[begin : begin + _BATCH_ROWS]
            carried = frame.slice(begin, len(rows)).to_arrow()
            arrival = carried["arrival"].cast(pa.timestamp("us")).cast(ARRIVAL_TYPE)
            carried = carried.set_column(carried.column_names.index("arrival"), "arrival", arrival)
            ids = [self.ids[row] for row in rows]
            offsets = np.concatenate(([0], np.cumsum([len(i) for i in ids], dtype=np.int64)))
            yield Requests(carried, np.concatenate(ids), offsets, lengths[rows])


class _Encoder:
    """The vocabulary and the chat template of a trace, loaded once a text comes."""

    def __init__(self, vocabulary: Vocabulary, template: ChatTemplate) -> None:
        self.vocabulary = vocabulary
        self.template = template
        self.sha256 = f"{vocabulary.sha256[:32]}{template.sha256[:32]}"
