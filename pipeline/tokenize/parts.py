"""A part: what one log file gave, on disk, so that memory follows no log and a rerun goes on.

A part is some files: rows (Arrow), ids of prompts (raw uint32 or uint64) and of outputs (raw
uint32, if they were asked for), rejects, and a note (JSON). The note comes last: a part with a
note is whole.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

ROWS = pa.schema(
    [
        ("line", pa.int64()),
        ("request_id", pa.string()),
        ("namespace", pa.string()),
        ("model", pa.string()),
        ("tenant", pa.string()),
        ("session_id", pa.string()),
        ("output_tokens", pa.uint32()),
        ("observed_cached_tokens", pa.uint32()),
        ("observed_ttft_ms", pa.float64()),
        ("prompt_tokens", pa.uint32()),
        ("id_key", pa.uint64()),  # 0 without a request_id
        ("prompt_key", pa.uint64()),
        ("prompt", pa.bool_()),  # False: it only adds to another row
        ("again", pa.bool_()),
        ("fallback", pa.bool_()),
        ("failed", pa.bool_()),
        ("output_begin", pa.int64()),  # null without output ids
        ("output_count", pa.int64()),
        ("ids_begin", pa.int64()),
        ("ids_count", pa.int64()),
    ]
)
REJECTS = pa.schema([("line", pa.int64()), ("reason", pa.string()), ("text", pa.string())])
_BATCH = 16_384


class _Table:
    """Rows on their way into an Arrow file, one batch in memory."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._file = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_file(self._file, schema)
        self._rows: list[tuple[Any, ...]] = []

    def append(self, row: tuple[Any, ...]) -> None:
        self._rows.append(row)
        if len(self._rows) == _BATCH:
            self._flush()

    def _flush(self) -> None:
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(self._schema)
        arrays = [
            pa.array(column, field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._rows = []

    def close(self) -> None:
        if not self._file.closed:
            self._flush()
            self._writer.close()
            self._file.close()


class PartWriter:
    """Writes the part of one log file."""

    def __init__(self, stem: Path) -> None:
        self._stem = stem
        _of(stem, "note").unlink(missing_ok=True)  # of a part that is made anew
        self._rows = _Table(_of(stem, "rows"), ROWS)
        self._rejects = _Table(_of(stem, "rejects"), REJECTS)
        self._ids = _of(stem, "ids").open("wb")
        _of(stem, "outputs").unlink(missing_ok=True)
        self._outputs: BinaryIO | None = None
        self._bytes = 0
        self._lock = Lock()

    def add(
        self, row: tuple[Any, ...], ids: bytes, width: int, output: bytes | None = None
    ) -> None:
        """Add a request: the columns of ROWS but the last four, ids of so many bytes, output."""
        place: tuple[int | None, int | None] = None, None
        if output is not None:
            if self._outputs is None:
                self._outputs = _of(self._stem, "outputs").open("wb")
            place = self._outputs.tell() // 4, len(output) // 4
            self._outputs.write(output)
        self._rows.append((*row, *place, self._bytes // width, len(ids) // width))
        self._ids.write(ids)
        self._bytes += len(ids)

    def reject(self, line: int, reason: str, text: str | None) -> None:
        """Add a line that gave no request; any thread may."""
        with self._lock:
            self._rejects.append((line, reason, text))

    def finish(self, arrival_us: NDArray[np.int64], note: dict[str, Any]) -> None:
        """Make the part whole."""
        self.close()
        with _of(self._stem, "arrival").open("wb") as stream:
            stream.write(arrival_us.tobytes())
        temporary = _of(self._stem, "note.tmp")
        temporary.write_text(json.dumps(note), encoding="utf-8")
        temporary.replace(_of(self._stem, "note"))

    def close(self) -> None:
        """Close the files."""
        self._rows.close()
        self._rejects.close()
        self._ids.close()
        if self._outputs is not None:
            self._outputs.close()


class Part:
    """A part that is whole."""

    def __init__(self, stem: Path) -> None:
        self._stem = stem
        self.note: dict[str, Any] = json.loads(_of(stem, "note").read_text(encoding="utf-8"))
        paths = {what: _of(stem, what) for what in ("ids", "outputs")}
        self._files = {w: os.open(path, os.O_RDONLY) for w, path in paths.items() if path.exists()}

    @staticmethod
    def tokenizers(stem: Path) -> dict[str, tuple[str, str]]:
        """Return the tokenizers that a whole part's ids are of, by the models that they are for."""
        note = json.loads(_of(stem, "note").read_text(encoding="utf-8"))
        return {models: (name, key) for models, (name, key) in note["tokenizers"].items()}

    def close(self) -> None:
        """Close the files of ids."""
        for descriptor in self._files.values():
            os.close(descriptor)

    def rows(self) -> pl.DataFrame:
        """Return its rows, mapped from disk, with their arrival (NO_TIME for none)."""
        frame = _mapped(_of(self._stem, "rows"))
        arrival = np.fromfile(_of(self._stem, "arrival"), np.int64)
        return frame.with_columns(pl.Series("arrival", arrival))

    def rejects(self) -> pl.DataFrame:
        """Return the lines that gave no request, in order."""
        frame = _mapped(_of(self._stem, "rejects"))
        return frame.sort("line", maintain_order=True)

    def read_ids(self, what: str, begin: int, target: memoryview) -> None:
        """Fill `target` with what lies from byte `begin` on in `ids` or `outputs`."""
        done = 0
        while done < len(target):
            got = os.preadv(self._files[what], [target[done:]], begin + done)
            if got == 0:
                raise EOFError(self._stem)
            done += got


def is_whole(stem: Path) -> bool:
    """Tell whether a part was written to its end."""
    return _of(stem, "note").exists()


def read_prompts(
    parts: Sequence[Part],
    rows: pl.DataFrame,
    symbol: type[np.uint32] | type[np.uint64],
) -> NDArray[Any]:
    """Return the ids of rows (part, ids_begin, ids_count), one after another."""
    return _read(parts, "ids", rows.select("part", "ids_begin", "ids_count"), symbol)


def read_outputs(parts: Sequence[Part], rows: pl.DataFrame) -> NDArray[np.uint32]:
    """Return the output ids of rows (output_part, output_begin, output_count), likewise."""
    places = rows.select("output_part", "output_begin", "output_count")
    return _read(parts, "outputs", places, np.uint32)


def _read(
    parts: Sequence[Part],
    what: str,
    places: pl.DataFrame,
    symbol: type[np.uint32] | type[np.uint64],
) -> NDArray[Any]:
    part, first, counts = (column.to_numpy() for column in places.iter_columns())
    ids: NDArray[Any] = np.empty(int(counts.sum()), symbol)
    width = ids.itemsize
    view = ids.view(np.uint8).data
    at = 0
    for begin, end in _runs(part, first, counts):
        size = width * int(counts[begin:end].sum())
        parts[part[begin]].read_ids(what, width * int(first[begin]), view[at : at + size])
        at += size
    return ids


def _runs(
    part: NDArray[np.int32], first: NDArray[np.int64], counts: NDArray[np.int64]
) -> list[tuple[int, int]]:
    """Return runs of rows whose ids lie one after another."""
    if not len(part):
        return []
    breaks = (part[1:] != part[:-1]) | (first[1:] != first[:-1] + counts[:-1])
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    ends = np.append(starts[1:], len(part))
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _mapped(path: Path) -> pl.DataFrame:
    table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    frame = pl.from_arrow(table, rechunk=False)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _of(stem: Path, what: str) -> Path:
    return stem.with_name(f"{stem.name}.{what}")
