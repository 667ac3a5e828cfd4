"""Intake: one log file to a part, read here while other cores render and tokenize."""

import hashlib
from array import array
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from pipeline.encode.batches import NOTHING, BatchEncoder, Encoded, Text
from pipeline.encode.settings import TokenizeSettings
from pipeline.encode.times import NO_TIME, TimeColumn, find_zone
from pipeline.errors import LogError
from pipeline.logs.fields import covers_all
from pipeline.logs.reading import Found, LogFile, read_log
from pipeline.logs.records import BadLine, Blocks, Chat, LogRecord, Skip
from pipeline.logs.streams import Progress
from pipeline.templates.media import media_ids
from pipeline.tokenize.given import tokenizer_of_trace
from pipeline.tokenize.order import FAILED
from pipeline.tokenize.parts import PartWriter
from pipeline.tokenize.sizes import size_of

_BATCH_CHARACTERS = 1 << 22
_BATCHES_AHEAD = 2
_LONGEST_TEXT = 10_000
CUT = "cut by the logger: --cut-prompts prefix keeps the head"


class _Waiting(NamedTuple):
    """A request on its way.

    text  what is to be encoded of it, None if nothing is
    raw   its line, for those who want to see rejected ones
    """

    line: int
    record: LogRecord
    text: Text | None
    raw: bytes | None


class Intake:
    """Takes in one log file."""

    def __init__(self, log: LogFile, settings: TokenizeSettings, encoder: BatchEncoder) -> None:
        self._log = log
        self._settings = settings
        self._encoder = encoder
        self._warnings: list[str] = []
        self._times = TimeColumn(find_zone(settings.time_zone))
        self._skips_failed = settings.failed_requests == "skip"
        self._needed = array("b")
        self._fallback = array("b")
        self._lines = array("q")
        self._skips: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._kind: str | None = None
        self._tokenizers = tokenizer_of_trace(log.path)
        self._waiting: list[_Waiting] = []
        self._characters = 0

    def run(self, part: PartWriter, progress: Progress) -> None:
        """Read the log and write its part. Raises LogError if it can't be read to its end."""
        settings = self._settings
        self._part = part
        with ThreadPoolExecutor(1) as worker:
            running: list[Future[None]] = []
            for found in read_log(
                self._log,
                log_format=settings.log_format,
                columns=dict(settings.columns),
                progress=progress,
            ):
                self._take(found)
                if self._characters > _BATCH_CHARACTERS:
                    while len(running) >= _BATCHES_AHEAD:
                        running.pop(0).result()
                    running.append(worker.submit(self._write, *self._batch()))
            for future in running:
                future.result()
            self._write(*self._batch())
        self._finish()

    def _batch(self) -> tuple[list[_Waiting], Future[Encoded] | None]:
        """Return what waits, and what its texts are going to be."""
        batch, self._waiting, self._characters = self._waiting, [], 0
        texts = [one.text for one in batch if one.text is not None]
        return batch, self._encoder.submit(texts) if texts else None

    def _take(self, found: Found) -> None:
        try:
            if isinstance(found.what, BadLine):
                raise found.what
            if isinstance(found.what, Skip):
                self._skips[found.what.reason] += 1
            elif found.what.failed and not found.what.again and self._skips_failed:
                self._skips[FAILED] += 1
            else:
                self._accept(found, found.what)
        except BadLine as reason:
            self._reject(found.line, reason, found.raw)

    def _reject(self, line: int, reason: BadLine, raw: bytes | None) -> None:
        text = None
        if raw is not None and self._settings.keep_rejected_text:
            text = raw[:_LONGEST_TEXT].decode("utf-8", "replace")
        self._part.reject(line, str(reason), text)

    def _accept(self, found: Found, record: LogRecord) -> None:
        """Queue a request; BadLine if it can't become one."""
        prompt, keeps_output = record.prompt, self._settings.output_ids
        if keeps_output and isinstance(prompt, Blocks):
            raise LogError(
                f"{self._log.path}: line {found.line}: its prompt is hashes of blocks, behind which"
                " no token ids of an output can stand: tokenize it without --output-ids"
            )
        cut = record.cut or (isinstance(prompt, Blocks) and not covers_all(prompt))
        if cut and self._settings.cut_prompts == "reject":
            raise BadLine(CUT)
        self._counts["cut"] += cut
        text = None
        is_needed = record.output_ids is None if keeps_output else record.output_tokens is None
        answer = record.answer if is_needed else None
        if isinstance(prompt, Chat | str) or answer:
            known = prompt if isinstance(prompt, Chat | str) else None
            text = Text(record.carried.get("model"), known, record.time, cut, answer)
        self._characters += size_of(record)
        raw = found.raw if self._settings.keep_rejected_text else None
        raw = raw[:_LONGEST_TEXT] if raw else None
        self._waiting.append(_Waiting(found.line, record, text, raw))

    def _write(self, batch: list[_Waiting], encoding: Future[Encoded] | None) -> None:
        """Write a batch to the part."""
        encoded = encoding.result() if encoding else NOTHING
        self._tokenizers.update(encoded.tokenizers)
        self._warnings = encoded.warnings or self._warnings
        each = iter(zip(encoded.ids, encoded.answers, strict=True))
        for one in batch:
            ids, answer = next(each) if one.text is not None else (None, None)
            try:
                self._add(one, ids, answer)
            except BadLine as reason:
                self._reject(one.line, reason, one.raw)

    def _add(self, one: _Waiting, ids: bytes | BadLine | None, answer: bytes | None) -> None:
        record, prompt, width = one.record, one.record.prompt, 4
        if isinstance(ids, BadLine):
            raise ids
        if isinstance(prompt, Blocks):
            ids, width, tokens = np.array(prompt.ids, np.uint64).tobytes(), 8, prompt.prompt_tokens
            self._note_blocks(prompt)
        else:
            if isinstance(prompt, list):
                self._counts["token_ids"] += 1
                ids = np.array(prompt, np.uint32).tobytes()
            ids = ids or b""
            known = len(ids) // 4
            tokens = max(known, record.length or 0) if record.cut else known
            self._kind = self._kind or ("text" if prompt is not None else None)
        if tokens > self._settings.max_prompt_tokens:
            raise BadLine(f"longer than --max-prompt-tokens {self._settings.max_prompt_tokens}")
        if width == 4:
            ids += self._unknown(tokens - known)
        output = self._output(record, answer)
        known_output = answer if output is None else output
        outputs = record.output_tokens
        if outputs is None and known_output is not None:
            outputs = len(known_output) // 4
        get = record.carried.get
        namespace = get("namespace") if self._settings.namespaces == "log" else None
        self._times.append(record.time)
        self._needed.append(prompt is not None and not record.again)
        self._fallback.append(record.fallback)
        self._lines.append(one.line)
        named = record.request_id is not None
        row = (
            one.line, record.request_id,
            namespace, get("model"), get("tenant"), get("session_id"),
            outputs, record.observed_cached_tokens, record.observed_ttft_ms, tokens,
            _key(record.request_id.encode("utf-8", "replace")) if record.request_id else 0,
            _key(ids) if named else 0,
            prompt is not None, record.again, record.fallback,
            record.failed and self._skips_failed,
        )  # fmt: skip
        self._part.add(row, ids, width, output)

    def _output(self, record: LogRecord, answer: bytes | None) -> bytes | None:
        """Return the output ids to be kept: the log's own, else those of its text."""
        if not self._settings.output_ids:
            return None
        if record.output_ids is None:
            return answer
        return np.array(record.output_ids, np.uint32).tobytes()

    def _note_blocks(self, blocks: Blocks) -> None:
        self._kind = f"blocks of {blocks.block_tokens}"
        partial = len(blocks.ids) * blocks.block_tokens > blocks.prompt_tokens
        self._counts["partial_blocks"] += partial
        self._counts["block_tokens"] = blocks.block_tokens

    def _unknown(self, tokens: int) -> bytes:
        """Return ids of tokens that the logger left out: no other prompt has them."""
        name = f"{self._log.path.resolve()}:{len(self._lines)}"
        return media_ids(name.encode().hex(), tokens)

    def _finish(self) -> None:
        """Read the times, now that all are there, and make the part whole."""
        family = self._log.family
        relative = family.relative_unit if family else "s"
        needed, fallback = np.array(self._needed, np.bool_), np.array(self._fallback, np.bool_)
        if (needed & ~fallback).any():
            needed &= ~fallback
        times = self._times.resolve(needed, self._settings.time_unit, relative)
        for row, reason in times.reasons.items():
            self._part.reject(self._lines[row], reason, None)
        known = times.arrival_us[times.arrival_us != NO_TIME]
        note: dict[str, Any] = {
            "file": str(self._log.path),
            "lines": self._log.lines,
            "families": dict(self._log.families),
            "family": family.name if family else None,
            "own_clock": bool(family and family.own_clock),
            "own_blocks": bool(family and family.own_blocks),
            "repairs": dict(self._log.repairs),
            "skips": dict(self._skips),
            "counts": dict(self._counts),
            "kind": self._kind,
            "time_note": times.note,
            "time_kind": times.kind,
            "whole_seconds": bool(known.any() and not (known % 10**6).any()),
            "tokenizers": self._tokenizers,
            "warnings": self._warnings,
        }
        self._part.finish(times.arrival_us, note)


def _key(content: bytes) -> int:
    """Return a number that stands for a content, never 0."""
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1
