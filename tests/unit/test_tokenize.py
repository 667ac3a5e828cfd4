"""Token ids of a tokenized log: the vocabulary's, of whole prompts, chats and images."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from samples import column, rows_of, token_lists, write_log
from vocabulary_samples import ids, vocabulary

from pipeline.tokenize import Summary, TokenizeSettings, tokenize_logs
from pipeline.vocabularies import Vocabulary

START, END = 151_644, 151_645


@pytest.fixture(autouse=True)
def _loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.encode.encoder.find_vocabulary", _found)


def _found(name: str, *, fast: bool | None) -> Vocabulary:
    assert fast is False
    return vocabulary(name)


def _tokenize(folder: Path, *lines: dict[str, Any] | str, **options: Any) -> Summary:
    log = write_log(folder / "a.jsonl", lines)
    settings = TokenizeSettings(fast=False, **options)
    return tokenize_logs([log], folder / "a.parquet", settings)


def _tokens(folder: Path, *lines: dict[str, Any] | str, **options: Any) -> list[list[int]]:
    _tokenize(folder, *lines, max_rejects=0, **options)
    return [found.tolist() for found in token_lists(folder / "a.parquet")]


def _ordinary(text: str) -> list[int]:
    [found] = ids(vocabulary("qwen3").encode_ordinary([text]))
    assert found is not None
    return found


def test_prompts_have_the_ids_of_whole_texts(tmp_path: Path) -> None:
    texts = ["Größe 東京 e\u0301", "<|im_start|>user\nhi<|im_end|>", "<think></think>", "a\ufdd0b"]
    found = _tokens(tmp_path, *({"prompt": text} for text in texts))
    assert found[:3] == ids(vocabulary("qwen3").encode_whole(texts[:3]))
    assert found[1] == [START, *_ordinary("user\nhi"), END]


def test_composed_and_decomposed_text_share_all_of_their_prefix(tmp_path: Path) -> None:
    composed, decomposed = _tokens(tmp_path, {"prompt": "café"}, {"prompt": "cafe\u0301"})
    assert composed == decomposed
    assert column(rows_of(tmp_path / "a.parquet"), "prefix_tokens") == [0, len(composed)]


def test_surrogates_are_one_letter_in_pairs_and_none_alone(tmp_path: Path) -> None:
    pair = json.dumps({"prompt": "a 😀 b"}, ensure_ascii=True)
    assert "\\ud83d\\ude00" in pair
    found = _tokens(tmp_path, pair, '{"prompt": "a\\ud83d b"}')
    assert found == [_ordinary("a 😀 b"), _ordinary("a\ufffd b")]


def test_token_ids_are_taken_as_they_are(tmp_path: Path) -> None:
    prompts = [[0, 2**31 - 1, 7], [151_644]]
    assert _tokens(tmp_path, {"prompt": prompts}) == prompts
    assert token_lists(tmp_path / "a.parquet")[0].dtype == np.uint32


def test_a_chat_is_rendered_as_the_engine_would_see_it(tmp_path: Path) -> None:
    turns = [("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi"), ("user", "Why?")]
    [found] = _tokens(tmp_path, {"messages": [{"role": r, "content": c} for r, c in turns]})
    expected: list[int] = []
    for role, text in turns:
        expected += [START, *_ordinary(f"{role}\n{text}"), END, *_ordinary("\n")]
    assert found == [*expected, START, *_ordinary("assistant\n")]


def test_a_chat_that_grows_shares_all_but_the_opened_answer(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    more = [*messages, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Why?"}]
    first, second = _tokens(tmp_path, {"messages": messages}, {"messages": more})
    assert second[: len(first)] == first
    assert column(rows_of(tmp_path / "a.parquet"), "prefix_tokens") == [0, len(first)]


def test_control_tokens_in_a_chat_may_be_kept_as_text(tmp_path: Path) -> None:
    line = {"messages": [{"role": "user", "content": "say <|im_end|>"}]}
    [control] = _tokens(tmp_path, line)
    assert control.count(END) == 2
    [text] = _tokens(tmp_path, line, special_tokens_in_text="text")
    newline = [END, *_ordinary("\n"), START, *_ordinary("assistant\n")]
    assert text == [START, *_ordinary("user\nsay <|im_end|>"), *newline]


def test_images_are_told_apart_by_their_content_and_take_their_tokens(tmp_path: Path) -> None:
    def asked(data: str) -> dict[str, Any]:
        url = f"data:image/png,{data * 10_000}"
        parts = [
            {"type": "text", "text": "Hello"},
            {"type": "image_url", "image_url": {"url": url}},
        ]
        return {"messages": [{"role": "user", "content": parts}]}

    cat, same_cat, dog = _tokens(tmp_path, asked("cat"), asked("cat"), asked("dog"), image_tokens=9)
    assert cat == same_cat != dog
    assert sum(token >= 2**31 for token in cat) == 9
    shared = len([START, *_ordinary("user\nHello\n")])
    assert column(rows_of(tmp_path / "a.parquet"), "prefix_tokens") == [0, len(cat), shared]


@pytest.mark.parametrize("content", [7, {"text": "x"}, True])
def test_a_message_whose_content_is_no_text_is_rejected(tmp_path: Path, content: object) -> None:
    messages = [{"role": "user", "content": content}]
    summary = _tokenize(tmp_path, {"messages": messages}, {"prompt": "x"}, max_rejects=0.5)
    assert summary.requests == 1
    assert len(summary.rejects) == 1


def test_a_text_that_the_engine_gives_up_on_is_one_rejected_line(tmp_path: Path) -> None:
    summary = _tokenize(tmp_path, {"prompt": " " * 2_000_000}, {"prompt": "x"}, max_rejects=0.5)
    assert summary.requests == 1
    assert dict(summary.rejects) == {"the tokenizer failed on it": 1}
