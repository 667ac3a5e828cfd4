"""Files and folders that appear whole or not at all: written beside their place, then renamed.

A temporary name never ends in `.parquet`, so that a reader's glob never meets a half-written file.
Inside a folder that is being made, files carry the suffix PARTIAL until all of them are whole.
"""

import ctypes
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import ReplayError

PARTIAL = ".partial"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `target` if the block ends well, else disappears.

    Where `target` is a link, what it names is replaced.
    """
    if target.is_dir():
        raise ReplayError(f"{target}: is a folder: name a file to write")
    target = target.resolve()
    if not target.parent.is_dir():
        raise ReplayError(f"{target.parent}: no such folder to write {target.name} into")
    temporary = _beside(target)
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder that takes `target`'s place if the block ends well, else disappears.

    Files in it whose names end in PARTIAL lose that suffix at the end. Where `target` is a link,
    the folder that it names is replaced.
    Where the system can swap two names (Linux, macOS) a reader sees the old folder or the new
    one at every moment.
    """
    target = target.resolve()
    temporary = _beside(target)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for path in [p for p in temporary.rglob("*") if p.is_file()]:
            _flush(path)
            if path.suffix == PARTIAL:
                path.rename(path.with_suffix(""))
        _take_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name}.tmp-{os.getpid()}")


def _flush(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _take_place(new: Path, target: Path) -> None:
    if not target.exists():
        new.rename(target)
    elif not _swap(new, target):
        old = target.with_name(f".{target.name}.old-{os.getpid()}")
        target.rename(old)
        new.rename(target)
        shutil.rmtree(old)


def _swap(one: Path, other: Path) -> bool:
    """Exchange two names in one step; False where the system has no such call."""
    library = ctypes.CDLL(None)
    first, second = os.fsencode(one), os.fsencode(other)
    if hasattr(library, "renameat2"):
        failed = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)
    elif sys.platform == "darwin":
        failed = library.renamex_np(first, second, _RENAME_SWAP)
    else:
        return False
    return int(failed) == 0
