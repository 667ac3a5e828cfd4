"""A log as a stream of bytes: plain or compressed, from a file or standard input, bounded."""

import bz2
import io
import lzma
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from pipeline.errors import LogError

STDIN = Path("-")
CHUNK = 1 << 20
_HEAD = 64
_BOMB_BYTES = 1 << 30
_BOMB_RATIO = 5_000
_XZ_MEMORY = 1 << 30
_PADDING = b"\0"
_CODECS = (
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x50\x2a\x4d\x18", "zstd"),  # of pzstd: a frame to be skipped comes first
    (b"BZh", "bz2"),
    (b"\x04\x22\x4d\x18", "lz4"),
    (b"\xfd7zXZ\x00", "xz"),
)
_ARCHIVES = ((b"PK\x03\x04", "zip"), (b"7z\xbc\xaf", "7z"), (b"\x89HDF", "HDF5"))
COMPRESSED = (".gz", ".zst", ".bz2", ".lz4", ".xz")
"""What names of compressed logs end in; that they are compressed shows in their content."""

Progress = Callable[[int], None]


@contextmanager
def open_log(path: Path, progress: Progress) -> Iterator["LogStream"]:
    """Open a log for reading; several gzip members or zstd frames are one.

    `progress` gets the bytes read so far, as they are on disk. Raises LogError if the file can't
    be opened, and later, from reading, if it can't be read to its end.
    """
    if path == STDIN:
        yield LogStream(path, sys.stdin.buffer, progress)
        return
    with _opened(path) as raw:
        yield LogStream(path, raw, progress)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise LogError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise LogError(f"{path}: is a folder: name the log files in it") from None
    except PermissionError:
        raise LogError(f"{path}: no permission to read it") from None
    except OSError as error:
        raise LogError(f"{path}: can't be opened: {error.strerror}") from None


class LogStream(io.RawIOBase):
    """The content of a log, decompressed; `head` is what comes next, without taking it."""

    def __init__(self, path: Path, raw: BinaryIO, progress: Progress) -> None:
        self.path = path
        self._raw = _Counted(raw, progress)
        self._given = 0
        start = self._raw.peek(_HEAD)
        for magic, kind in _ARCHIVES:
            if start.startswith(magic):
                raise LogError(f"{path}: is {kind}, not a log: unpack it first")
        codec = next((codec for magic, codec in _CODECS if start.startswith(magic)), None)
        self._content: Any = self._raw
        if codec in _DECODERS:
            self._content = _Decoded(self._raw, _DECODERS[codec])
        elif codec:
            self._content = pa.CompressedInputStream(pa.PythonFile(self._raw, mode="r"), codec)
        self._compressed = codec is not None
        self._ahead = b""

    def head(self, size: int) -> bytes:
        """Return up to so many bytes that will be read next."""
        while len(self._ahead) < size and (more := self._take(size - len(self._ahead))):
            self._ahead += more
        return self._ahead[:size]

    def readable(self) -> bool:
        """Tell io that this can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read up to `size` bytes, or all of them; b'' at the end."""
        if size < 0:
            return b"".join(iter(lambda: self.read(CHUNK), b""))
        if self._ahead or not size:
            taken, self._ahead = self._ahead[:size], self._ahead[size:]
            return taken
        return self._take(size)

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer, for io's wrappers."""
        taken = self.read(len(buffer))
        buffer[: len(taken)] = taken
        return len(taken)

    def _take(self, size: int) -> bytes:
        try:
            taken: bytes = self._content.read(size)
        except (OSError, EOFError, lzma.LZMAError, pa.ArrowException) as error:
            raise LogError(f"{self.path}: damaged or truncated: {error}") from None
        self._given += len(taken)
        large = self._compressed and self._given > _BOMB_BYTES
        if large and self._given > _BOMB_RATIO * self._raw.taken:
            raise LogError(f"{self.path}: more than {_BOMB_RATIO} times its size: not a log")
        return taken


class _Decoded:
    """Decompressed bz2 or xz, of several pieces.

    Python's own files pass over what follows and can't be decompressed, pyarrow fails at a bz2
    piece of nothing.
    """

    def __init__(self, raw: "_Counted", new: Callable[[], Any]) -> None:
        self._raw = raw
        self._new = new
        self._decoder = new()

    def read(self, size: int) -> bytes:
        while True:
            if self._decoder.eof:
                more = self._decoder.unused_data.lstrip(_PADDING)
                while not more and (raw := self._raw.read(CHUNK)):
                    more = raw.lstrip(_PADDING)
                if not more:
                    return b""
                self._decoder = self._new()
            else:
                more = self._raw.read(CHUNK) if self._decoder.needs_input else b""
                if self._decoder.needs_input and not more:
                    raise EOFError("it ends within compressed data")
            taken: bytes = self._decoder.decompress(more, size)
            if taken:
                return taken


_DECODERS: dict[str | None, Callable[[], Any]] = {
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY),
}


class _Counted(io.RawIOBase):
    """A file that tells how much of it was read."""

    def __init__(self, raw: BinaryIO, progress: Progress) -> None:
        self._raw = raw
        self._progress = progress
        self._ahead = b""
        self.taken = 0

    def peek(self, size: int) -> bytes:
        self._ahead = self._raw.read(size)
        return self._ahead

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = sys.maxsize
        taken, self._ahead = self._ahead[:size], self._ahead[size:]
        if len(taken) < size:
            taken += self._raw.read(size - len(taken) if size < sys.maxsize else -1)
        self.taken += len(taken)
        self._progress(self.taken)
        return taken
