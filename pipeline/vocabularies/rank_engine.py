"""RankEngine: byte pairs merged by rank, through tiktoken."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tiktoken

from pipeline.vocabularies.engine import IDS, gave_up

_BETWEEN = "\x00 no token \x00"
"""A special token between texts: it cuts them before anything else looks at them."""

_CALL_CHARACTERS = 1 << 16
_SPACES = re.compile(r"[^\S\r\n]+")
_TOO_MANY_SPACES = 999_000
"""tiktoken's patterns give up after a million steps back, with a panic and a trace on stderr."""


class RankEngine:
    """Encodes with tiktoken, on all cores."""

    def __init__(self, ranks: Mapping[bytes, int], pattern: str) -> None:
        self._between = max(ranks.values()) + 1
        self._encoding = tiktoken.Encoding(
            "ranks",
            pat_str=pattern,
            mergeable_ranks=dict(ranks),
            special_tokens={_BETWEEN: self._between},
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
        """Encode many texts in few calls: tiktoken lets go of Python for a whole call."""
        found: list[bytes | None] = []
        group: list[str] = []
        size = 0
        for text in texts:
            group.append(text)
            size += len(text)
            if size > _CALL_CHARACTERS:
                found += self._group(group)
                group, size = [], 0
        return found + self._group(group)

    def _group(self, texts: list[str]) -> list[bytes | None]:
        joined = _BETWEEN.join(texts)
        alone = len(texts) < 2 or joined.count("\0") > 2 * (len(texts) - 1)
        ids = None if alone else self._ids(joined, {_BETWEEN})
        if ids is None:
            return [self._ids(text) for text in texts]
        numbers = np.frombuffer(ids, IDS)
        ends = (np.flatnonzero(numbers == self._between) * 4).tolist()
        begins = [0, *(end + 4 for end in ends)]
        return [ids[begin:end] for begin, end in zip(begins, [*ends, len(ids)], strict=True)]

    def _ids(self, text: str, special: Collection[str] = ()) -> bytes | None:
        if len(text) > _TOO_MANY_SPACES and _has_too_many_spaces(text):
            return None
        try:
            ids = self._encoding.encode_to_numpy(
                text, allowed_special=set(special), disallowed_special=()
            )
        except BaseException as error:
            if not gave_up(error):
                raise
            return None
        return ids.astype(IDS, copy=False).tobytes()


def _has_too_many_spaces(text: str) -> bool:
    return any(run.end() - run.start() > _TOO_MANY_SPACES for run in _SPACES.finditer(text))
