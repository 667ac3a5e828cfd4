"""What a trace file says of itself, kept as JSON in Parquet's key-value metadata."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

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
    """

    tokenizer: str | None = None
    tokenizer_sha256: str | None = None
    block_tokens: int | None = None
    partial_block: str | None = None
    sources: tuple[str, ...] = ()
    time_note: str | None = None
    schema_version: str = SCHEMA_VERSION

    def as_parquet(self) -> dict[bytes, bytes]:
        """Return the key-value pair to put into a Parquet schema."""
        return {_KEY: json.dumps(asdict(self), sort_keys=True).encode()}

    @classmethod
    def of_parquet(cls, pairs: Mapping[bytes, bytes] | None) -> "TraceMetadata":
        """Read the pair back; a file that has none gives the defaults."""
        if not pairs or _KEY not in pairs:
            return cls()
        known = {k: v for k, v in json.loads(pairs[_KEY]).items() if k in cls.__annotations__}
        return replace(cls(**known), sources=tuple(known.get("sources", ())))
