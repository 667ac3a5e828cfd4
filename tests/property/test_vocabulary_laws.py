"""Token ids are those of an engine that was built in another way, whatever the text."""

import json
import unicodedata
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer
from vocabulary_samples import (
    COMPARED,
    awkward_texts,
    fast_vocabulary,
    ids,
    qwen_ranks,
    ranks_as_json,
    vocabulary,
    whole,
    write_json,
)

from pipeline.vocabularies import find_vocabulary
from pipeline.vocabularies.known import KNOWN
from pipeline.vocabularies.rank_engine import RankEngine

TEXTS = awkward_texts(1, 20_000)
LONG = ["a" * 1_000_000, "漢" * 300_000, "\n" * 300_000, " " * 900_000]
Ids = list[list[int]]


def _with_json(content: dict[str, Any]) -> Callable[[Sequence[str]], Ids]:
    tokenizer: Tokenizer = Tokenizer.from_str(json.dumps(content))

    def encode(texts: Sequence[str]) -> Ids:
        found = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in found]

    return encode


def _quicktok_ids(name: str, texts: Sequence[str]) -> Ids:
    quicktok: Any = pytest.importorskip("quicktok")
    found, offsets = quicktok.get_encoding(name).encode_batch(list(texts))
    return [found[begin:end].tolist() for begin, end in pairwise(offsets)]


@pytest.mark.parametrize(
    ("name", "theirs", "more"),
    [
        ("qwen3", "qwen3", []),
        ("cl100k", "cl100k_base", LONG),
        ("o200k", "o200k_base", []),
        ("llama3", "llama3", []),
    ],
)
def test_ids_are_those_of_quicktok(name: str, theirs: str, more: list[str]) -> None:
    texts = TEXTS + more
    expected = _quicktok_ids(theirs, [whole(text) for text in texts])
    assert ids(vocabulary(name).encode_ordinary(texts)) == expected


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5"])
def test_ranks_give_the_ids_that_merges_and_another_engine_for_patterns_give(name: str) -> None:
    ranks, pattern = qwen_ranks(8_000), KNOWN[name].pattern
    composed = [unicodedata.normalize("NFC", whole(text)) for text in TEXTS]
    expected = _with_json(ranks_as_json(ranks, pattern, {}, normalizer=None))(composed)
    assert ids(RankEngine(ranks, pattern).encode(composed)) == expected


@pytest.mark.parametrize("name", COMPARED)
def test_the_fast_engine_gives_the_ids_of_the_reference_engine(name: str) -> None:
    fast, reference = fast_vocabulary(name), vocabulary(name)
    assert fast.encode_ordinary(TEXTS) == reference.encode_ordinary(TEXTS)
    assert fast.warnings == []


@pytest.mark.parametrize("name", ["qwen3", "llama3", "deepseek"])
def test_cutting_at_tokens_gives_the_ids_of_the_whole_text(name: str, tmp_path: Path) -> None:
    known = vocabulary(name)
    tokens = ["<think>", "</think>", *known.special, *known.added][:40]
    texts = awkward_texts(2, 2_000, tokens)
    if name == "deepseek":
        assert known.folder is not None
        content = json.loads((known.folder / "tokenizer.json").read_text(encoding="utf-8"))
    else:
        added = {**known.special, **known.added}
        ranks = qwen_ranks(2_000)
        added = {token: 2_000 + i for i, token in enumerate(added)}
        content = ranks_as_json(ranks, KNOWN[name].pattern, added)
        known = find_vocabulary(str(write_json(tmp_path / "tokenizer.json", content)), fast=False)
    assert known.cuttable
    expected = _with_json(content)([whole(text) for text in texts])
    assert ids(known.encode_whole(texts)) == expected


def test_an_answer_of_a_million_tokens_is_little_endian() -> None:
    [encoded] = vocabulary("qwen3").encode_ordinary(["漢!" * 500_000])
    assert encoded is not None
    first = ids(vocabulary("qwen3").encode_ordinary(["漢!"]))[0]
    assert np.frombuffer(encoded, "<u4")[: len(first or ())].tolist() == first


def test_the_fast_engine_gives_the_same_ids_where_texts_can_not_be_cut(tmp_path: Path) -> None:
    pytest.importorskip("fastokens")
    content = ranks_as_json(qwen_ranks(2_000), KNOWN["qwen3"].pattern, {"<a>": 2_000, "<b>": 2_001})
    content["added_tokens"][0]["lstrip"] = content["added_tokens"][1]["rstrip"] = True
    file = str(write_json(tmp_path / "tokenizer.json", content))
    texts = awkward_texts(3, 2_000, ["<a>", "<b>", " <a>", "<b> \n"])
    reference, fast = find_vocabulary(file, fast=False), find_vocabulary(file, fast=True)
    assert not reference.cuttable
    assert fast.encode_whole(texts) == reference.encode_whole(texts)
    assert fast.warnings == []
