"""Files and folders that appear whole or not at all: written beside their place, then renamed.

A temporary name never ends in `.parquet`, so that a reader's glob never meets a half-written file.
Inside a folder that is being made, files carry the suffix PARTIAL until all of them are whole.
What a killed run left under a temporary name goes when the same place is written again.
"""

import ctypes
import fcntl
import glob
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.errors import ReplayError

PARTIAL = ".partial"
_NEW_SECONDS = 5.0
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
    temporary.touch(exist_ok=False)
    try:
        with _held(temporary):
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
        with _held(temporary):
            yield temporary
            for path in [p for p in temporary.rglob("*") if p.is_file()]:
                _flush(path)
                if path.suffix == PARTIAL:
                    path.rename(path.with_suffix(""))
            _take_place(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _beside(target: Path) -> Path:
    """Return a new temporary name beside a file or folder; what dead runs left there goes."""
    prefix = f".{target.name}.tmp-"
    for path in target.parent.glob(f"{glob.escape(prefix)}*"):
        if _is_left(path):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    return target.with_name(f"{prefix}{secrets.token_hex(4)}")


@contextmanager
def _held(path: Path) -> Iterator[None]:
    """Lock what is being written, so that other runs see that somebody is at it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _is_left(path: Path) -> bool:
    """Tell whether nobody is writing this any more: it is not locked, and not brand new."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return time.time() - os.fstat(descriptor).st_mtime > _NEW_SECONDS
        finally:
            os.close(descriptor)
    except OSError:
        return False


def _flush(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _take_place(new: Path, target: Path) -> None:
    if not target.exists():
        new.rename(target)
    elif not _swap(new, target):
        old = target.with_name(f".{target.name}.old-{secrets.token_hex(4)}")
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
