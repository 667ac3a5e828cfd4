"""What requests of one session have in common for a router: a number that names it."""

from hashlib import blake2b

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def session_names(carried: pa.Table) -> NDArray[np.uint64]:
    """Return a number a request that names its session, else its tenant; 0 if it has neither."""
    names = np.zeros(len(carried), np.uint64)
    for column in ("tenant", "session_id"):
        if column in carried.column_names:
            known = carried[column].combine_chunks().dictionary_encode()
            hashes = [_number(column, text) for text in known.dictionary.to_pylist()]
            given = pc.is_valid(known).to_numpy(zero_copy_only=False)
            places = known.indices.fill_null(0).to_numpy()
            if hashes:
                names = np.where(given, np.array(hashes, np.uint64)[places], names)
    return names


def _number(column: str, text: str) -> int:
    digest = blake2b(f"{column}={text}".encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little") or 1
