"""What a trace file says of itself, kept as JSON in Parquet's key-value metadata."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from pipeline.errors import TraceError
from pipeline.tables import SCHEMA_VERSION

_KEY = b"replay.trace"


@dataclass(frozen=True)
class TraceMetadata:
    """Where a trace came from and how its tokens or blocks are to be read.

    tokenizer         name of the vocabulary, None for block traces and foreign token ids
    tokenizer_sha256  fingerprint of vocabulary, pattern, special tokens and chat template
    block_tokens      tokens of a block in a block trace
    partial_block     `ceil` if the last, partial block has an id too, else `floor`
    sources           names of the log files
    time_note         how their times were read
    counts            what became of their lines: rows, skips and rejects by reason
    block_ids         `global` if equal ids in other traces are equal blocks, `file` if they are
                      this trace's own, None if that is not known
    """

    tokenizer: str | None = None
    tokenizer_sha256: str | None = None
    block_tokens: int | None = None
    partial_block: str | None = None
    sources: tuple[str, ...] = ()
    time_note: str | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    block_ids: str | None = None
    schema_version: str = SCHEMA_VERSION

    @property
    def shortest_tokens(self) -> int:
        """Tokens of the shortest prompt that has an id: a whole block, or a token."""
        return self.block_tokens if self.block_tokens and self.partial_block != "ceil" else 1

    def as_parquet(self) -> dict[bytes, bytes]:
        """Return the key-value pair to put into a Parquet schema."""
        told = asdict(self)
        if self.block_ids is None:  # so that traces of tokens stay as they were, byte by byte
            del told["block_ids"]
        return {_KEY: json.dumps(told, sort_keys=True).encode()}

    @classmethod
    def of_parquet(cls, pairs: Mapping[bytes, bytes] | None, path: Path) -> "TraceMetadata":
        """Read the pair back; a file that has none gives the defaults.

        Raises TraceError if the pair is not of this version, or not as it was written.
        """
        if not pairs or _KEY not in pairs:
            return cls()
        try:
            found = json.loads(pairs[_KEY])
            version = found.get("schema_version", SCHEMA_VERSION)
            if version != SCHEMA_VERSION:
                raise TraceError(
                    f"{path}: a trace of version {version}, this is for version {SCHEMA_VERSION}:"
                    " tokenize its logs again"
                )
            known = {name: found[name] for name in cls.__annotations__ if name in found}
            metadata = replace(cls(**known), sources=tuple(known.get("sources") or ()))
        except (ValueError, TypeError, AttributeError, RecursionError):
            raise TraceError(f"{path}: its metadata is damaged: tokenize its logs again") from None
        block_tokens = metadata.block_tokens
        if block_tokens is not None and not (isinstance(block_tokens, int) and block_tokens > 0):
            raise TraceError(f"{path}: its metadata names blocks of {block_tokens!r} tokens")
        return metadata
