"""Segmenter: text to token ids by way of the pieces between special tokens, each encoded once.

Special tokens cut a text before anything else looks at it, so that pieces can be encoded one by
one and kept: of a conversation's next turn, only what is new goes through the tokenizer.
"""

import re
from collections.abc import Iterable, Sequence

from pipeline.templates.media import MARKER, is_marker, marker_ids
from pipeline.templates.protect import BREAK
from pipeline.vocabularies import Vocabulary

_CACHE_CHARACTERS = 64 << 20
_MARK = MARKER[0]
Pieces = list[str]
"""Ordinary text at even places, special tokens and media markers between them."""


class Segmenter:
    """Encodes texts with one vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self._special = {
            token: number.to_bytes(4, "little")
            for token, number in {**vocabulary.special, **vocabulary.added}.items()
            if token
        }
        if not vocabulary.cuttable:
            self._special = {}
        tokens = vocabulary.pattern if self._special else "(?!)"
        self._cut = re.compile(f"({tokens})")
        self._cut_media = re.compile(f"({MARKER}|{tokens})")  # slower, for few
        self._cache = _Cache()

    def pieces(self, text: str) -> Pieces:
        """Cut a text at special tokens and media markers."""
        if _MARK in text:
            return self._cut_media.split(text)
        return self._cut.split(text) if self._special else [text]

    def encode(self, prompts: Sequence[Pieces]) -> list[bytes | None]:
        """Return the ids of each prompt, little-endian uint32; None where the engine gave up."""
        known = self._encoded({piece for pieces in prompts for piece in pieces[::2] if piece})
        return [self._join(pieces, known) for pieces in prompts]

    def _encoded(self, pieces: Iterable[str]) -> dict[str, bytes | None]:
        known: dict[str, bytes | None] = {}
        unknown = []
        for piece in pieces:
            ids = self._cache.get(piece)
            if ids is None:
                unknown.append(piece)
            else:
                known[piece] = ids
        unknown.sort(key=len, reverse=True)  # the longest first: cores finish together
        texts = [piece.replace(BREAK, "") for piece in unknown]
        for piece, ids in zip(unknown, self.vocabulary.encode_ordinary(texts), strict=True):
            known[piece] = ids
            if ids is not None:
                self._cache.put(piece, ids)
        return known

    def _join(self, pieces: Pieces, known: dict[str, bytes | None]) -> bytes | None:
        joined = []
        for place, piece in enumerate(pieces):
            if not piece:
                continue
            if place % 2 == 0:
                ids = known[piece]
                if ids is None:
                    return None
                joined.append(ids)
            else:
                joined.append(marker_ids(piece) if is_marker(piece) else self._special[piece])
        return b"".join(joined)


class _Cache:
    """Ids by text; what was used lately stays."""

    def __init__(self) -> None:
        self._young: dict[str, bytes] = {}
        self._old: dict[str, bytes] = {}
        self._characters = 0

    def get(self, text: str) -> bytes | None:
        ids = self._young.get(text)
        if ids is None and (ids := self._old.get(text)) is not None:
            self.put(text, ids)
        return ids

    def put(self, text: str, ids: bytes) -> None:
        self._young[text] = ids
        self._characters += len(text) + len(ids)
        if self._characters > _CACHE_CHARACTERS:
            self._old, self._young, self._characters = self._young, {}, 0
