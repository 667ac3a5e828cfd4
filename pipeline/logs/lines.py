"""Lines of a log file, plain or compressed by gzip, zstd or bzip2, in bounded memory."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from pipeline.errors import LogError
from pipeline.logs.records import BadLine

_CHUNK = 1 << 20
_MAGIC = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bz2"))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(path: Path, progress: Callable[[int], None]) -> Iterator[tuple[int, bytes]]:
    """Yield line numbers from 1 and lines that aren't blank, cut at line feeds alone.

    Several gzip members or zstd frames are one file. `progress` gets the bytes read so far, as
    they are on disk. Raises LogError if the file can't be read to its end.
    """
    rest, number = b"", 0
    for chunk in _chunks(path, progress):
        *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        for line in lines:
            number += 1
            yield from _content(number, line)
    yield from _content(number + 1, rest)


def _content(number: int, line: bytes) -> Iterator[tuple[int, bytes]]:
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    if line.strip():
        yield number, line


def _chunks(path: Path, progress: Callable[[int], None]) -> Iterator[bytes]:
    try:
        with path.open("rb") as raw:
            start = raw.peek(4)
            if start.startswith(b"PAR1"):
                raise LogError(
                    f"{path}: is Parquet, not a log; with prompt_token_ids it replays as it is"
                )
            codec = next((c for magic, c in _MAGIC if start.startswith(magic)), None)
            stream: Any = raw
            if codec:
                stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)
            while chunk := stream.read(_CHUNK):
                yield chunk
                progress(raw.tell() if raw.seekable() else 0)
    except FileNotFoundError:
        raise LogError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise LogError(f"{path}: is a folder: name the log files in it") from None
    except PermissionError:
        raise LogError(f"{path}: no permission to read it") from None
    except OSError as error:
        raise LogError(f"{path}: damaged or truncated: {error}") from None


def parse_line(line: bytes) -> dict[str, Any]:
    """Return a line's JSON object; BadLine if it is none.

    Lone surrogates, which orjson refuses, are accepted.
    """
    try:
        try:
            parsed = orjson.loads(line)
        except orjson.JSONDecodeError:
            parsed = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadLine("not a JSON object") from None
    if not isinstance(parsed, dict):
        raise BadLine("not a JSON object")
    return parsed


def _refuse_constant(name: str) -> None:
    raise ValueError(name)
