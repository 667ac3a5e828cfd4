"""The rows of a document that a test wrote."""

import bz2
import gzip
import lzma
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.logs.documents import document
from pipeline.logs.records import BadLine
from pipeline.logs.streams import open_log

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda content: pa.compress(content, codec="zstd", asbytes=True),
}
Rows = list[tuple[int, Any]]
Read = Callable[..., Rows]


def reads_in(folder: Path) -> Read:
    """Return what reads the rows of a content under a name, bad ones as their reasons."""

    def read(content: bytes, name: str = "a.json", repairs: Counter[str] | None = None) -> Rows:
        path = folder / name
        path.write_bytes(content)
        with open_log(path, lambda _: None) as stream:
            found = document(stream, repairs)
            assert found is not None
            return [(n, str(row) if isinstance(row, BadLine) else row) for n, row in found]

    return read
