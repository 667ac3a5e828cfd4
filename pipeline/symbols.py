"""SymbolStore: an array that only grows; beyond memory's share it lies in a file without a name."""

import errno
import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

MEMORY_SYMBOLS = 1 << 26
"""So many symbols (256 MB) are kept in memory; a longer array moves to disk."""

_RELEASE_SYMBOLS = 1 << 25


class SymbolStore:
    """A growing uint32 array.

    In a file it is mapped, so kernels read and write it as any other array; what was not used
    lately leaves memory. The file has no name: it is gone with the process, however that ends.
    """

    def __init__(self, folder: Path | None = None) -> None:
        """Keep the file, if one is needed, on the disk of `folder`."""
        self.array: NDArray[np.uint32] = np.empty(1 << 16, np.uint32)
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._map: mmap.mmap | None = None
        self._released_at = 0

    def reserve(self, used: int, needed: int) -> None:
        """Make room for `needed` symbols; the first `used` keep their values."""
        if needed <= len(self.array):
            return
        size = max(needed, len(self.array) + min(len(self.array), MEMORY_SYMBOLS))
        if size <= MEMORY_SYMBOLS:
            larger = np.empty(size, np.uint32)
            larger[:used] = self.array[:used]
            self.array = larger
            return
        first = self._map is None
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - as long as we
            weakref.finalize(self, self._file.close)
        _allocate(self._file.fileno(), 4 * size)
        self._map = mmap.mmap(self._file.fileno(), 4 * size)
        larger = np.frombuffer(self._map, np.uint32)
        if first:
            larger[:used] = self.array[:used]
        self.array = larger

    def release(self, used: int) -> None:
        """Let memory go that only mirrors the file, once enough was added."""
        if self._map is not None and used - self._released_at > _RELEASE_SYMBOLS:
            self._released_at = used
            if hasattr(mmap, "MADV_DONTNEED"):
                self._map.madvise(mmap.MADV_DONTNEED)


def _allocate(descriptor: int, size: int) -> None:
    """Make a file so large, with room on the disk: without it, writing to a map kills a process."""
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
        else:
            return
    os.ftruncate(descriptor, size)
