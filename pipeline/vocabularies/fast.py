"""FastEngine: fastokens in place of another engine, for as long as both give the same ids."""

import importlib.util
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

from pipeline.errors import UsageError
from pipeline.vocabularies.engine import Engine, gave_up

_PROBE = (
    "Hello, World! don't I'LL we've O'Brien naïve Größe ÉCOLE ﬁ ǅ",
    "1234567890123 3.14159 1,000,000 0xDEADBEEF ١٢٣ ४५६ Ⅷ ½ ²",
    "  two\t\ttabs \r\n\r\n\n  \u00a0\u2003\u3000 line\u2028para\u2029 end   ",
    "東京都港区 こんにちは カタカナ 한국어 中文\uff0c标点。「括弧」",
    "cafe\u0301 a\u031b\u0301z e\u0323\u0302 \u1100\u1161\u11a8 क्षत्रिय ไทย ខ្មែរ \u0338>",
    "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 👍🏽 🇩🇪 ❤️ \U0001f9d1\u200d\U0001f680",
    "שלום עולם \u202bمرحب\u0627 ب\u0627لع\u0627لم\u202c \u200f\u200e ١٢",
    "\x00\x01\x7f\x85 \ufeff\ufffd\ufdd0\uffff \U0010ffff \u200b\u2060",
    "def f(x):\n        return {'a': x**2, \"b\": [1, 2]}  # …\n\n\n\treturn\n",
    "<|im_start|>user\n<think>&lt;</think> https://example.org/a?b=c&d=%20#e //// ---- ====",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 8,
    " " * 700 + "x" + "\n" * 300 + "é" * 200 + "漢" * 200 + "🙂" * 90,
)
WORTH_CHARACTERS = 16 << 20
"""To load fastokens takes seconds, in which the reference engine encodes so much."""

_CHECKED_CHARACTERS = 1 << 18
"""So much of what comes first is encoded by both."""


class FastEngine:
    """Encodes with fastokens; with the reference engine from the first difference on.

    What fails in fastokens is left to the reference engine; the other way round, what only that
    gives up on (a million spaces) is encoded.
    """

    def __init__(
        self,
        reference: Engine,
        load: Callable[[Any], Any],
        name: str,
        warnings: list[str],
        *,
        worth_characters: int,
    ) -> None:
        """Load by calling `load` with fastokens.Tokenizer, once so much text has come."""
        self._reference = reference
        self._name = name
        self._warnings = warnings
        self._to_check = _CHECKED_CHARACTERS
        self._left_to_reference = worth_characters
        self._load: Callable[[Any], Any] | None = load
        self._fast: Any = None
        if worth_characters == 0:
            self._start()

    def _start(self) -> None:
        """Load, and compare on a probe text."""
        load, self._load = self._load, None
        assert load
        try:
            self._fast = load(import_module("fastokens").Tokenizer)
        except BaseException as error:
            if not gave_up(error):
                raise
            self._fall_back("fastokens can't load it")
        self._check(_PROBE)

    def encode(self, texts: Sequence[str]) -> list[bytes | None]:
        """Return the ids of each text; None where the reference engine gave up."""
        if self._load is not None:
            if self._left_to_reference > 0:
                self._left_to_reference -= sum(map(len, texts))
                return self._reference.encode(texts)
            self._start()
        if self._fast is not None and self._to_check > 0:
            self._check_first(texts)
        if self._fast is None:
            return self._reference.encode(texts)
        try:
            return self._encode(texts)
        except BaseException as error:
            if not gave_up(error):
                raise
            return self._reference.encode(texts)

    def _encode(self, texts: Sequence[str]) -> list[bytes | None]:
        ids, offsets = self._fast.encode_batch_flat(list(texts))
        ends = (np.frombuffer(offsets, "<u8") * 4).tolist()
        return [ids[begin:end] for begin, end in pairwise(ends)]

    def _check_first(self, texts: Sequence[str]) -> None:
        chosen = []
        for text in texts:
            if self._to_check <= 0:
                break
            chosen.append(text[: self._to_check])
            self._to_check -= len(text) + 1
        self._check(chosen)

    def _check(self, texts: Sequence[str]) -> None:
        if self._fast is None or not texts:
            return
        try:
            pairs = zip(self._encode(texts), self._reference.encode(texts), strict=True)
            same = all(ids in (found, None) for found, ids in pairs)
        except BaseException as error:
            if not gave_up(error):
                raise
            same = False
        if not same:
            self._fall_back("fastokens gives other ids")

    def _fall_back(self, why: str) -> None:
        self._fast = None
        self._warnings.append(f"{self._name}: {why}: the slower reference engine is used")


def maybe_fast(
    reference: Engine,
    load: Callable[[Any], Any],
    name: str,
    *,
    fast: bool | None,
    warnings: list[str],
) -> Engine:
    """Return the fast engine if it is wanted, or if it is installed and not unwanted."""
    if fast is False:
        return reference
    if importlib.util.find_spec("fastokens") is None:
        if fast:
            raise UsageError(
                "the fast engine is not installed: pip install 'replay-pipeline[fast]'"
            )
        return reference
    worth = 0 if fast else WORTH_CHARACTERS
    return FastEngine(reference, load, name, warnings, worth_characters=worth)
