"""Reprs in text logs: fields and literals, whole, cut, and none at all."""

import builtins
import time
from typing import Any

import pytest

from pipeline.logs.records import BadLine
from pipeline.logs.reprs import Cut, fields, value, value_or_none


def test_fields_are_split_where_their_own_commas_are() -> None:
    assert fields("""a='x, b=1', b=[1, (2, 3)], c={'d': 4, 'e': "},"}, f=G(h=1, i=2)""") == {
        "a": "'x, b=1'",
        "b": "[1, (2, 3)]",
        "c": """{'d': 4, 'e': "},"}""",
        "f": "G(h=1, i=2)",
    }


def test_names_may_have_a_colon_quotes_or_spaces() -> None:
    said = fields("prompt: 'x: y', prompt_embeds shape: None, 'max_new_tokens': 3")
    assert said == {"prompt": "'x: y'", "prompt_embeds shape": "None", "max_new_tokens": "3"}


def test_fields_end_with_the_bracket_that_was_open_before_them() -> None:
    said = "obj=X(a=1, b=[2]), out={'c': 3}"
    assert fields(said, said.index("(") + 1) == {"a": "1", "b": "[2]"}
    assert fields(said, said.index("{") + 1) == {"c": "3"}
    assert fields("X()", 2) == {}


def test_what_has_no_name_is_no_field_and_the_first_of_a_name_counts() -> None:
    assert fields("1, a=2, 'x', a=3, <object at 0x7f>") == {"a": "2"}


def test_quotes_within_a_text_do_not_end_it() -> None:
    assert fields(r"""a='it\'s, \\', b="can't, b=1", c='"'""") == {
        "a": r"'it\'s, \\'",
        "b": '"can\'t, b=1"',
        "c": "'\"'",
    }


@pytest.mark.parametrize(
    "said", ["a='x", "a=[1, 2", "a=X(b='c'", "a='x\\'", 'a={"b": "c', "a=[[1]"]
)
def test_fields_that_break_off_are_cut(said: str) -> None:
    with pytest.raises(BadLine, match=r"^cut by the logger$"):
        fields(said)


TEXTS = [
    "", "plain", "it's", 'say "hi"', "it's \"both\"", "back\\slash", "\\", "\\'",
    "\n\r\t\0\x1b\x7f",
    "é ü 中文 🙂", "\u2028\u2029\x85\xa0", "\ud83d", "<|im_start|>user\nHi<|im_end|>\n", " ... ",
    "' ... '", "a, b=[1], c='", "{}[]()",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_reads_back_as_what_it_was(text: str) -> None:
    assert value(repr(text)) == text
    assert value(ascii(text)) == text
    assert fields(f"a=1, b={text!r}, c=2") == {"a": "1", "b": repr(text), "c": "2"}
    assert value(repr([text, text])) == [text, text]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("None", None),
        ("True", True),
        ("False", False),
        ("12", 12),
        ("-1.5e-05", -1.5e-05),
        (" 7 ", 7),
        ("[]", []),
        ("()", []),
        ("(1,)", [1]),
        ("[1, 2, 3]", [1, 2, 3]),
        ("(1, 2)", [1, 2]),
        ("[[1, 2], [3], []]", [[1, 2], [3], []]),
        ("['a', None]", ["a", None]),
        ("[None, 'a,', True, 1.5]", [None, "a,", True, 1.5]),
        ("['a',]", ["a"]),
    ],
)
def test_values_are_numbers_texts_and_lists_of_them(said: str, expected: Any) -> None:
    assert value(said) == expected


@pytest.mark.parametrize(
    ("said", "head"),
    [
        ("'ab' ... 'yz'", "ab"),
        ("'ab' ... \"y'z\"", "ab"),
        ("'' ... ''", ""),
        ("[1, 2] ... [8, 9]", [1, 2]),
        ("(1, 2) ... (8, 9)", [1, 2]),
        ("['a', 'b'] ... ['z']", ["a", "b"]),
        ("[[1], [2]] ... [[9]]", [[1], [2]]),
    ],
)
def test_of_a_value_that_was_cut_the_head_is_left(said: str, head: Any) -> None:
    assert value(said) == Cut(head)
    assert fields(f"a={said}, b=1") == {"a": said, "b": "1"}


def test_an_item_of_a_list_may_be_cut() -> None:
    assert value("['ab' ... 'yz', 'c', [1] ... [2]]") == [Cut("ab"), "c", Cut([1])]


NONE = [
    "", "x", "{}", "{'a': 1}", "X(1)", "'a' 'b'", "'a'.upper()", "'a' + 'b'", "f'{1}'", "b'a'",
    "'a",
    "'a' ...", "[1] + [2]", "[1, x]", "[1 2]", "[", "[1", "__import__('os')", "1_0", "0x1", "inf",
    "nan", "9" * 5000, "'\\d'", "'\\x4'", "'\\U00110000'", "'\\N{BULLET}'", "'\\101'",
    "'a\\", "[]]",
    "'a\rb'", "lambda: 1", "Tensor(shape=(1,), dtype=torch.int64)",
]  # fmt: skip


@pytest.mark.parametrize("said", NONE)
def test_what_is_no_literal_is_bad_and_never_evaluated(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    for name in ("eval", "exec", "__import__"):
        monkeypatch.setattr(builtins, name, None)
    try:
        with pytest.raises(BadLine, match=r"^(a field is not the literal|cut by the logger)"):
            value(said)
        assert value_or_none(said) is None
    finally:
        monkeypatch.undo()


def test_no_value_is_none() -> None:
    assert value_or_none(None) is None


def test_lists_of_lists_of_lists_of_lists_are_none_that_a_log_has() -> None:
    assert value("[[[1]]]") == [[[1]]]
    with pytest.raises(BadLine):
        value("[[[['a']]]]")


@pytest.mark.parametrize(
    "said",
    [
        "'" + "\\'" * 2_000_000,
        "a='" * 500_000,
        "[" * 2_000_000,
        "[1," * 500_000,
        "(" * 500_000 + ")" * 500_000,
        "a='" + "x" * 5_000_000,
        "'\"" * 500_000 + "'",
        "a" * 5_000_000,
        "a =" * 500_000,
    ],
)
def test_hostile_text_takes_no_more_time_than_any(said: str) -> None:
    begin = time.monotonic()
    value_or_none(said)
    try:
        fields(said)
    except BadLine as reason:
        assert str(reason) == "cut by the logger"  # noqa: PT017 - it may also be read
    assert time.monotonic() - begin < 20


def test_long_lists_of_ids_are_read_at_once() -> None:
    ids = list(range(1_000_000))
    begin = time.monotonic()
    assert value(repr(ids)) == ids
    assert fields(f"a={ids}, b=1")["b"] == "1"
    assert time.monotonic() - begin < 10
