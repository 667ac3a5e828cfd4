"""Ranks: tokens as bytes with their place in the order of merging, as .tiktoken files hold them."""

import base64
import binascii
import hashlib
from collections.abc import Mapping

Ranks = Mapping[bytes, int]


def parse_ranks(data: bytes) -> dict[bytes, int] | None:
    """Return the ranks in a .tiktoken file, None if it is something else."""
    ranks: dict[bytes, int] = {}
    try:
        for line in data.splitlines():
            if line.strip():
                token, rank = line.split()
                ranks[binascii.a2b_base64(token, strict_mode=True)] = int(rank)
    except (ValueError, binascii.Error):
        return None
    return ranks or None


def ranks_file(ranks: Ranks) -> bytes:
    """Return the .tiktoken file that holds these ranks."""
    in_order = sorted(ranks.items(), key=lambda item: item[1])
    return b"".join(b"%b %d\n" % (base64.b64encode(token), rank) for token, rank in in_order)


def ranks_sha256(ranks: Ranks) -> str:
    """Return what identifies ranks, however their file is written."""
    return hashlib.sha256(ranks_file(ranks)).hexdigest()
