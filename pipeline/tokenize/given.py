"""What a trace that is tokenized again says of its own token ids."""

from pathlib import Path

import pyarrow.parquet as pq

from pipeline.logs.documents import is_parquet
from pipeline.trace.metadata import TraceMetadata


def tokenizer_of_trace(path: Path) -> dict[str, tuple[str, str]]:
    """Return name and fingerprint of a trace's tokenizer, by the models that it is for."""
    if not is_parquet(path):
        return {}
    try:
        schema = pq.read_schema(path)
    except (OSError, ValueError):
        return {}  # reading it will tell
    metadata = TraceMetadata.of_parquet(schema.metadata, path)
    key = metadata.tokenizer_sha256
    return {"*": (metadata.tokenizer or "", key)} if key else {}
