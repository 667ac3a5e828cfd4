"""BatchEncoder: prompts to token ids, many at a time, each with the encoder of its model."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from pipeline.encode.encoder import Encoder, Encoders
from pipeline.encode.segments import Pieces, Segmenter
from pipeline.encode.settings import TokenizeSettings
from pipeline.encode.times import Time
from pipeline.logs.records import BadLine, Chat

_FAILED = "the tokenizer failed on it"


class Text(NamedTuple):
    """What is to be encoded of one request.

    prompt  messages or text, None if its ids are known
    cut     only the head of the prompt is here
    answer  text of the answer, to be counted or kept
    """

    model: str | None
    prompt: Chat | str | None
    time: Time = None
    cut: bool = False
    answer: str | None = None


class Encoded(NamedTuple):
    """What became of a batch.

    ids         of each prompt, little-endian uint32; None without a prompt; else why there are none
    answers     ids of each answer, None without one
    tokenizers  name and fingerprint of what was used, by the models it is for
    warnings    what the engines had to say so far
    """

    ids: list[bytes | BadLine | None]
    answers: list[bytes | None]
    tokenizers: dict[str, tuple[str, str]]
    warnings: list[str]


NOTHING = Encoded([], [], {}, [])


class _Pending(NamedTuple):
    """A text in pieces."""

    segmenter: Segmenter
    prompt: Pieces | BadLine | None
    answer: Pieces | None


class BatchEncoder:
    """Encodes batches: rendered by the caller, tokenized in the background.

    A batch goes through each vocabulary as one.
    """

    def __init__(self, settings: TokenizeSettings) -> None:
        """Load what the tokenizer map names: a wrong name is known before any log is read."""
        self._encoders = Encoders(settings)
        self._encoders.load_all()
        self._background = ThreadPoolExecutor(1)

    def submit(self, texts: list[Text]) -> Future[Encoded]:
        """Return what is going to be the ids of all texts, in order."""
        used: dict[str, tuple[str, str]] = {}
        pending = []
        for text in texts:
            encoder = self._encoders.of_model(text.model)
            used[encoder.models] = encoder.identity
            pending.append(_cut(encoder, text))
        return self._background.submit(self._encode, pending, used)

    def agrees(self, tokenizers: dict[str, tuple[str, str]]) -> bool:
        """Tell whether ids that were made with these tokenizers would be made again."""
        return self._encoders.agree(tokenizers)

    def close(self) -> None:
        """End the background."""
        self._background.shutdown()

    def _encode(self, pending: list[_Pending], used: dict[str, tuple[str, str]]) -> Encoded:
        encoded = _encode_all(pending)
        ids: list[bytes | BadLine | None] = []
        answers: list[bytes | None] = []
        for one in pending:
            found = encoded[id(one.segmenter)]
            if isinstance(one.prompt, list):
                ids.append(next(found) or BadLine(_FAILED))
            else:
                ids.append(one.prompt)
            answers.append(next(found) if one.answer is not None else None)
        return Encoded(ids, answers, used, self._encoders.warnings())


def _cut(encoder: Encoder, text: Text) -> _Pending:
    segmenter = encoder.segmenter
    prompt: Pieces | BadLine | None = None
    try:
        if text.prompt is not None:
            prompt = encoder.pieces(text.prompt, text.time, cut=text.cut)
    except BadLine as reason:
        prompt = reason.with_traceback(None)
    answer = encoder.answer(text.answer, text.prompt) if text.answer else None
    return _Pending(segmenter, prompt, answer)


def _encode_all(pending: list[_Pending]) -> dict[int, Iterator[bytes | None]]:
    """Return what each segmenter made of its texts, in order."""
    texts: dict[int, list[Pieces]] = {}
    segmenters: dict[int, Segmenter] = {}
    for one in pending:
        segmenters[id(one.segmenter)] = one.segmenter
        mine = texts.setdefault(id(one.segmenter), [])
        mine += [pieces for pieces in (one.prompt, one.answer) if isinstance(pieces, list)]
    return {key: iter(segmenters[key].encode(texts[key])) for key in texts}
