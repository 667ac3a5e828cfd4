"""RankEngine: byte pairs merged by rank, through tiktoken."""

import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import tiktoken

from pipeline.vocabularies.engine import IDS, gave_up

_UNUSED = "\x00 no token \x00"  # tiktoken looks for special tokens at every letter if it has none
_SPACES = re.compile(r"[^\S\r\n]+")
_TOO_MANY_SPACES = 999_000
"""tiktoken's patterns give up after a million steps back, with a panic and a trace on stderr."""


class RankEngine:
    """Encodes with tiktoken, on all cores."""

    def __init__(self, ranks: Mapping[bytes, int], pattern: str) -> None:
        self._encoding = tiktoken.Encoding(
            "ranks",
            pat_str=pattern,
            mergeable_ranks=dict(ranks),
            special_tokens={_UNUSED: max(ranks.values()) + 1},
        )

    def encode(self, texts: Sequence[str]) -> list[bytes | None]:
        """Return the ids of each text; None where tiktoken gave up."""
        threads = min(os.cpu_count() or 1, len(texts))
        if threads < 2:
            return self._share(texts)
        found: list[bytes | None] = [None] * len(texts)
        with ThreadPoolExecutor(threads) as pool:
            shares = [texts[i::threads] for i in range(threads)]
            for i, share in enumerate(pool.map(self._share, shares)):
                found[i::threads] = share
        return found

    def _share(self, texts: Sequence[str]) -> list[bytes | None]:
        return [self._ids(text) for text in texts]

    def _ids(self, text: str) -> bytes | None:
        if len(text) > _TOO_MANY_SPACES and _has_too_many_spaces(text):
            return None
        try:
            ids = self._encoding.encode_to_numpy(text, disallowed_special=())
        except BaseException as error:
            if not gave_up(error):
                raise
            return None
        return ids.astype(IDS, copy=False).tobytes()


def _has_too_many_spaces(text: str) -> bool:
    return any(run.end() - run.start() > _TOO_MANY_SPACES for run in _SPACES.finditer(text))
