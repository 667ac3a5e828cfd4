"""Engine: what turns texts into token ids."""

from collections.abc import Sequence
from typing import Protocol

IDS = "<u4"
"""Token ids as they leave this package: little-endian uint32."""


class Engine(Protocol):
    """Encodes texts that hold no half surrogate."""

    def encode(self, texts: Sequence[str]) -> list[bytes | None]:
        """Return the ids of each text; None where the engine gave up."""
        ...


def gave_up(error: BaseException) -> bool:
    """Tell whether an engine failed on its text: some raise a panic that is no Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"
