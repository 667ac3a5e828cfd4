"""KnownVocabulary: pattern and added tokens of vocabularies that come as ranks alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_ENDS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_QWEN = _SUFFIXES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _ENDS
_QWEN_MARKS = (
    _SUFFIXES + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _ENDS
)
_LLAMA3 = _SUFFIXES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _ENDS
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SUFFIXES}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SUFFIXES}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _ENDS
)
_QWEN_CONTROL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>"),
    *("<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
)
_QWEN_TEXT = (
    *("<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"),
    *("<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
)
_QWEN_AUDIO = (
    *("<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>"),
    *("<tts_text_bos_single>", "<|audio_pad|>"),
)
_QWEN_TOKENS = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
_HARMONY = {
    "<|return|>": 200_002,
    "<|constrain|>": 200_003,
    "<|channel|>": 200_005,
    "<|start|>": 200_006,
    "<|end|>": 200_007,
    "<|message|>": 200_008,
    "<|call|>": 200_012,
    "<|endofprompt|>": 200_018,
}
_LLAMA31 = {
    "<|begin_of_text|>": 128_000,
    "<|end_of_text|>": 128_001,
    "<|finetune_right_pad_id|>": 128_004,
    "<|start_header_id|>": 128_006,
    "<|end_header_id|>": 128_007,
    "<|eom_id|>": 128_008,
    "<|eot_id|>": 128_009,
    "<|python_tag|>": 128_010,
}


@dataclass(frozen=True)
class KnownVocabulary:
    """A vocabulary whose ranks are known by their sha256.

    count     number of ranks
    sha256    of the ranks as a .tiktoken file: base64, space, rank, newline
    special   control tokens
    added     other added tokens
    bos       what the tokenizer puts before a text
    composed  texts are composed (NFC) first
    tokens    what chat templates may ask for
    """

    name: str
    count: int
    sha256: str
    pattern: str
    special: Mapping[str, int]
    added: Mapping[str, int] = field(default_factory=dict)
    bos: str | None = None
    composed: bool = False
    tokens: Mapping[str, str] = field(default_factory=dict)


def _from(first: int, *groups: Sequence[str]) -> dict[str, int]:
    return {token: first + i for i, token in enumerate(token for g in groups for token in g)}


def _with_reserved(named: Mapping[str, int], ids: range) -> dict[str, int]:
    """Return Llama's control tokens: what has no name is numbered on."""
    names = {number: token for token, number in named.items()}
    unnamed = (number for number in ids if number not in names)
    names |= {number: f"<|reserved_special_token_{i}|>" for i, number in enumerate(unnamed)}
    return {names[number]: number for number in ids}


def _harmony() -> dict[str, int]:
    """Return the control tokens of GPT-OSS, which are more than those of GPT-4o."""
    ends = {"<|startoftext|>": 199_998, "<|endoftext|>": 199_999}
    taken = {*_HARMONY.values()}
    reserved = {f"<|reserved_{i}|>": i for i in range(200_000, 201_088) if i not in taken}
    return ends | _HARMONY | reserved


def _qwen35() -> KnownVocabulary:
    numbers = _from(248_044, _QWEN_CONTROL, _QWEN_TEXT, _QWEN_AUDIO)
    return KnownVocabulary(
        "qwen3.5",
        248_044,
        "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd",
        _QWEN_MARKS,
        {token: numbers[token] for token in (*_QWEN_CONTROL, *_QWEN_AUDIO)},
        {token: numbers[token] for token in _QWEN_TEXT},
        composed=True,
        tokens=_QWEN_TOKENS,
    )


KNOWN = {
    known.name: known
    for known in (
        KnownVocabulary(
            "qwen3",
            151_643,
            "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186",
            _QWEN,
            _from(151_643, _QWEN_CONTROL),
            _from(151_657, _QWEN_TEXT),
            composed=True,
            tokens=_QWEN_TOKENS,
        ),
        _qwen35(),
        KnownVocabulary(
            "cl100k",
            100_256,
            "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
            _CL100K,
            _from(100_257, ("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"))
            | {"<|endofprompt|>": 100_276},
            tokens={"eos_token": "<|endoftext|>"},
        ),
        KnownVocabulary(
            "o200k",
            199_998,
            "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
            _O200K,
            _harmony(),
            tokens={"bos_token": "<|startoftext|>", "eos_token": "<|return|>"},
        ),
        KnownVocabulary(
            "llama3",
            128_000,
            "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55",
            _LLAMA3,
            _with_reserved(_LLAMA31, range(128_000, 128_256)),
            bos="<|begin_of_text|>",
            tokens={
                "bos_token": "<|begin_of_text|>",
                "eos_token": "<|eot_id|>",
                "pad_token": "<|finetune_right_pad_id|>",
            },
        ),
    )
}
"""qwen3 is Qwen 2 to 3, llama3 is Llama 3.1 to 3.3, o200k has GPT-OSS's control tokens."""
