"""tidy: a text as servers hand it to the tokenizer."""

import unicodedata


def tidy(text: str, *, composed: bool) -> str:
    """Return the text with half surrogates replaced by U+FFFD, composed (NFC) if asked to."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return unicodedata.normalize("NFC", text) if composed else text
