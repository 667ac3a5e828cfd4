"""protect: control tokens that a user wrote out, broken up so that they stay text."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache

from pipeline.logs.records import Chat
from pipeline.templates.media import without_marks
from pipeline.vocabularies.patterns import token_pattern

BREAK = "\ufdd0"
"""Stands between the letters of such a token; to be taken out before text is encoded."""


@dataclass(frozen=True, slots=True)
class ProtectedChat(Chat):
    """A chat whose texts are changed by `broken` before a template sees them."""

    broken: Callable[[str], str] = without_marks


def protect(chat: Chat, special_tokens: Collection[str]) -> ProtectedChat:
    """Return a chat to be rendered with every control token in its texts broken up by BREAK."""
    written = _pattern(frozenset(special_tokens))

    def broken(text: str) -> str:
        return written.sub(lambda found: BREAK.join([*found[0], ""]), without_marks(text))

    return ProtectedChat(chat.messages, chat.tools, chat.settings, broken)


@lru_cache(maxsize=16)
def _pattern(special_tokens: frozenset[str]) -> re.Pattern[str]:
    return re.compile(token_pattern(sorted(special_tokens)))
