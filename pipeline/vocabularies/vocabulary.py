"""Vocabulary: text to token ids offline, and what identifies it."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pipeline.vocabularies.engine import Engine
from pipeline.vocabularies.patterns import token_pattern
from pipeline.vocabularies.text import tidy


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """A tokenizer without its chat template.

    sha256    fingerprint of tokens, merges, pattern, added tokens and normalization
    special   control tokens
    added     tokens that are looked for in text like those, but are text to the model: <think> …
    bos       what the tokenizer itself puts before a text that no chat template made
    cuttable  special and added tokens cut a text into segments that can be encoded one by one
    composed  texts are composed (NFC) before the engine gets them
    tokens    what chat templates may ask for: bos_token, eos_token …
    folder    where it came from, if other files may lie beside it
    warnings  what the user should be told; it grows while texts are encoded
    """

    name: str
    sha256: str
    special: Mapping[str, int]
    added: Mapping[str, int]
    bos: str | None
    cuttable: bool
    engine: Engine
    composed: bool = False
    tokens: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    warnings: list[str] = field(default_factory=list)

    @cached_property
    def pattern(self) -> str:
        """Regular expression, without groups, for all special and added tokens."""
        return token_pattern([*self.special, *self.added])

    def encode_ordinary(self, texts: Sequence[str]) -> list[bytes | None]:
        """Return the ids of segments, little-endian uint32; None where the engine gave up.

        No special or added token is looked for, but in a vocabulary that is not cuttable.
        """
        return self.engine.encode([tidy(text, composed=self.composed) for text in texts])

    def encode_whole(self, texts: Sequence[str]) -> list[bytes | None]:
        """Return the ids of whole texts, special and added tokens in them taken as such."""
        if not self.cuttable:
            return self.encode_ordinary(texts)
        cut = [self._cut.split(text) for text in texts]
        segments = [segment for pieces in cut for segment in pieces[::2] if segment]
        encoded = iter(self.encode_ordinary(segments))
        return [self._join(pieces, [next(encoded) for s in pieces[::2] if s]) for pieces in cut]

    def _join(self, pieces: Sequence[str], encoded: Sequence[bytes | None]) -> bytes | None:
        ordinary, joined = iter(encoded), []
        for place, piece in enumerate(pieces):
            if place % 2:
                joined.append(self._numbers[piece].to_bytes(4, "little"))
            elif piece:
                ids = next(ordinary)
                if ids is None:
                    return None
                joined.append(ids)
        return b"".join(joined)

    @cached_property
    def _cut(self) -> re.Pattern[str]:
        return re.compile(f"({self.pattern})")

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {**self.special, **self.added}


def fingerprint(*parts: object) -> str:
    """Return one sha256 of several; mappings count by content, not by order."""
    ordered = [sorted(part.items()) if isinstance(part, Mapping) else part for part in parts]
    return hashlib.sha256(repr(ordered).encode("utf-8", "surrogatepass")).hexdigest()
