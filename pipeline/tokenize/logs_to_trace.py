"""tokenize_logs: log files in, a linked trace out."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.encode.batches import BatchEncoder
from pipeline.encode.settings import TokenizeSettings
from pipeline.errors import LogError
from pipeline.files import whole_file
from pipeline.logs.reading import LogFile
from pipeline.logs.streams import COMPRESSED, STDIN
from pipeline.tables import ARRIVAL_TYPE
from pipeline.tokenize.intake import Intake
from pipeline.tokenize.joinable import check_joinable
from pipeline.tokenize.order import FILLED, OrderedRequests
from pipeline.tokenize.parts import Part, PartWriter, read_outputs, read_prompts
from pipeline.tokenize.rejects import Rejects, rejects_file
from pipeline.tokenize.summary import Summary, sources
from pipeline.tokenize.workshop import Workshop, open_workshop
from pipeline.trace.linker import Lists
from pipeline.trace.metadata import TraceMetadata
from pipeline.trace.writer import Requests, TraceWriter

_BATCH_IDS = 2_000_000
_BATCH_ROWS = 4096


def tokenize_logs(
    logs: Sequence[Path],
    target: Path,
    settings: TokenizeSettings | None = None,
    *,
    progress: Callable[[int], None] = lambda _: None,
) -> Summary:
    """Tokenize log files into one trace, sorted by (time, file, line), with prefix links.

    `progress` gets the bytes read so far, over all files. Lines that can't become requests go to
    `<target>.rejects.jsonl`. Raises LogError, leaving nothing behind, if a file can't be read to
    its end, if no request is left, or if too many lines are rejected. A run that is interrupted
    leaves the files that it has read for the next one, in `.<target>.parts` beside the trace.
    """
    settings = settings or TokenizeSettings()
    _check_paths(logs, target)
    with open_workshop(target, settings) as workshop, ExitStack() as stack:
        summary = Summary()
        encoder = BatchEncoder(settings)
        stack.callback(encoder.close)
        parts = []
        for part in _parts(logs, workshop, settings, encoder, summary, progress):
            stack.callback(part.close)
            parts.append(part)
            summary.add(part)
        rejects = Rejects(parts)
        summary.rejects = rejects.by_reason
        rejects.check(summary.lines, settings.max_rejects)
        check_joinable(parts, settings)
        ordered = OrderedRequests(parts, settings)
        summary.skips.update(ordered.skips)
        if not len(ordered):
            raise LogError(f"{', '.join(map(str, logs))}: no requests in it{_why(summary)}")
        _write(target, parts, ordered, settings, summary)
        summary.rejects_file = rejects.write(target, with_text=settings.keep_rejected_text)
    return summary


def _check_paths(logs: Sequence[Path], target: Path) -> None:
    """Raise LogError for logs that are missing or named twice, and for one that would be lost."""
    if target.exists() and not target.is_file():
        what = "a folder" if target.is_dir() else "no file"
        raise LogError(f"{target}: is {what}: name a file to write the trace to")
    seen: dict[Path, Path] = {}
    for log in logs:
        if log != STDIN and not log.exists():
            raise LogError(f"{log}: no such file")
        for written in (target, rejects_file(target)):
            if written.exists() and log.exists() and log.samefile(written):
                raise LogError(f"{written}: is one of the logs: name another file for the trace")
        name = log.resolve()
        plain = name.with_suffix("") if name.suffix in COMPRESSED else name
        if plain in seen:
            raise LogError(f"{log}: is the same log as {seen[plain]}: name one of them")
        seen[plain] = log


def _parts(
    logs: Sequence[Path],
    workshop: Workshop,
    settings: TokenizeSettings,
    encoder: BatchEncoder,
    summary: Summary,
    progress: Callable[[int], None],
) -> Iterator[Part]:
    """Yield the part of each log, read now or by an interrupted run before."""
    done = 0
    for log in logs:
        stem, size = workshop.stem(log), log.stat().st_size if log.is_file() else 0
        if workshop.has(log) and encoder.agrees(Part.tokenizers(stem)):
            summary.resumed += 1
        else:
            writer = PartWriter(stem)
            try:
                Intake(LogFile(log), settings, encoder).run(
                    writer, partial(_progress_after, done, progress)
                )
            finally:
                writer.close()
        done += size
        progress(done)
        yield Part(stem)


def _progress_after(before: int, progress: Callable[[int], None], read: int) -> None:
    progress(before + read)


def _why(summary: Summary) -> str:
    """Return what became of the lines of logs without requests."""
    counts = [*summary.rejects.most_common(2), *summary.skips.most_common(2)]
    return "".join(f"; {lines:,} lines: {reason}" for reason, lines in counts)


def _write(
    target: Path,
    parts: Sequence[Part],
    ordered: OrderedRequests,
    settings: TokenizeSettings,
    summary: Summary,
) -> None:
    summary.requests = len(ordered)
    summary.first_us, summary.last_us = int(ordered.arrival[0]), int(ordered.arrival[-1])
    summary.ties, summary.renamed = ordered.ties, ordered.renamed
    summary.largest_step_back_us = ordered.largest_step_back_us
    metadata = _metadata(parts, settings, summary)
    symbol = np.uint64 if metadata.block_tokens else np.uint32
    salts = _salts(parts) if metadata.block_ids == "file" else None
    keep, outputs = settings.keep_tokens, settings.output_ids
    with whole_file(target) as temporary:
        writer = TraceWriter(temporary, metadata, keep_ids=keep, outputs=outputs)
        with writer:
            for rows in ordered.slices(_ends(ordered.ids_counts())):
                ids = read_prompts(parts, rows, symbol)
                if salts is not None:
                    ids ^= np.repeat(salts[rows["part"].to_numpy()], rows["ids_count"].to_numpy())
                batch = _requests(rows, ids, blocks=bool(metadata.block_tokens))
                if outputs:
                    batch = batch._replace(outputs=_outputs(parts, rows, summary))
                writer.write(batch)
    summary.prompt_tokens, summary.prefix_tokens = writer.prompt_tokens, writer.links.prefix_tokens
    few = max(2, summary.requests // 100)
    summary.looks_reversed = writer.links.contained >= max(few, writer.links.extending + 1)


def _ends(counts: NDArray[np.int64]) -> list[int]:
    """Return where to cut requests into batches of bounded size; a long one stands alone."""
    total = np.cumsum(counts)
    ends, begin = [], 0
    while begin < len(counts):
        before = int(total[begin - 1]) if begin else 0
        end = int(np.searchsorted(total, before + _BATCH_IDS, side="right"))
        begin = min(max(end, begin + 1), begin + _BATCH_ROWS)
        ends.append(begin)
    return ends


def _block_ids(parts: Sequence[Part], settings: TokenizeSettings) -> str | None:
    """Tell whether equal block ids of two files are equal blocks, None if nobody says so.

    Ids that are no file's own may still be numbers that one publisher gave to one set of files.
    """
    own = any(part.note["own_blocks"] for part in parts)
    return settings.block_ids or ("file" if own else None)


def _salts(parts: Sequence[Part]) -> NDArray[np.uint64] | None:
    """Return a number a part that keeps its block ids apart from those of other files."""
    if len(parts) < 2:
        return None
    digests = [hashlib.blake2b(str(n).encode(), digest_size=8).digest() for n in range(len(parts))]
    return np.array([0, *(int.from_bytes(d, "little") for d in digests[1:])], np.uint64)


def _requests(rows: pl.DataFrame, ids: NDArray[np.uint64], *, blocks: bool) -> Requests:
    carried = rows.select("request_id", *FILLED).to_arrow(compat_level=pl.CompatLevel.oldest())
    arrival = rows["arrival"].to_arrow().cast(pa.timestamp("us")).cast(ARRIVAL_TYPE)
    lengths = rows["prompt_tokens"].to_numpy() if blocks else None
    offsets = _offsets(rows["ids_count"])
    return Requests(carried.append_column("arrival", arrival), ids, offsets, lengths)


def _outputs(parts: Sequence[Part], rows: pl.DataFrame, summary: Summary) -> Lists:
    """Return the output ids of requests, none where the logs hold no answer."""
    rows = rows.with_columns(pl.col("output_part", "output_begin", "output_count").fill_null(0))
    summary.without_output += int((rows["output_count"] == 0).sum())
    return Lists(read_outputs(parts, rows), _offsets(rows["output_count"]))


def _offsets(counts: pl.Series) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(counts.to_numpy(), dtype=np.int64)))


def _metadata(parts: Sequence[Part], settings: TokenizeSettings, summary: Summary) -> TraceMetadata:
    """Return what the trace will say of itself."""
    tokenizers: dict[str, tuple[str, str]] = {}
    for part in parts:
        tokenizers.update({m: (name, key) for m, (name, key) in part.note["tokenizers"].items()})
    named = [name if m == "*" else f"{m}: {name}" for m, (name, _) in sorted(tokenizers.items())]
    keys = [key for _, key in tokenizers.values()]
    key = keys[0] if len(keys) == 1 else hashlib.sha256(repr(sorted(keys)).encode()).hexdigest()
    counts = [part.note["counts"] for part in parts]
    block_tokens = max((c.get("block_tokens", 0) for c in counts), default=0) or None
    partial_block = "ceil" if any(c.get("partial_blocks") for c in counts) else "floor"
    return TraceMetadata(
        tokenizer="; ".join(named) or None,
        tokenizer_sha256=key if tokenizers else None,
        block_tokens=block_tokens,
        partial_block=partial_block if block_tokens else None,
        sources=sources(parts),
        time_note="; ".join(dict.fromkeys(summary.time_notes)),
        counts=summary.counts(),
        block_ids=_block_ids(parts, settings) if block_tokens else None,
    )
