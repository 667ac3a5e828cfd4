"""tokenizer.json files: BOS, added tokens, and when a text may be cut at them."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from vocabulary_samples import ids, write_json

from pipeline.errors import UsageError
from pipeline.radix import RadixKvTree
from pipeline.vocabularies import Vocabulary
from pipeline.vocabularies import find_vocabulary as find

WORDS = {"<s>": 0, "</s>": 1, "[A]": 2, "b": 3, "c": 4, "hello": 5, "world": 6, "<unk>": 7}
ADDED = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
BEGIN = {"SpecialToken": {"id": "<s>", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}


def added(text: str, number: int, **flags: bool) -> dict[str, Any]:
    return {"id": number, "content": text, **ADDED, "special": True} | flags


def opened_by(*pieces: dict[str, Any]) -> dict[str, Any]:
    tokens = {t: {"id": t, "ids": [n], "tokens": [t]} for t, n in WORDS.items()}
    return {
        "type": "TemplateProcessing",
        "single": list(pieces),
        "pair": [*pieces, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": tokens,
    }


OPENED = opened_by(BEGIN, TEXT)
BERT = {"type": "BertProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]}


def words(**changes: Any) -> dict[str, Any]:
    """Return a word-level tokenizer with a post-processor that puts <s> before a text."""
    return {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst"}
        | {"stride": 0},
        "padding": None,
        "added_tokens": [added("<s>", 0), added("</s>", 1)],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": OPENED,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": WORDS, "unk_token": "<unk>"},
    } | changes


def load(folder: Path, config: dict[str, Any] | None = None, **changes: Any) -> Vocabulary:
    file = write_json(folder / "tokenizer.json", words(**changes))
    if config is not None:
        write_json(folder / "tokenizer_config.json", config)
    return find(str(file), fast=False)


def test_a_rendered_text_gets_no_second_bos_and_a_raw_one_gets_its_own(tmp_path: Path) -> None:
    """O18: a template wrote <s>, and the tokenizer would add another."""
    found = load(tmp_path)
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert theirs.encode("<s> hello").ids == [0, 0, 5]
    assert ids(found.encode_whole(["<s> hello"])) == [[0, 5]]
    assert found.bos == "<s>"
    assert (
        ids(found.encode_whole([f"{found.bos}hello"])) == [theirs.encode("hello").ids] == [[0, 5]]
    )


def test_a_second_bos_would_leave_one_token_of_a_prefix() -> None:
    """O18: the same system prompt with one BOS and with two."""
    system, begin = list(range(1, 9)), 128_000
    tree = RadixKvTree()
    tree.insert([begin, *system, 50, 51])
    assert tree.match_prefix([begin, *system, 60, 61])[0] == 9
    assert tree.match_prefix([begin, begin, *system, 60, 61])[0] == 1


@pytest.mark.parametrize(
    ("config", "changes", "bos"),
    [
        (None, {}, "<s>"),
        (None, {"post_processor": None}, None),
        (None, {"post_processor": opened_by(TEXT)}, None),
        (None, {"post_processor": opened_by(BEGIN, BEGIN, TEXT)}, "<s><s>"),
        (None, {"post_processor": {"type": "Sequence", "processors": [OPENED]}}, "<s>"),
        (None, {"post_processor": BERT}, "<s>"),
        ({"add_bos_token": False}, {}, None),
        ({"add_bos_token": True, "bos_token": "[A]"}, {"post_processor": None}, "[A]"),
        ({"add_bos_token": True, "bos_token": {"content": "[A]"}}, {}, "[A]"),
        ({"add_bos_token": None, "bos_token": "[A]"}, {}, "<s>"),
    ],
)  # fmt: skip
def test_bos_is_what_the_tokenizer_puts_before_a_text(
    tmp_path: Path, config: dict[str, Any] | None, changes: dict[str, Any], bos: str | None
) -> None:
    assert load(tmp_path, config, **changes).bos == bos


def test_tokens_for_templates_come_from_the_config(tmp_path: Path) -> None:
    config = {
        "bos_token": {"content": "<s>"},
        "eos_token": "</s>",
        "pad_token": None,
        "add_bos_token": True,
        "model_max_length": 7,
    }
    assert dict(load(tmp_path, config).tokens) == {"bos_token": "<s>", "eos_token": "</s>"}


def test_control_tokens_and_other_added_tokens_are_told_apart(tmp_path: Path) -> None:
    tokens = [added("<s>", 0), added("<think>", 8, special=False)]
    found = load(tmp_path, added_tokens=tokens)
    assert (dict(found.special), dict(found.added)) == ({"<s>": 0}, {"<think>": 8})
    assert ids(found.encode_whole(["<s>hello<think>world"])) == [[0, 5, 8, 6]]
    assert ids(found.encode_ordinary(["hello <think> world"])) == [[5, 7, 6]]


def test_the_config_may_add_tokens(tmp_path: Path) -> None:
    more = {"8": {"content": "<x>", **ADDED, "special": True}, "0": {"content": "<s>", **ADDED}}
    found = load(tmp_path, {"added_tokens_decoder": more})
    assert found.special["<x>"] == 8
    assert found.special["<s>"] == 0


@pytest.mark.parametrize("normalizer", [None, {"type": "NFC"}])
def test_an_added_token_with_another_id_than_it_would_get_is_refused(
    tmp_path: Path, normalizer: dict[str, Any] | None
) -> None:
    spaced = normalizer is not None
    tokens = [added("<s>", 0), added("<x>", 99, lstrip=spaced)]
    with pytest.raises(UsageError, match="'<x>' has id 99 in the file, but 8 once loaded"):
        load(tmp_path, added_tokens=tokens, normalizer=normalizer)


NFC = {"type": "NFC"}
SEQUENCE = {"type": "Sequence", "normalizers": []}
METASPACE = {"type": "Metaspace", "replacement": "▁", "split": True}
BYTES = {"type": "ByteLevel", "trim_offsets": False, "use_regex": True}


@pytest.mark.parametrize(
    ("cuttable", "changes"),
    [
        (True, {}),
        (True, {"normalizer": NFC}),
        (True, {"normalizer": SEQUENCE}),
        (False, {"normalizer": {"type": "Prepend", "prepend": "▁"}}),
        (False, {"normalizer": {**SEQUENCE, "normalizers": [{"type": "Prepend", "prepend": "▁"}]}}),
        (False, {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}}),
        (True, {"pre_tokenizer": None}),
        (True, {"pre_tokenizer": METASPACE | {"prepend_scheme": "never"}}),
        (False, {"pre_tokenizer": METASPACE | {"prepend_scheme": "first"}}),
        (False, {"pre_tokenizer": METASPACE | {"prepend_scheme": "always"}}),
        (True, {"pre_tokenizer": BYTES | {"add_prefix_space": False}}),
        (False, {"pre_tokenizer": BYTES | {"add_prefix_space": True}}),
        (False, {"added_tokens": [added("<s>", 0, lstrip=True)]}),
        (False, {"added_tokens": [added("<s>", 0, rstrip=True)]}),
        (False, {"added_tokens": [added("<s>", 0, single_word=True)]}),
        (True, {"added_tokens": [added("<s>", 0, normalized=True)]}),
        (False, {"added_tokens": [added("<s>", 0, normalized=True)], "normalizer": NFC}),
        (False, {"added_tokens": [added("<s>", 0), added("[A]<", 8, normalized=True)]}),
        (True, {"added_tokens": [added("<s>", 0, normalized=True), added("[A]<", 8)]}),
    ],
)  # fmt: skip
def test_a_text_may_be_cut_only_where_that_is_certain_to_be_exact(
    tmp_path: Path, *, cuttable: bool, changes: dict[str, Any]
) -> None:
    found = load(tmp_path, **changes)
    assert found.cuttable is cuttable
    theirs = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    theirs.no_truncation()
    texts = ["<s>hello<s> hello </s> world", " <s> <s>world[A]<s>", "hello", "hello [A]<s>"]
    expected = [theirs.encode(text, add_special_tokens=False).ids for text in texts]
    assert ids(found.encode_whole(texts)) == expected


def test_a_text_that_tokenizers_fails_on_is_none_among_others(tmp_path: Path) -> None:
    model = {"type": "WordLevel", "vocab": WORDS, "unk_token": "<absent>"}
    found = load(tmp_path, model=model)
    assert ids(found.encode_ordinary(["hello", "other", "world"])) == [[5], None, [6]]


def test_texts_are_never_truncated(tmp_path: Path) -> None:
    assert ids(load(tmp_path).encode_whole(["hello " * 100])) == [[5] * 100]
