"""Media markers: what stands in a rendered text for an image, a sound or a file.

A marker names the content by its hash, so that equal images are equal prefixes and different ones
are not, and says how many tokens it takes. Its ids lie above those of any vocabulary.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

MARKER = "\ufdd1[0-9a-f]{32}:[0-9]{1,7}\ufdd2"
"""Regular expression of a marker, without groups."""
_RESERVED = re.compile("[\ufdd0-\ufdd2]")
_MEDIA_BIT = np.uint32(1 << 31)
_DATA_KEYS = ("url", "data", "file_data", "file_id", "id")
_BASE64_KEYS = {"data", "file_data"}


class MediaTokens(NamedTuple):
    """How many tokens stand for an image (or file), and for a sound (or video)."""

    image: int = 256
    audio: int = 256


def marker(part: Mapping[str, Any], tokens: MediaTokens) -> str:
    """Return the marker of a content part that is no text."""
    kind = str(part.get("type", ""))
    count = tokens.audio if "audio" in kind or "video" in kind else tokens.image
    return f"\ufdd1{hashlib.blake2b(_content(part), digest_size=16).hexdigest()}:{count}\ufdd2"


def is_marker(piece: str) -> bool:
    """Tell whether a piece of a text that was cut at MARKER is one."""
    return piece.startswith("\ufdd1")


def marker_ids(piece: str) -> bytes:
    """Return the token ids of a marker, little-endian uint32."""
    digest, _, count = piece[1:-1].partition(":")
    return media_ids(digest, int(count))


def media_ids(digest: str, count: int) -> bytes:
    """Return `count` ids, all of 2**31 or more, that belong to one content alone."""
    ids = np.frombuffer(hashlib.shake_256(bytes.fromhex(digest)).digest(4 * count), "<u4")
    return (ids | _MEDIA_BIT).astype("<u4").tobytes()


def without_marks(text: str) -> str:
    """Return a user's text without the characters that markers are made of."""
    if text.isascii() or not _has_marks(text):
        return text
    return _RESERVED.sub("\ufffd", text)


def _has_marks(text: str) -> bool:
    return "\ufdd1" in text or "\ufdd2" in text or "\ufdd0" in text


def _content(part: Mapping[str, Any]) -> bytes:
    """Return what identifies a part: its decoded data, its address, or all of it as JSON."""
    kind = part.get("type")
    inner = part.get(kind) if isinstance(kind, str) else None
    for holder in (inner, part.get("source"), part.get("image_url"), part):
        if isinstance(holder, str):
            return _named(holder)
        if isinstance(holder, Mapping):
            for key in _DATA_KEYS:
                found = holder.get(key)
                if isinstance(found, str) and found:
                    return _decoded(found) if key in _BASE64_KEYS else _named(found)
    return b"json:" + json.dumps(part, sort_keys=True).encode()


def _named(text: str) -> bytes:
    """Return what an address stands for; a data: address is its data."""
    head, comma, data = text.partition(",")
    if not (comma and head.startswith("data:")):
        return b"name:" + text.encode("utf-8", "surrogatepass")
    if head.endswith(";base64"):
        return _decoded(data)
    return b"data:" + data.encode("utf-8", "surrogatepass")


def _decoded(text: str) -> bytes:
    if text.startswith("data:"):
        return _named(text)
    try:
        return b"data:" + base64.b64decode(text)
    except (ValueError, binascii.Error):
        return b"name:" + text.encode("utf-8", "surrogatepass")
