"""AddedToken, a token that is looked for before anything else, and when texts may be cut at it."""

from collections.abc import Collection, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

_PLACELESS_NORMALIZERS = {
    *("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Replace", "ByteLevel", "Nmt"),
}
_PLACELESS_PRE_TOKENIZERS = {
    *("ByteLevel", "Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit"),
    *("BertPreTokenizer", "CharDelimiterSplit", "UnicodeScripts", "Metaspace"),
}


class AddedToken(NamedTuple):
    """A token beside the vocabulary.

    special     a control token, not text that the model may write
    plain       takes only itself: no spaces around it, in any place
    normalized  looked for after the text was normalized
    """

    text: str
    number: int
    special: bool
    plain: bool
    normalized: bool

    @classmethod
    def from_json(cls, entry: Mapping[str, Any], number: Any = None) -> "AddedToken":
        """Read an entry of `added_tokens`; KeyError, TypeError or ValueError if it is none."""
        text = entry["content"]
        if not isinstance(text, str):
            raise TypeError
        awkward = any(entry.get(flag, False) for flag in ("lstrip", "rstrip", "single_word"))
        special = bool(entry.get("special", False))
        normalized = bool(entry.get("normalized", not special))
        number = int(entry["id"] if number is None else number)
        return cls(text, number, special, not awkward, normalized)


def is_cuttable(content: Mapping[str, Any], added: Sequence[AddedToken]) -> bool:
    """Tell whether a text may be cut at added tokens and the segments encoded one by one.

    So it is if no added token takes more than itself, and if what is done to a segment does not
    depend on where it stands. Where that is not certain, the answer is no.
    """
    normalizers = _steps(content.get("normalizer"), "normalizers")
    pre_tokenizers = _steps(content.get("pre_tokenizer"), "pretokenizers")
    late = {token.text for token in added if token.normalized}
    early = {token.text for token in added if not token.normalized}
    return (
        all(token.plain for token in added)
        and (not late or not normalizers)
        and not _hide(early, late)
        and all(step.get("type") in _PLACELESS_NORMALIZERS for step in normalizers)
        and all(_is_placeless(step) for step in pre_tokenizers)
    )


def _steps(part: Any, several: str) -> list[Mapping[str, Any]]:
    if part is None:
        return []
    if not isinstance(part, dict):
        return [{}]
    if part.get("type") == "Sequence":
        return [step for inner in part.get(several, []) for step in _steps(inner, several)]
    return [part]


def _is_placeless(step: Mapping[str, Any]) -> bool:
    if step.get("add_prefix_space") or step.get("type") not in _PLACELESS_PRE_TOKENIZERS:
        return False
    return step["type"] != "Metaspace" or step.get("prepend_scheme") == "never"


def _hide(early: Collection[str], late: Collection[str]) -> bool:
    """Tell whether a late token can begin before an early one and share letters with it.

    Then the early one is found first all the same, where a single search would find the late one.
    """
    begins = {token[:i] for token in early for i in range(1, len(token))}
    ends = {token[i:] for token in late for i in range(1, len(token))}
    return bool(begins & ends) or any(a in b for a, b in product(early, late))
