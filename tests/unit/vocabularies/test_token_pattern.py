"""token_pattern finds what the longest of all tokens would be found as, one after another."""

import re

from hypothesis import given
from hypothesis import strategies as st

from pipeline.vocabularies.patterns import token_pattern

TOKENS = st.lists(st.text("ab<|", min_size=1, max_size=4), max_size=8)


@given(TOKENS, st.text("ab<|c", max_size=30))
def test_it_cuts_a_text_as_a_list_of_tokens_does_the_longest_first(
    tokens: list[str], text: str
) -> None:
    plain = "|".join(re.escape(t) for t in sorted(tokens, key=len, reverse=True)) or "(?!)"
    assert re.split(f"({token_pattern(tokens)})", text) == re.split(f"({plain})", text)


def test_no_tokens_and_empty_tokens_are_never_found() -> None:
    assert re.split(f"({token_pattern([])})", "ab") == ["ab"]
    assert re.split(f"({token_pattern([''])})", "ab") == ["ab"]
    assert re.split(f"({token_pattern(['', 'b'])})", "ab") == ["a", "b", ""]
