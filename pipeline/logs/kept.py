"""Kept, what earlier lines of a log said that later lines need: bounded, oldest dropped first."""

import json
from typing import Any

_ENTRY = 500
"""Characters that an entry counts for beside its own: what it takes to hold it."""


class Kept:
    """Values by key, as JSON; once they have more than `at_most` characters the oldest go."""

    def __init__(self, at_most: int) -> None:
        self._at_most = at_most
        self._characters = 0
        self._values: dict[str, list[str]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def add(self, key: str, value: Any) -> None:
        """Keep a value, after those that its key has."""
        text = json.dumps(value, ensure_ascii=False, default=str)
        self._values.setdefault(key, []).append(text)
        self._characters += len(text) + _ENTRY
        while self._characters > self._at_most:
            self._drop(next(iter(self._values)))

    def get(self, key: str) -> list[Any]:
        """Return the values of a key, in the order they came in."""
        return [json.loads(text) for text in self._values.get(key, ())]

    def take(self, key: str) -> list[Any]:
        """Return the values of a key, which are no longer kept."""
        values = self.get(key)
        self._drop(key)
        return values

    def _drop(self, key: str) -> None:
        self._characters -= sum(len(text) + _ENTRY for text in self._values.pop(key, ()))
