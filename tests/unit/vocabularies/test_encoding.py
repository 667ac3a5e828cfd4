"""Token ids of texts: those of an encoding that is built here from the vocabulary's own file."""

import unicodedata

import pytest
import tiktoken
from vocabulary_samples import ids, qwen_ranks, vocabulary

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
    return tiktoken.Encoding(
        "plain",
        pat_str=PATTERN,
        mergeable_ranks=dict(qwen_ranks()),
        special_tokens={"<|never|>": 999_999},
    )


def ordinary(*texts: str) -> list[list[int] | None]:
    return ids(vocabulary("qwen3").encode_ordinary(texts))


def whole(*texts: str) -> list[list[int] | None]:
    return ids(vocabulary("qwen3").encode_whole(texts))


def test_text_has_the_ids_of_its_composed_form(plain: tiktoken.Encoding) -> None:
    expected = [plain.encode_ordinary(unicodedata.normalize("NFC", text)) for text in TEXTS]
    assert ordinary(*TEXTS) == whole(*TEXTS) == expected


def test_text_is_not_composed_for_a_vocabulary_that_does_not_ask_for_it() -> None:
    [apart, together] = ids(vocabulary("cl100k").encode_ordinary(["cafe\u0301", "café"]))
    assert apart != together


@pytest.mark.parametrize("half", [0xD83D, 0xDE00])
def test_half_a_surrogate_pair_is_the_replacement_character(
    plain: tiktoken.Encoding, half: int
) -> None:
    text = f"a{chr(half)} b"
    assert ordinary(text) == whole(text) == [plain.encode_ordinary("a\ufffd b")]


def test_two_halves_that_fit_are_their_character(plain: tiktoken.Encoding) -> None:
    assert ordinary("a \ud83d\ude00 b") == [plain.encode_ordinary("a 😀 b")]


def test_tokens_written_out_are_taken_as_such_in_a_whole_text_alone(
    plain: tiktoken.Encoding,
) -> None:
    text = "<|im_start|>user\nhi<|im_end|>"
    assert whole(text) == [[START, *plain.encode_ordinary("user\nhi"), END]]
    assert ordinary(text) == [plain.encode_ordinary(text)]
    assert whole("<|endoftext|>", "<think></think>") == [[151_643], [151_667, 151_668]]
    assert whole("<|not_special|>") == [plain.encode_ordinary("<|not_special|>")]


def test_a_mark_after_a_token_does_not_melt_into_it(plain: tiktoken.Encoding) -> None:
    mark = "\u0338"  # after > it would make one letter of both
    assert len(unicodedata.normalize("NFC", f">{mark}")) == 1
    assert whole(f"<|im_end|>{mark}") == [[END, *plain.encode_ordinary(mark)]]


def test_no_texts_and_empty_texts_have_no_ids() -> None:
    assert ordinary() == whole() == []
    assert ordinary("", "") == whole("", "") == [[], []]


def test_a_text_that_the_engine_gives_up_on_is_none_among_others(
    plain: tiktoken.Encoding,
) -> None:
    texts = ["a", " " * 2_000_000, "b", "x" + "\t" * 1_000_001 + "<|im_end|>"]
    a, b = plain.encode_ordinary("a"), plain.encode_ordinary("b")
    assert ordinary(*texts) == whole(*texts) == [a, None, b, None]


def test_a_panic_of_the_engine_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    def panic(_: tiktoken.Encoding, text: str, **_options: object) -> None:
        raise PanicException if text == "p" else KeyboardInterrupt

    monkeypatch.setattr(tiktoken.Encoding, "encode_to_numpy", panic)
    assert ordinary("p") == [None]
    with pytest.raises(KeyboardInterrupt):
        ordinary("k")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("cl100k", "tiktoken is great!", [83, 1609, 5963, 374, 2294, 0]),
        ("o200k", "hello world", [24912, 2375]),
        ("llama3", "<|begin_of_text|>hello world<|eot_id|>", [128_000, 15339, 1917, 128_009]),
        ("qwen3", "<|im_start|>hello", [START, 14990]),
        ("qwen3.5", "क्<think>", [149_567, 248_068]),
        ("deepseek", "<\uff5cbegin▁of▁sentence\uff5c>Hello", [0, 19923]),
    ],
)
def test_ids_that_are_known_from_elsewhere(name: str, text: str, expected: list[int]) -> None:
    assert ids(vocabulary(name).encode_whole([text])) == [expected]


def test_the_name_and_fingerprint_of_each_vocabulary_are_its_own() -> None:
    known = [vocabulary(name) for name in ("qwen3", "qwen3.5", "cl100k")]
    assert len({one.sha256 for one in known}) == len({one.name for one in known}) == 3
    assert all(len(one.sha256) == 64 for one in known)
    assert [one.bos for one in known] == [None] * 3
    assert vocabulary("llama3").bos == "<|begin_of_text|>"
    assert vocabulary("qwen3").special["<|im_end|>"] == END
    assert vocabulary("qwen3").added["<think>"] == 151_667
