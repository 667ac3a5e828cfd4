"""JsonEngine: any tokenizer.json, through Hugging Face's tokenizers."""

from collections.abc import Sequence

import numpy as np
from tokenizers import Encoding, Tokenizer

from pipeline.vocabularies.engine import IDS, gave_up


class JsonEngine:
    """Encodes with tokenizers, which uses all cores by itself."""

    def __init__(self, content: str) -> None:
        """Load the content of a tokenizer.json; raises what tokenizers raises."""
        self.tokenizer: Tokenizer = Tokenizer.from_str(content)
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def encode(self, texts: Sequence[str]) -> list[bytes | None]:
        """Return the ids of each text; None where tokenizers gave up."""
        try:
            found = self.tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        except BaseException as error:
            if not gave_up(error):
                raise
            return [self._ids(text) for text in texts]
        return [_bytes(encoding) for encoding in found]

    def _ids(self, text: str) -> bytes | None:
        try:
            return _bytes(self.tokenizer.encode(text, add_special_tokens=False))
        except BaseException as error:
            if not gave_up(error):
                raise
            return None


def _bytes(encoding: Encoding) -> bytes:
    return np.array(encoding.ids, IDS).tobytes()
