"""EncoderProcess: a BatchEncoder in a process of its own, beside the one that reads the log.

Python runs one thread at a time: reading a log and rendering its chats would leave a core idle.
The process speaks pickle over its pipes and ends with them, however the other side ends.
"""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.errors import LogError, ReplayError
from pipeline.logs.streams import COMPRESSED
from pipeline.tokenize.batches import BatchEncoder, Encoded, Text
from pipeline.tokenize.settings import TokenizeSettings

_WORTH_BYTES = 8 << 20
"""A process takes a second to start: smaller logs are done by then."""

_RATIO = 10  # of a log to its compressed file

_SERVE = "from pipeline.tokenize.encoder_process import serve; serve()"


class EncoderProcess:
    """Encodes batches in another process."""

    def __init__(self, settings: TokenizeSettings) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._answers = ThreadPoolExecutor(1)
        self._send(settings)
        self._greeting = self._answers.submit(self._receive)

    def submit(self, texts: list[Text]) -> Future[Encoded]:
        """Return what is going to be the ids of all texts, in order."""
        if self._greeting.done():
            self._greeting.result()  # an error in the settings
        self._send(texts)
        return self._answers.submit(self._receive)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._answers.shutdown()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream
            with suppress(BrokenPipeError):
                stream.close()
        self._process.wait()

    def _send(self, message: object) -> None:
        assert self._process.stdin
        try:
            pickle.dump(message, self._process.stdin, pickle.HIGHEST_PROTOCOL)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._gone() from None

    def _receive(self) -> Any:
        assert self._process.stdout
        try:
            answer = pickle.load(self._process.stdout)  # noqa: S301 - our own process
        except (EOFError, pickle.UnpicklingError):
            raise self._gone() from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _gone(self) -> ReplayError:
        code = self._process.wait()
        return LogError(f"the process that tokenizes ended with code {code}: out of memory?")


AnyEncoder = BatchEncoder | EncoderProcess


def open_encoder(settings: TokenizeSettings, logs: Sequence[Path]) -> AnyEncoder:
    """Return an encoder: in a process of its own if the logs are large and a core is free."""
    large = sum(map(_size, logs)) > _WORTH_BYTES
    return (
        EncoderProcess(settings) if large and (os.cpu_count() or 1) > 1 else BatchEncoder(settings)
    )


def _size(log: Path) -> int:
    """Return about how large a log is when it is read."""
    if not log.is_file():
        return _WORTH_BYTES
    return log.stat().st_size * (_RATIO if log.suffix in COMPRESSED else 1)


def serve() -> None:
    """Encode what comes through stdin until that is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process ends this one
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write between the answers
    greeting: Future[object] = Future()
    try:
        encoder = BatchEncoder(pickle.load(sys.stdin.buffer))  # noqa: S301 - our own process
    except Exception as error:  # noqa: BLE001 - it is raised on the other side
        greeting.set_exception(error)
        _answer(greeting, answers)
        return
    greeting.set_result(None)
    with ThreadPoolExecutor(1) as sender, suppress(EOFError):
        sender.submit(_answer, greeting, answers)
        while True:
            texts = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own process
            sender.submit(_answer, _submitted(encoder, texts), answers)


def _submitted(encoder: BatchEncoder, texts: list[Text]) -> Future[Encoded]:
    try:
        return encoder.submit(texts)
    except Exception as error:  # noqa: BLE001 - it is raised on the other side
        failed: Future[Encoded] = Future()
        failed.set_exception(error)
        return failed


def _answer(future: Future[Any], answers: BinaryIO) -> None:
    error = future.exception()
    try:
        pickle.dump(error or future.result(), answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()
    except BrokenPipeError:
        os._exit(0)  # nobody listens any more
