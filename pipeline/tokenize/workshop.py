"""Workshop: the folder beside a trace in which its parts lie until the trace is whole."""

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import pipeline
from pipeline.encode.settings import TokenizeSettings
from pipeline.errors import LogError, ReplayError
from pipeline.tokenize.parts import is_whole


class Workshop:
    """Where parts are kept, named by the content of their log and by the settings."""

    def __init__(self, folder: Path, settings: TokenizeSettings) -> None:
        self._folder = folder
        self._settings = _key_of_settings(settings)

    def stem(self, log: Path) -> Path:
        """Return where the part of a log belongs."""
        key = hashlib.blake2b(self._settings, digest_size=8)
        key.update(_key_of_file(log).encode())
        return self._folder / key.hexdigest()

    def has(self, log: Path) -> bool:
        """Tell whether an interrupted run left the part of this log."""
        return log.is_file() and is_whole(self.stem(log))


@contextmanager
def open_workshop(target: Path, settings: TokenizeSettings) -> Iterator[Workshop]:
    """Yield the workshop of a trace; it stays only if the run is interrupted, for the next one.

    Raises LogError if another run is in it.
    """
    target = target.resolve()
    if not target.parent.is_dir():
        raise ReplayError(f"{target.parent}: no such folder to write {target.name} into")
    folder = target.with_name(f".{target.name}.parts")
    descriptor = _locked(folder)
    try:
        try:
            yield Workshop(folder, settings)
        except Exception:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        except BaseException:
            _keep_whole_parts(folder)
            raise
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _locked(folder: Path) -> int:
    """Return a locked descriptor of the folder, which is made if it isn't there."""
    while True:
        folder.mkdir(exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise LogError(f"{folder}: another run is making this trace") from None
        if folder.exists() and os.path.samestat(folder.stat(), os.fstat(descriptor)):
            return descriptor
        os.close(descriptor)  # the run that held it has just ended


def _keep_whole_parts(folder: Path) -> None:
    """Leave what the next run can use, and no folder if there is nothing."""
    for path in list(folder.iterdir()):
        if not is_whole(path.with_suffix("")):
            path.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _key_of_settings(settings: TokenizeSettings) -> bytes:
    files = [settings.tokenizer, settings.tokenizer_map, settings.chat_template]
    named = [_key_of_file(Path(f)) for f in files if f and Path(f).exists()]
    values = sorted((k, str(v)) for k, v in asdict(settings).items())
    return repr((pipeline.__version__, values, named)).encode()


def _key_of_file(path: Path) -> str:
    """Return what changes when a file, or one in a folder, does."""
    if not (path.is_file() or path.is_dir()):
        return str(path)
    found: Sequence[Path] = sorted(path.iterdir()) if path.is_dir() else [path]
    states = [(str(p.resolve()), p.stat()) for p in found if p.is_file()]
    return repr([(name, s.st_size, s.st_mtime_ns) for name, s in states])
